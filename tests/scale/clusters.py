"""Local Dask and Ray clusters of two workers, each worker a process that can be killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
WAIT_S = 120


def environment(log):
    """What workers and drivers run in: they import `scale_work`, and leave notes in a folder."""
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    quiet = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **quiet, **threads, "PYTHONPATH": path, "SCALE_LOG": str(log)}


def wait_for(condition, what, within_s=WAIT_S):
    """Wait until a condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took longer than {within_s} s")
        time.sleep(0.05)


class DaskCluster:
    """A scheduler and two workers of one thread."""

    def __init__(self, log):
        self._folder = Path(tempfile.mkdtemp(prefix="dask-"))
        self._environment = environment(log) | {
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10"
        }
        self._file = self._folder / "scheduler.json"
        options = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(self._file),
        ]
        self._processes = [self._start("scheduler", *options)]
        wait_for(self._file.exists, "the start of Dask's scheduler")
        time.sleep(0.2)
        self.launcher = json.loads(self._file.read_text())["address"].replace("tcp://", "dask://")
        self.workers = [self._worker(), self._worker()]

    def _start(self, role, *options):
        command = [sys.executable, "-m", "dask", role, *options]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, cwd=self._folder
            )

    def _worker(self):
        options = [
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--local-directory",
            str(self._folder),
        ]
        worker = self._start("worker", "--scheduler-file", str(self._file), *options)
        self._processes.append(worker)
        return worker

    def kill(self, pid):
        """Kill a worker, and start another one in its place; False if there is none of this
        number.
        """
        for at, one in enumerate(self.workers):
            if one.pid == pid:
                one.kill()
                one.wait()
                self.workers[at] = self._worker()
                return True
        return False

    def close(self):
        """End the processes of the cluster."""
        for one in reversed(self._processes):
            one.kill()
            one.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class RayCluster:
    """A head node with two CPUs; it starts workers again by itself."""

    def __init__(self, log):
        # short: it is the path of sockets
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        options = [
            "--head",
            "--port=0",
            "--num-cpus=2",
            "--include-dashboard=false",
            f"--temp-dir={self._folder}",
        ]
        options += ["--object-store-memory=100000000", "--block", "--node-ip-address=127.0.0.1"]
        self._environment = environment(log)
        with (self._folder / "log").open("wb") as out:
            command = [str(Path(sys.executable).with_name("ray")), "start", *options]
            self._head = subprocess.Popen(
                command, env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
        started = self._folder / "ray_current_cluster"
        wait_for(started.exists, "the start of Ray")
        os.environ["RAY_ADDRESS"] = started.read_text().strip()
        self.launcher = "ray"

    def kill(self, pid):
        """Kill a worker; False if there is none of this number."""
        try:
            if b"ray::" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return False
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            return False
        return True

    def close(self):
        """End the processes of the cluster: they are one group."""
        os.killpg(self._head.pid, signal.SIGTERM)
        try:
            self._head.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._head.pid, signal.SIGKILL)
            self._head.wait()
        os.environ.pop("RAY_ADDRESS", None)
        shutil.rmtree(self._folder, ignore_errors=True)


Cluster = DaskCluster | RayCluster


@contextmanager
def cluster(kind, log):
    """A cluster: ``"dask"`` or ``"ray"``."""
    made = {"dask": DaskCluster, "ray": RayCluster}[kind](log)
    try:
        yield made
    finally:
        made.close()
