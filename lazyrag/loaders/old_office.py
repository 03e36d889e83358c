"""Files of office programs before 2007, through outside programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, load_file
from lazyrag.loaders.detect import decode_lossy, sniff
from lazyrag.loaders.process import kill_group

with suppress(ImportError):
    import resource  # not on Windows

_SAVE_AS = {".doc": ".docx", ".ppt": ".pptx"}
_OFFICE_SECONDS = 120.0
_PRINTING_SECONDS = 15.0  # a damaged file may make them run for ever
_PRINTING_MEMORY = 1 << 29
_MAX_PRINTED = 1 << 26
_OFFICE_PROGRAMS = ("soffice", "libreoffice")
_TEXT_PROGRAMS = {
    ".doc": (("antiword", "-m", "UTF-8.txt", "-w", "0"), ("catdoc", "-d", "utf-8", "-w")),
    ".ppt": (("catppt", "-d", "utf-8"),),
}
"""Programs that print the text of a file, the better one first."""


class OldOfficeLoader:
    """Reads files of office programs before 2007 through a program that is installed.

    LibreOffice (``soffice``) turns them into .docx or .pptx, which are read as such; antiword,
    catdoc and catppt print their text. A ``.doc`` of Rich Text is read without any. The metadata
    ``read_by`` name the program.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        if _is_rtf(data):
            from lazyrag.loaders.rtf import read_rtf  # slow to import

            return read_rtf(data)
        sniffed = sniff(path)
        if sniffed is None or sniffed.suffix not in _SAVE_AS:
            raise LoadError(
                "The file is no document of an office program before 2007, or is damaged. Save it"
                " again."
            )
        suffix = sniffed.suffix
        problems = []
        office = next(filter(None, map(shutil.which, _OFFICE_PROGRAMS)), None)
        programs = [program for program in _TEXT_PROGRAMS[suffix] if shutil.which(program[0])]
        with _named(path, suffix) as copy:
            if office is not None:
                try:
                    return _by_office(office, copy, _SAVE_AS[suffix])
                except LoadError as exc:
                    problems.append(str(exc))
            for program in programs:
                try:
                    return _by_program(program, copy)
                except LoadError as exc:
                    problems.append(str(exc))
        others = " or ".join(program[0] for program in _TEXT_PROGRAMS[suffix])
        reason = " ".join(problems) or "None of the programs that read it is installed."
        raise LoadError(
            f"The format of {suffix} files, of office programs before 2007, needs another program."
            f" {reason} Install LibreOffice (soffice), {others}, or save the file as"
            f" {_SAVE_AS[suffix]}."
        )


def _is_rtf(data: bytes) -> bool:
    return data.lstrip().startswith(b"{\\rtf")


def programs_for(path: Path) -> tuple[str, ...]:
    """Names of the programs that read a file, the better one first; () for Rich Text, which needs
    none.
    """
    with path.open("rb") as file:
        if _is_rtf(file.read(1 << 10)):
            return ()
    sniffed = sniff(path)
    suffix = sniffed.suffix if sniffed is not None else path.suffix.lower()
    return _OFFICE_PROGRAMS[:1] + tuple(program[0] for program in _TEXT_PROGRAMS.get(suffix, ()))


@contextmanager
def _named(path: Path, suffix: str) -> Iterator[Path]:
    """A copy of a file with a name of ours, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="lazyrag-") as folder:
        yield Path(shutil.copyfile(path, Path(folder, f"file{suffix}")))


def _by_office(program: str, path: Path, newer: str) -> LoadedFile:
    """Read a file as LibreOffice saves it, with a profile of its own, so that one that is open does
    not matter.
    """
    profile = f"-env:UserInstallation={(path.parent / 'profile').as_uri()}"
    _run(
        [
            program,
            profile,
            "--headless",
            "--convert-to",
            newer[1:],
            "--outdir",
            str(path.parent),
            str(path),
        ],
        _OFFICE_SECONDS,
    )
    saved = path.with_suffix(newer)
    if not saved.exists():
        raise LoadError("LibreOffice could not read it.")
    loaded = load_file(saved)
    return replace(loaded, metadata={**loaded.metadata, "read_by": "LibreOffice"})


def _by_program(program: Sequence[str], path: Path) -> LoadedFile:
    printed = _run([*program, str(path)], _PRINTING_SECONDS, _PRINTING_MEMORY)
    text = decode_lossy(printed).replace("\r\n", "\n").replace("\f", "\n").strip()
    if not text:
        raise LoadError(f"{program[0]} found no text in it.")
    return LoadedFile(text, metadata={"read_by": program[0]})


def _run(command: Sequence[str], seconds: float, memory: int = 0) -> bytes:
    """What a program prints within limits. It runs in a group of processes of its own, which ends
    with it.
    """
    folder = str(Path(command[-1]).parent)
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(  # noqa: S603  the command is ours, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        if memory and sys.platform == "linux":
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MAX_PRINTED, _MAX_PRINTED))
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired as exc:
            raise LoadError(f"{Path(command[0]).name} took longer than {seconds:g} s.") from exc
        finally:
            kill_group(process)
            process.wait()
        printed.seek(0)
        text = printed.read(_MAX_PRINTED + 1)
    if status or len(text) > _MAX_PRINTED:
        raise LoadError(
            f"{Path(command[0]).name} could not read it{f' (status {status})' if status else ''}."
        )
    return text
