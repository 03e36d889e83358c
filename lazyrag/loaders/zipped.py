"""Zip archives of files that are read one by one."""

from __future__ import annotations

import posixpath
import zipfile
from pathlib import Path

from lazyrag.data.segment import Place
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import open_archive
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import decode
from lazyrag.loaders.limits import reading
from lazyrag.loaders.members import members, nested_places, unread_within

_BREAK = "\n\n"
_MOST_TOLD = 100
_IS_UTF8 = 0x800


class ZipLoader:
    """Reads an archive member by member, each as a file of its name is read; each is a place of kind ``member``.

    Pages, headings and other places within a member are kept, their labels behind its path: ``teas.pdf > 3``. Hidden
    members are passed over. The number of the others becomes the metadata ``members``, and why one is not read is said
    in ``unread_members``. An archive that exceeds a limit is not read at all.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        now = reading()
        texts: list[str] = []
        places: list[Place] = []
        unread: dict[str, str] = {}
        position = 0
        with open_archive(path, "zip archive", ".zip") as archive, members() as inside:
            listed = [(info, shown) for info, shown in _shown(archive.infos) if not _is_passed_over(shown)]
            for info, shown in listed:
                try:
                    loaded = inside.load(shown, archive.pieces(info))
                except LoadError as exc:
                    if now.exceeded:
                        raise
                    unread[shown] = str(exc)
                    continue
                unread |= unread_within(loaded, shown)
                places += nested_places(loaded, position, "member", shown)
                texts.append(loaded.text)
                position += len(loaded.text) + len(_BREAK)
        if not texts:
            raise LoadError(_nothing_read(unread))
        return LoadedFile(_BREAK.join(texts), tuple(places), {"members": len(listed), **_told(unread)})


def _shown(infos: list[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, str]]:
    """Members with their names as people know them: old programs write their own encoding."""
    files = [info for info in infos if not info.is_dir()]
    raw = [info.filename for info in files]
    foreign = [name for name in raw if not name.isascii()]
    if not foreign or any(info.flag_bits & _IS_UTF8 for info in infos):
        return list(zip(files, raw, strict=True))
    try:
        told = decode("\n".join(raw).encode("cp437")).split("\n")
    except (LoadError, UnicodeEncodeError):
        told = raw
    return list(zip(files, told if len(told) == len(raw) else raw, strict=True))


def _is_passed_over(name: str) -> bool:
    """Whether a folder's walk would pass over it, too."""
    parts = name.replace("\\", "/").split("/")
    return any(part.startswith(".") and part not in (".", "..") for part in parts) or (
        parts[0] == "__MACOSX" or posixpath.basename(name).startswith("~$")
    )


def _told(unread: dict[str, str]) -> dict[str, dict[str, str]]:
    told = dict(list(unread.items())[:_MOST_TOLD])
    if len(unread) > _MOST_TOLD:
        told["..."] = f"{len(unread) - _MOST_TOLD} more members are not read."
    return {"unread_members": told} if told else {}


def _nothing_read(unread: dict[str, str]) -> str:
    if not unread:
        return "The zip archive holds no files but hidden ones. Put what is to be read into it."
    name, why = next(iter(unread.items()))
    return f"None of the {len(unread)} members of the zip archive can be read. The first is {name!r}: {why}"
