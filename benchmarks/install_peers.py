"""Install what benchmarks/ compares with, in environments under build/: build/peers and others.

    python benchmarks/install_peers.py [--only peers]

A package that cannot be installed is left out with the reason; so are the engines that need it,
whenever a benchmark runs. What is installed already stays.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from engine import ENVIRONMENTS

HERE = Path(__file__).resolve().parent
NAMES = (
    "peers",
    "peers-lazyllm",
    "peers-formats",
    "peers-hybrids",
    "peers-incremental",
    "peers-pathway",
)


def requirements(path: Path) -> list[str]:
    """The lines of a requirements file, without comments."""
    lines = (
        line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()
    )
    return [line for line in lines if line]


def install(name: str) -> list[str]:
    """Make one environment; returns what could not be installed, with the reason."""
    folder = ENVIRONMENTS / name
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    wanted = requirements(HERE / f"{name}.txt")
    if not pip(folder, wanted):
        return []
    failed = []
    for one in wanted:  # all together failed: find out which
        reason = pip(folder, [one])
        if reason:
            failed.append(f"{one}: {reason}")
    return failed


def pip(folder: Path, packages: list[str]) -> str:
    """Install into an environment; "" if it went well, else the last line that pip said."""
    command = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*command, *packages], check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"pip ended with status {done.returncode}"])[-1]


def main() -> int:
    """Install all, and say what is left out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    for name in parser.parse_args().only:
        failed = install(name)
        print(
            f"{ENVIRONMENTS / name} is ready" + "".join(f"\n  left out: {one}" for one in failed),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
