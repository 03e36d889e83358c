"""Files of embedded stores that do not flush them: mark them until we have, since a power cut may tear them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lazyrag.storage.arrays import sync_folder


def boot_id() -> str:
    """An id of the time since the machine was started; "" where the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


@contextmanager
def flushed(path: str | None, writer: str) -> Iterator[None]:
    """Mark a store's file or folder as unflushed while it is written, then flush it.

    Args:
        path: Of the store; None for one that flushes what it writes.
        writer: Unique id of the writer: others may write meanwhile.
    """
    boot = boot_id() if path is not None else ""
    if not boot:  # a power cut could not be told from a kill
        yield
        return
    mark = Path(f"{path}.unflushed-{writer}")
    with mark.open("w", encoding="ascii") as file:
        file.write(boot)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(mark.parent)
    try:
        yield
    finally:
        root = Path(f"{path}")
        for one in (root, *root.rglob("*")):
            with suppress(FileNotFoundError):  # a temporary file of the store
                if one.is_file() or one.is_dir():
                    sync_folder(one)
        sync_folder(root.parent)
        mark.unlink()
        sync_folder(root.parent)


def torn_marks(path: str) -> list[Path]:
    """Marks of writers that a power cut ended."""
    boot = boot_id()
    marks = Path(path).parent.glob(f"{Path(path).name}.unflushed-*") if boot else ()
    return [mark for mark in marks if mark.read_text(encoding="ascii") != boot]
