"""Install the real stores that the tests of this folder need, each in a place of its own under
build/live.

    python tests/live/install.py [env milvus25 milvus-server pgvector opensearch]

What stands there with the same pins stays, without asking any network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIVE = ROOT / "build" / "live"

OPENSEARCH_JARS = LIVE / "opensearch" / "lib"
MILVUS_BINARIES = LIVE / "milvus-server" / "unpacked" / "bin"

_PACKAGES = {
    # One environment for all clients: what a user has who installs every extra.
    "env": (
        "chromadb==1.5.9",
        "milvus-lite==3.2.2",
        "opensearch-py==3.2.0",
        "orjson==3.13.0",
        "pymilvus==3.0.2",
    ),
    # Its pkg_resources went with setuptools 80; 2.x and 3.x of milvus-lite share a name and exclude
    # each other.
    "milvus25": ("milvus-lite==2.5.1", "pymilvus==2.6.17", "setuptools<80"),
    "milvus-server": ("milvus==2.3.5",),
    "pgvector": ("pgserver==0.1.4",),  # PostgreSQL 16.2 with pgvector 0.6.2
}
_SERVERS = ("milvus-server", "pgvector")
_SELF = ("coverage>=7.4", "--editable", f"{ROOT}[test]")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return LIVE / name / "bin" / "python"


def make_environment(name: str) -> None:
    """A virtual environment with its packages; those for tests have this package and what its tests
    need, too.
    """
    venv.create(LIVE / name, with_pip=True)
    _run(
        python_of(name),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *_packages(name),
    )
    if name == "milvus-server":
        # The server would unpack 250 MB into every new folder of data.
        unpack = "import milvus, sys; milvus._initialize_data_files(sys.argv[1])"
        _run(python_of(name), "-c", unpack, str(MILVUS_BINARIES.parent))


def copy_jars(name: str) -> None:
    """The jars of OpenSearch, of its k-NN plug-in, and of the runner that starts it in a plain JVM."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        sys.exit(
            f"{name} needs Java 17 and Maven on the PATH: apt-get install openjdk-17-jdk-headless maven"
        )
    _run(
        "mvn",
        "-B",
        "-q",
        "-f",
        HERE / "pom.xml",
        _COPY,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={OPENSEARCH_JARS}",
    )
    for plugin in OPENSEARCH_JARS.glob("*.zip"):
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(OPENSEARCH_JARS)


def install(name: str) -> None:
    """Install one of them, unless it stands there with the same pins."""
    stamp = LIVE / name / "installed.txt"
    wanted = _pins(name)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"installing {name} into {LIVE / name}", flush=True)
    shutil.rmtree(LIVE / name, ignore_errors=True)
    WAYS[name](name)
    stamp.write_text(wanted, encoding="utf-8")


def _packages(name: str) -> tuple[str, ...]:
    return _PACKAGES[name] if name in _SERVERS else (*_PACKAGES[name], *_SELF)


def _pins(name: str) -> str:
    """All that an installation depends on, as a text."""
    if name == "opensearch":
        return (HERE / "pom.xml").read_text(encoding="utf-8")
    own = (
        ()
        if name in _SERVERS
        else ((ROOT / "setup.cfg").read_text(encoding="utf-8").partition("[mypy]")[0],)
    )
    return "\n".join([sys.version, *_packages(name), *own])


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


WAYS: dict[str, Callable[[str], None]] = {
    **dict.fromkeys(_PACKAGES, make_environment),
    "opensearch": copy_jars,
}


def main() -> None:
    """Install what is named, or all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"some of: {' '.join(WAYS)}; all without"
    )
    names = parser.parse_args().names or [*WAYS]
    if unknown := [name for name in names if name not in WAYS]:
        parser.error(f"{unknown[0]!r} is none of: {' '.join(WAYS)}")
    for name in names:
        install(name)


if __name__ == "__main__":
    main()
