"""Clusters as launchers: Dask and Ray. Their packages are imported here alone, when a launcher
names them.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from lazyrag.errors import ConfigError, IngestionError, optional_package
from lazyrag.launchers.executors import Engine, dump_by_name, not_sent
from lazyrag.validation import validate_integer

_UNKNOWN_WIDTH = 8
_EXPECTED = (
    "None, an integer, a concurrent.futures.Executor, 'dask://HOST:PORT', 'ray' or"
    " 'ray://HOST:PORT'"
)
_TRIES = 3  # of a task whose worker ends, within Ray


def connect(launcher: str, num_gpus: float = 0, runtime_env: Any = None) -> Engine:
    """Connect to a cluster.

    Args:
        launcher: ``"dask://HOST:PORT"``, ``"ray"`` or ``"ray://HOST:PORT"``.
        num_gpus: See `make_engine`.
        runtime_env: See `make_engine`.

    Raises:
        MissingDependencyError: If the package is not installed.
        IngestionError: If the cluster does not answer.
    """
    kind, _, where = launcher.partition("://")
    try:
        if kind == "dask":
            return _dask(where)
        return _ray(launcher if where else None, num_gpus, runtime_env)
    except (OSError, ConnectionError) as exc:
        raise IngestionError(
            f"The launcher {launcher!r} does not answer: {exc}. Start its cluster first."
        ) from exc


def _dask(where: str) -> Engine:
    with optional_package("launcher='dask://...'", "dask"):
        from distributed import Client
    client = Client(f"tcp://{where}", set_as_default=False)
    engine = of_dask(client.get_executor(pure=False), client)
    engine.close = client.close
    return engine


def of_dask(executor: Executor, client: Any = None) -> Engine:
    """The engine of an executor of dask.distributed; it sends a task of a worker that ended to
    another one itself.
    """
    from distributed.protocol.pickle import dumps
    from distributed.scheduler import KilledWorker

    client = client or executor._client  # type: ignore[attr-defined]
    return Engine(executor, lambda: sum(client.nthreads().values()), dumps, (KilledWorker,))


def _ray(address: str | None, num_gpus: float, runtime_env: Any) -> Engine:
    with optional_package("launcher='ray'", "ray"):
        import ray
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address, log_to_driver=False, logging_level="error", runtime_env=runtime_env)
    lost = (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
        ray.exceptions.NodeDiedError,
    )
    width = lambda: int(ray.cluster_resources().get("CPU", 1))  # noqa: E731
    close = ray.shutdown if is_ours else lambda: None
    return Engine(_Ray(ray, num_gpus), width, ray.cloudpickle.dumps, lost, close)


class _Ray:
    """Ray's tasks as an executor. Their processes are used again, also those with GPUs, so that
    models stay open.
    """

    def __init__(self, ray: Any, num_gpus: float) -> None:
        as_task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=_TRIES, max_calls=0)
        self._remote = as_task(_call)

    def submit(self, function: Any, /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = self._remote.remote(function, *arguments).future()
        return future


def _call(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


def make_engine(launcher: Any, num_gpus: float = 0, runtime_env: Any = None) -> Engine:
    """The engine of the argument ``launcher``.

    Args:
        launcher: The argument.
        num_gpus: GPUs of each worker of Ray.
        runtime_env: The environment of Ray's workers, as ``ray.init`` takes it.

    Raises:
        ConfigError: If it is something else.
        MissingDependencyError: If its package is not installed.
    """
    if isinstance(launcher, str) and launcher.partition(":")[0] in ("dask", "ray"):
        return connect(launcher, num_gpus, runtime_env)
    if isinstance(launcher, Executor):
        if type(launcher).__module__.startswith("distributed."):
            return of_dask(launcher)
        width: int = getattr(launcher, "_max_workers", _UNKNOWN_WIDTH)
        return Engine(
            launcher,
            lambda: width,
            not_sent if isinstance(launcher, ThreadPoolExecutor) else dump_by_name,
        )
    if isinstance(launcher, int) and not isinstance(launcher, bool):
        count = validate_integer("launcher", launcher, 1)
        threads = ThreadPoolExecutor(count, "lazyrag launcher")
        return Engine(
            threads, lambda: count, dump_by_name, (OSError,), threads.shutdown, processes=count
        )
    raise ConfigError(f"launcher must be {_EXPECTED}; got {launcher!r:.80}.")
