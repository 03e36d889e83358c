"""Files of object storage (``s3://bucket/folder``) and other file systems of fsspec, which is
imported here alone.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lazyrag.data.fields import mime_type
from lazyrag.errors import (
    DatasetPathError,
    LoadError,
    MissingDependencyError,
    missing_package,
    sentence,
)
from lazyrag.loaders.directory import FoundFile, Listing, RemotePath, Signature, day_of
from lazyrag.progress.blocks import contextmanager
from lazyrag.types import JsonObject
from lazyrag.validation import normal_name

_MODIFIED = ("LastModified", "last_modified", "mtime", "updated", "created")
_NAMES_OF_HASHES = ("ETag", "etag", "md5Hash", "content_md5")


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        DatasetPathError: If it is not one of a file system.
        MissingDependencyError: If its package is not installed.
    """
    try:
        from fsspec import url_to_fs

        system, path = url_to_fs(url)
    except ImportError as exc:
        if url.startswith("s3://"):
            raise missing_package("s3://", "s3fs", "s3") from exc
        msg = f"{url} needs a package that is not installed: {sentence(exc)} Install it with pip."
        raise MissingDependencyError(msg) from exc
    except ValueError as exc:
        msg = f"{url} is not the URL of a file system: {sentence(exc)} Pass a folder of this"
        raise DatasetPathError(f"{msg} machine, or a URL such as s3://bucket/folder.") from exc
    return system, str(path)


def list_remote(url: str) -> Listing:
    """List the files below a URL, without hidden ones; their content is not read.

    Raises:
        DatasetPathError: If it cannot be listed.
    """
    seen_ns = time.time_ns()
    system, root = _opened(url)
    try:
        system.invalidate_cache()
        infos = system.find(root, detail=True)
    except Exception as exc:
        msg = f"{url} cannot be listed: {exc}. Check the URL and the credentials."
        raise DatasetPathError(msg) from exc
    if not infos:
        raise DatasetPathError(f"{url} does not exist, or has no files. Check the URL.")
    files = []
    for path, info in infos.items():
        name = posixpath.basename(path) if path == root else posixpath.relpath(path, root)
        if not any(part.startswith(".") for part in name.split("/")):
            signature = _signature(info)
            location = RemotePath(system.unstrip_protocol(path))
            files.append(FoundFile(normal_name(name), location, signature))
    return Listing(sorted(files), seen_ns=seen_ns)


def _signature(info: JsonObject) -> Signature:
    """The signature of a file, in which a digest of its ETag takes the place of the inode."""
    modified = next((info[name] for name in _MODIFIED if info.get(name)), 0.0)
    seconds = float(modified.timestamp() if hasattr(modified, "timestamp") else modified)
    tag = next((str(info[name]) for name in _NAMES_OF_HASHES if info.get(name)), f"{seconds}")
    digest = hashlib.blake2b(tag.encode(), digest_size=7).digest()
    return Signature(int(info["size"] or 0), int(seconds * 1e6) * 1000, int.from_bytes(digest))


def hash_remote(file: FoundFile) -> str:
    """What stands for a hash of a file's content: of its size and ETag, so that nothing is read."""
    size, _, tag = file.signature or Signature(0, 0, 0)
    return hashlib.blake2b(f"{size} {tag}".encode(), digest_size=16).hexdigest()


def remote_metadata(file: FoundFile) -> JsonObject:
    """The six built-in metadata fields, as `local_copy` gives them."""
    size, modified_ns, _ = file.signature or Signature(0, 0, 0)
    day = day_of(modified_ns / 1e9)
    return {
        "file_name": normal_name(file.path.name),
        "file_type": mime_type(file.path.suffix),
        "file_size": size,
        "creation_date": day,
        "last_modified_date": day,
        "last_accessed_date": day,
    }


@contextmanager
def local_copy(file: FoundFile) -> Iterator[tuple[Path, bool]]:
    """A copy of a file on this machine, with its name and date, for the block; and whether it is
    the file that was listed.

    Raises:
        LoadError: If it cannot be read.
    """
    import tempfile  # takes a while, and few files are remote

    url = os.fspath(file.raw_path)
    system, path = _opened(url)
    with tempfile.TemporaryDirectory(prefix="lazyrag-") as folder:
        copy = Path(folder, posixpath.basename(path))
        try:
            system.get_file(path, str(copy))
            system.invalidate_cache()
            present = file._replace(signature=_signature(system.info(path)))
        except Exception as exc:
            msg = f"{url} cannot be read: {exc}. Check that it exists, and the credentials."
            raise LoadError(msg, path=url) from exc
        if file.signature is not None:
            modified_ns = file.signature.mtime_ns
            os.utime(copy, ns=(modified_ns, modified_ns))
        yield copy, hash_remote(present) == hash_remote(file)
