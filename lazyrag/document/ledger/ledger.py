"""The ledger: which documents there are, which builds were made of them, and which of those are live.

Everything that decides what a reader sees is a row here, and changes in one transaction: a document's new builds become
live together, or not at all. Stores only hold rows; the ledger says which of them count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from lazyrag.document.ledger.builds import BuildTable
from lazyrag.document.ledger.documents import DocumentTable
from lazyrag.document.ledger.groups import GroupTable
from lazyrag.document.ledger.lease import Lease, Program, check_definitions
from lazyrag.document.ledger.place import LedgerPlace
from lazyrag.document.ledger.rows import Flip, NewPart, bury, enter_version, write_part, write_row
from lazyrag.document.ledger.tree import Tree, load_tree
from lazyrag.stores.store_file import StoreFile


class Ledger:
    """One Document's ledger in a store file. Who writes holds its `lease`.

    Args:
        file: The open store file.
        name: Name of the Document.
    """

    def __init__(self, file: StoreFile, name: str) -> None:
        self.file = file
        self._at = LedgerPlace(file, name)
        self.documents = DocumentTable(self._at)
        self.groups = GroupTable(self._at)
        self.builds = BuildTable(self._at)
        self._reading = threading.Lock()
        self._state = Tree(), 0  # what is live, and the counter of removals
        self._seen = -1  # value of file.changed() at which they were read

    @property
    def token(self) -> str:
        """See `LedgerPlace.token`."""
        return self._at.token

    @property
    def lease(self) -> Lease:
        """The right to write."""
        return self._at.lease

    @property
    def tree(self) -> Tree:
        """What is live now."""
        return self.state()[0]

    @property
    def removals(self) -> int:
        """Grows before anything is removed from a store."""
        return self.state()[1]

    def state(self) -> tuple[Tree, int]:
        """What is live now, and the counter of removals, read in one transaction."""
        seen = self.file.changed()
        if seen != self._seen:
            self._refresh(seen)
        return self._state

    def _refresh(self, seen: int) -> None:
        with self._reading:
            self._at.id = self._at.id or self._at.find_row()
            if not self._at.id:
                return
            with self._at.reading() as connection:
                changes, removals = connection.execute(
                    "SELECT changes, removals FROM ledger WHERE id = ?", (self._at.id,)
                ).fetchone()
                tree = self._state[0]
                if changes != tree.changes:
                    tree = load_tree(connection, self._at.id, tree)
            self._state = tree, removals
            self._seen = seen

    def claim(self, definitions: Mapping[str, str]) -> None:
        """Say by which definitions this program works.

        Raises:
            StoreBusyError: If another running program has others.
        """
        with self.file.writing() as connection:
            check_definitions(connection, self._at.id, self._at.program, definitions)

    def unclaim(self) -> None:
        """Take back what this program said of its definitions."""
        with self.file.writing() as connection:
            connection.execute("DELETE FROM program WHERE id = ?", (self._at.program.id,))

    def flip(
        self,
        flips: Sequence[Flip],
        parts: Sequence[NewPart] = (),
        *,
        keep_versions: int = 0,
        partial_groups: Iterable[int] = (),
        partial_spaces: Iterable[int] = (),
        visible: bool = True,
    ) -> None:
        """Make builds live, all of them in one transaction.

        Args:
            flips: What becomes live for each document; what was live for it before is so no longer.
            parts: Parts of lexical indexes that hold the builds.
            keep_versions: How many versions before the present one are kept.
            partial_groups: Groups of other programs, which these documents are missing in from now on.
            partial_spaces: The same for spaces.
            visible: False where only groups and spaces change that nobody sees yet.
        """
        with self._at.writing(durable=True) as connection:
            changes = self._at.next_change(connection) if visible else None
            for one in flips:
                write_row(connection, one, changes)
            connection.executemany("DELETE FROM live WHERE document = ?", [(one.row.id,) for one in flips])
            connection.executemany(
                "INSERT INTO live VALUES (?, ?, ?)",
                [(one.row.id, group, build) for one in flips for group, build in one.builds.items()],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO covered VALUES (?, ?)", [pair for one in flips for pair in one.covered]
            )
            for one in flips:
                if one.root is not None:
                    enter_version(connection, one, keep_versions)
                for document in one.gone:
                    bury(connection, document, "deleted", changes or 0)
            for part in parts:
                if part.arrays is None:
                    self.file.check_there(part.file)
                write_part(connection, part)
            connection.executemany("UPDATE node_group SET whole = 0 WHERE id = ?", [(one,) for one in partial_groups])
            connection.executemany("UPDATE space SET whole = 0 WHERE id = ?", [(one,) for one in partial_spaces])

    def switch(self, groups: Iterable[int], spaces: Iterable[int], dropped: Iterable[int]) -> None:
        """Make groups and spaces live, built for every document, and others not, in one transaction."""
        now = time.time()
        with self._at.writing(durable=True) as connection:
            changes = self._at.next_change(connection)
            for group in dropped:
                connection.execute(
                    "UPDATE node_group SET status = 'dropped', whole = 0, dropped_at = ? WHERE id = ?", (now, group)
                )
                connection.execute("DELETE FROM live WHERE node_group = ?", (group,))
                connection.execute(
                    "DELETE FROM version WHERE root IN (SELECT number FROM build WHERE node_group = ?)", (group,)
                )
            for group in groups:
                [status, parent] = connection.execute(
                    "SELECT status, parent FROM node_group WHERE id = ?", (group,)
                ).fetchone()
                if status == "live":  # readers hold a part of it, and have to look at every document again
                    connection.execute(
                        "UPDATE document SET changed = ? WHERE ledger = ? AND status = 'live'", (changes, self._at.id)
                    )
                elif parent is None:  # another root group: the versions of its documents begin anew
                    connection.execute(
                        "INSERT OR REPLACE INTO version SELECT document.id, version, live.build, ?, content_hash, "
                        "loaded, said, updates FROM live JOIN document ON document.id = live.document "
                        "WHERE live.node_group = ?",
                        (now, group),
                    )
                connection.execute("UPDATE node_group SET status = 'live', whole = 1 WHERE id = ?", (group,))
            for space in spaces:
                # Under another identity the same name had other vectors, or other terms.
                connection.execute(
                    "UPDATE space SET status = 'dropped', whole = 0, dropped_at = ? WHERE status = 'live' AND id <> ? "
                    "AND (node_group, kind, name) = (SELECT node_group, kind, name FROM space WHERE id = ?)",
                    (now, space, space),
                )
                connection.execute("UPDATE space SET status = 'live', whole = 1 WHERE id = ?", (space,))

    def writer(self) -> str:
        """The program that holds the lease; "" for none."""
        with self._at.reading() as connection:
            found = connection.execute(
                "SELECT holder, holder_told FROM ledger WHERE id = ? AND expires_at > ?", (self._at.id, time.time())
            ).fetchone()
        return str(Program.from_json(found[1], found[0])) if found and found[0] else ""

    def announce_removal(self) -> None:
        """Tell readers that rows are about to be removed from stores."""
        with self._at.writing() as connection:
            connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (self._at.id,))
