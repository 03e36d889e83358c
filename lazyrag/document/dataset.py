"""The files a Document is made of, and what its user says of each."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.errors import ConfigError, DatasetPathError, sentence
from lazyrag.loaders.directory import FoundFile, Listing, find_files, signature_of

PathLike: TypeAlias = "str | os.PathLike[str]"
FileMetadata: TypeAlias = "Mapping[str, Mapping[str, Any]] | Callable[[Path], Mapping[str, Any] | None] | None"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where a Document's files come from.

    Args:
        where: The folder or file, for messages; "" where there is none, or several.
        list_files: Lists them anew.
        metadata: What the user says of them: a mapping by identity, or a function of the file's `pathlib.Path`.
        folder: The folder, if it is one.
        is_given: Whether there is a dataset at all; else nothing is looked after, and nothing that is known is gone.
    """

    where: str
    list_files: Callable[[], Listing]
    metadata: FileMetadata = None
    folder: Path | None = None
    is_given: bool = True

    def lies_in(self, path: Path) -> str:
        """The identity of a file within the dataset's folder; "" for one that lies elsewhere."""
        if self.folder is None:
            return ""
        try:
            return path.absolute().relative_to(self.folder).as_posix()
        except ValueError:
            return ""

    def said_of(self, file: FoundFile) -> Mapping[str, Any]:
        """What the user says of a file.

        Raises:
            ConfigError: If the function raises, or the metadata is no mapping or names a built-in field.
        """
        said: Any
        if callable(self.metadata):
            try:
                said = self.metadata(file.path)
            except Exception as exc:
                msg = sentence(f"file_metadata raised {type(exc).__name__}: {exc}")
                raise ConfigError(msg) from exc
        else:
            said = (self.metadata or {}).get(file.identity)
        if said is None:
            return {}
        if not isinstance(said, Mapping):
            msg = f"file_metadata gave {said!r}; a mapping of names to values is needed, or None."
            raise ConfigError(msg)
        built_in = [name for name in said if name in BUILT_IN_FIELDS]
        if built_in:
            msg = f"file_metadata gives {built_in[0]!r}, which is read from the file system. Use another name."
            raise ConfigError(msg)
        return said

    def unused_names(self, files: Sequence[FoundFile]) -> list[str]:
        """Keys of the metadata mapping that name no file: misspelt ones, most likely."""
        known = {file.identity for file in files}
        return [] if not isinstance(self.metadata, Mapping) else [str(one) for one in self.metadata if one not in known]


def make_dataset(
    dataset_path: PathLike | None,
    doc_files: Sequence[PathLike] | Mapping[str, PathLike] | None,
    file_metadata: FileMetadata,
) -> Dataset:
    """A Document's dataset from its arguments, its paths checked.

    Raises:
        DatasetPathError: If a path is not there.
        ConfigError: If an argument is of the wrong kind, or both paths and files are given.
    """
    if not (file_metadata is None or callable(file_metadata) or isinstance(file_metadata, Mapping)):
        msg = f"file_metadata is {file_metadata!r}; give a mapping by path, or a function of the path."
        raise ConfigError(msg)
    if dataset_path is not None and doc_files is not None:
        msg = "Document got dataset_path and doc_files; give one of them."
        raise ConfigError(msg)
    if isinstance(file_metadata, Mapping):
        own_ids = isinstance(doc_files, Mapping)
        file_metadata = {_identity(name, own_ids): said for name, said in file_metadata.items()}
    if doc_files is not None:
        files = named_files(doc_files, "doc_files")
        return Dataset("", lambda: _looked_at(files), file_metadata)
    if dataset_path is None:
        return Dataset("", lambda: _looked_at(()), file_metadata, is_given=False)
    path = _existing(dataset_path, "dataset_path")
    if path.is_dir():
        return Dataset(os.fspath(dataset_path), lambda: find_files(path), file_metadata, path)
    return Dataset(os.fspath(dataset_path), lambda: _looked_at([FoundFile(path.name, path)]), file_metadata)


def _looked_at(files: Sequence[FoundFile]) -> Listing:
    """Single files with their signatures; one that cannot be looked at is there without."""
    seen_ns = time.time_ns()
    return Listing(tuple(replace(file, signature=signature_of(file.path)) for file in files), seen_ns=seen_ns)


def _identity(name: Any, own_ids: bool) -> str:
    """A key of file_metadata as files are known: an id as it is, a path relative and with forward slashes."""
    if not isinstance(name, (str, os.PathLike)):
        msg = f"file_metadata has the key {name!r}; keys are paths relative to the dataset, or ids given in doc_files."
        raise ConfigError(msg)
    return str(name) if own_ids else PurePath(name).as_posix()


def named_files(doc_files: Sequence[PathLike] | Mapping[str, PathLike], what: str) -> list[FoundFile]:
    """Single files from an argument, in order of identity.

    Raises:
        ConfigError: If it is none, or names a file twice.
        DatasetPathError: If a path is not there.
    """
    if isinstance(doc_files, (str, os.PathLike)):
        msg = f"{what} is one path ({os.fspath(doc_files)!r}); give a list of paths. One file may be the dataset_path."
        raise ConfigError(msg)
    if not isinstance(doc_files, Iterable):
        msg = f"{what} is {doc_files!r}; give a list of paths, or a mapping of ids of your own to paths."
        raise ConfigError(msg)
    if isinstance(doc_files, Mapping):
        strange = [identity for identity in doc_files if not isinstance(identity, str) or not identity.strip()]
        if strange:
            msg = f"{what} has the id {strange[0]!r}; ids are texts, not blank."
            raise ConfigError(msg)
        files = [FoundFile(name, _existing(path, f"{what}[{name!r}]")) for name, path in doc_files.items()]
    else:
        paths = [_existing(path, what) for path in doc_files]
        files = [FoundFile(path.name, path) for path in paths]
    twice = sorted(name for name, times in Counter(file.identity for file in files).items() if times > 1)
    if twice:
        msg = f"{what} has several files named {twice[0]!r}. Give a mapping of ids of your own to paths."
        raise ConfigError(msg)
    folders = [file.path for file in files if file.path.is_dir()]
    if folders:
        msg = f"{what} names a folder: {folders[0]}. Give single files; a whole folder goes as dataset_path."
        raise ConfigError(msg)
    return sorted(files, key=lambda file: file.identity)


def _existing(path: Any, what: str) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        hint = " For several files use doc_files." if isinstance(path, (list, tuple)) else ""
        msg = f"{what} is {path!r} ({type(path).__name__}); give a path.{hint}"
        raise ConfigError(msg)
    if not os.fspath(path):
        msg = f"{what} is an empty text; give a path. The current folder is '.'."
        raise ConfigError(msg)
    found = Path(path).expanduser().absolute()  # the working directory may change before the first use
    if found.exists() and not (found.is_dir() or found.is_file()):
        msg = f"{what} {os.fspath(path)!r} is neither a folder nor a regular file. Give one of those."
        raise DatasetPathError(msg)
    if not found.exists():
        msg = f"{what} {os.fspath(path)!r} does not exist (looked for {found}). Give an existing folder or file."
        raise DatasetPathError(msg)
    return found
