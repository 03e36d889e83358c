"""How the test classes of both contracts make their stores over store files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lazyrag.stores.sqlite import StoreFile


class OverStoreFiles:
    """Makes stores of the `store_class` of a test class over store files, all closed at the end of
    the test.
    """

    store_class: type

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        """The folder for store files is this test's own."""
        self.folder, self.opened = tmp_path, []
        yield
        for file in self.opened:
            file.close()

    def over(self, path: Path | None):
        """A new store over the store file at a path, or over one in memory."""
        self.opened.append(StoreFile(path))
        return self.store_class(self.opened[-1])


class InFiles(OverStoreFiles):
    """Stores that last and are shared."""

    def make_store(self):
        """A new store in a new file."""
        return self.over(self.folder / f"{len(self.opened)}.db")

    def reopen_store(self, store):
        """The same file, opened by the next program."""
        return self.over(store.file.path)

    def share_store(self, store):
        """The same file, opened by another program at the same time."""
        return self.over(store.file.path)


class InMemory(OverStoreFiles):
    """Stores that neither last nor are shared."""

    def make_store(self):
        """A new store."""
        return self.over(None)
