"""The ledger: what becomes live becomes so all at once, and whoever follows it step by step sees
what is there.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.data.segment import LAZY_ROOT_NAME, child_uids, root_uid
from lazyrag.document import open as opening
from lazyrag.errors import ConfigError, IngestionError, LoadError, StoreError, TransformError
from lazyrag.ingest.indexer import find_waste
from lazyrag.ledger.ledger import Flip, Ledger, NewPart
from lazyrag.ledger.liveness import PartBuilds, TermParts, corrections
from lazyrag.ledger.tables import (
    BuildRow,
    DocumentRow,
    acknowledge_builds,
    begin_builds,
    next_builds,
)
from lazyrag.ledger.tree import Build, Tree, load_tree
from lazyrag.stores.liveness import FOREVER
from lazyrag.stores.sqlite import StoreFile


def register(ledger, identity):
    """Enter a document; returns its row."""
    with ledger.writing() as connection:
        rows = [DocumentRow(0, root_uid(identity), identity)]
        return ledger.documents.register(connection, rows)


def reserve(ledger, count):
    """Reserve build numbers."""
    with ledger.writing() as connection:
        return next_builds(connection, count)


def write(ledger, *rows):
    """Enter builds that a store has acknowledged."""
    with ledger.writing() as connection:
        begin_builds(connection, rows)
        acknowledge_builds(connection, [row.number for row in rows])


class Made:
    """A ledger with a root group, a group below it and a lexical index over that, in a store
    file.
    """

    def __init__(self, file):
        """Make them live and empty."""
        self.file, self.ledger = file, Ledger(file, "default")
        with self.ledger.lease.held():
            self.root = self.open(LAZY_ROOT_NAME, None)
            self.line = self.open("line", self.root)
            self.index, _ = self.ledger.groups.open_index(self.line, "terms", "en", "1", "")
            self.ledger.switch([self.root, self.line], [self.index], [])

    def open(self, name, parent, fingerprint="1", **arguments):
        """A group's row."""
        number, _ = self.ledger.groups.open(
            name,
            parent,
            fingerprint,
            "{}",
            lambda suffix: f"{name}-{fingerprint}{suffix}",
            **arguments,
        )
        return number

    def built(self, identity, count=2, *, is_live=True, **arguments):
        """A document with a root node and so many nodes in the group below; the flip that makes
        them live.
        """
        [row] = register(self.ledger, identity)
        top, below = reserve(self.ledger, 2)
        write(
            self.ledger,
            BuildRow(top, row.id, self.root, None, top, "in", "[1]"),
            BuildRow(below, row.id, self.line, top, top, "in", f"[{count}]"),
        )
        flip = Flip(row, {self.root: top, self.line: below}, ((self.index, below),), top)
        if is_live:
            self.ledger.flip([flip], **arguments)
        return flip

    def part(self, flip):
        """A part of the lexical index that holds a document's nodes."""
        builds = PartBuilds(np.array([flip.builds[self.line]]), np.array([2]))
        lengths = np.array([3, 4], np.int32)
        arrays = {"builds": builds.numbers, "ends": builds.ends, "lengths": lengths}
        name, content = self.file.arrays.write_or_inline(arrays, 1 << 20)
        return NewPart(self.index, name, content, builds, lengths)

    def rows(self, table):
        """How many rows a table has."""
        with self.file.reading() as connection:
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  names of our own


@pytest.fixture
def made(tmp_path):
    """One in a file."""
    with closing(StoreFile(tmp_path / "store.db")) as file:
        yield Made(file)


def identities(tree):
    """The live documents, in order."""
    return [one.identity for one in tree.documents()]


def builds(tree, group):
    """The live builds of a group."""
    return list(tree.builds(tree.groups[group]))


def plain(tree):
    """A tree as values that can be compared, with all that follows from it."""
    return (
        tree.changes,
        list(tree.documents()),
        {
            name: (
                (group.id, group.parent, group.fingerprint, group.collection, group.complete),
                (group.documents, group.nodes, group.filled),
                [chain(build) for build in tree.builds(group)],
                {
                    key: (
                        (index.id, index.collection, index.dimension, index.complete, index.nodes),
                        index.parts,
                    )
                    for key, index in group.indexes.items()
                },
            )
            for name, group in tree.groups.items()
        },
    )


def chain(build):
    """A build and those above it."""
    return (
        []
        if build is None
        else [(build.number, build.document, build.group, build.counts), *chain(build.parent)]
    )


def test_a_flip_is_seen_as_a_whole(made, tmp_path):
    """Documents, builds, index and version appear together, here and to whoever has the file open
    elsewhere.
    """
    with closing(StoreFile(tmp_path / "store.db", read_only=True)) as other:
        reader = Ledger(other, "default")
        assert identities(reader.tree) == []
        with made.ledger.lease.held():
            flips = [made.built(name, is_live=False) for name in ("b", "a")]
            assert identities(made.ledger.tree) == identities(reader.tree) == []
            before = reader.tree.changes
            made.ledger.flip(flips, [made.part(flips[0])])
        for ledger in (made.ledger, reader):
            tree = ledger.tree
            assert tree.changes == before + 1
            assert identities(tree) == ["a", "b"]
            for flip in flips:
                root, line = (
                    tree.build_of(name, flip.row.uid) for name in (LAZY_ROOT_NAME, "line")
                )
                assert (root.number, line.number) == tuple(flip.builds.values())
                assert line.parent is root
                assert line.uids == tuple(child_uids(root_uid(flip.row.identity), "line", [1, 2]))
            [index] = tree.groups["line"].indexes.values()
            [part] = index.parts
            numbers = ledger.parts.builds(part.id).numbers.tolist()
            assert numbers == [flips[0].builds[made.line]]
            assert (part.live, part.tokens, part.dead) == (2, 7, None)
            assert [one.number for one in ledger.documents.versions(flips[0].row.id)] == [1]


def test_a_flip_that_fails_changes_nothing(made):
    """Where its last statement fails, as of an array file that is gone, none of the documents
    before it is live.
    """
    with made.ledger.lease.held():
        made.built("a")
        before, versions = plain(made.ledger.tree), made.rows("version")
        flips = [made.built("a", is_live=False), made.built("b", is_live=False)]
        with pytest.raises(StoreError):
            made.ledger.flip(flips, [made.part(flips[0])._replace(arrays=None)])
        assert plain(made.ledger.tree) == before
        assert made.rows("version") == versions
        assert made.rows("term_part") == 0
        made.ledger.flip(flips, [made.part(flips[0])])
        assert identities(made.ledger.tree) == ["a", "b"]


def test_a_flip_takes_the_place_of_another(made):
    """A document has one live build in each group; what was live is dead, and waits to be
    purged.
    """
    with made.ledger.lease.held():
        first = made.built("a")
        second = made.built("a", count=3)
        [build] = builds(made.ledger.tree, "line")
        assert (build.number, build.size) == (second.builds[made.line], 3)
        dead = [number for number, _, _ in find_waste(made.ledger, time.time()).builds]
        assert dead == sorted(first.builds.values())
        assert find_waste(made.ledger, time.time() - 60).builds == []
        assert made.ledger.documents.all()["a"].version == 2


def test_kept_versions_are_not_dead(made):
    """With keep_versions the builds of so many versions before the live one stay."""
    with made.ledger.lease.held():
        flips = [made.built("a", keep_versions=2) for _ in range(5)]
        dead = {number for number, _, _ in find_waste(made.ledger, time.time()).builds}
        assert dead == {number for flip in flips[:2] for number in flip.builds.values()}
        versions = made.ledger.documents.versions(flips[0].row.id)
        assert [(one.number, one.root) for one in versions] == [
            (number, flip.root) for number, flip in enumerate(flips[2:], 3)
        ]


def test_an_invisible_flip(made):
    """Builds of a group that is still being built change nothing that a reader sees, until it is
    switched.
    """
    with made.ledger.lease.held():
        flip = made.built("a")
        other = made.open("line", made.root, "2")
        [number] = reserve(made.ledger, 1)
        row = BuildRow(number, flip.row.id, other, flip.root, flip.root, "in", "[5]")
        write(made.ledger, row)
        before = plain(made.ledger.tree)
        made.ledger.flip([Flip(flip.row, {**flip.builds, other: number})], visible=False)
        assert plain(made.ledger.tree) == before
        made.ledger.switch([other], [], [made.line])
        [build] = builds(made.ledger.tree, "line")
        assert (made.ledger.tree.groups["line"].id, build.size) == (other, 5)
        assert [number for number, _ in find_waste(made.ledger, time.time()).groups] == [made.line]


def test_a_move_is_one_change(made):
    """The document at the new place appears in the moment in which the one at the old place
    goes.
    """
    with made.ledger.lease.held():
        old = made.built("old")
        new = made.built("new", is_live=False)
        made.ledger.flip([Flip(new.row, new.builds, new.covered, new.root, (old.row.id,))])
    assert identities(made.ledger.tree) == ["new"]
    assert made.ledger.documents.all()["old"].status == "deleted"


def test_a_tombstone_hides_at_once(made):
    """The document, its builds and its versions are gone for every reader; their rows wait to be
    purged.
    """
    with made.ledger.lease.held():
        flip = made.built("a")
        made.built("b")
        made.ledger.documents.tombstone([flip.row.id], "deleted")
        assert identities(made.ledger.tree) == ["b"]
        assert {one.document for one in builds(made.ledger.tree, "line")} == {root_uid("b")}
        assert made.ledger.documents.versions(flip.row.id) == []
        dead = [number for number, _, _ in find_waste(made.ledger, time.time()).builds]
        assert dead == sorted(flip.builds.values())
        made.ledger.builds.delete_build_rows(dead)
        assert made.rows("build") == 2


def test_discarding_takes_all_below(made):
    """A build that is not what it should be goes with all that was made of it, and nothing else."""
    with made.ledger.lease.held():
        flip, other = made.built("a"), made.built("b")
        made.ledger.builds.discard([flip.root])
        tree = made.ledger.tree
        assert (
            {one.document for one in builds(tree, "line")}
            == {one.document for one in builds(tree, LAZY_ROOT_NAME)}
            == {other.row.uid}
        )
        assert made.ledger.builds.missing(made.line) == {flip.row.id}


def test_discarding_the_lower_one(made):
    """What stands above it stays."""
    with made.ledger.lease.held():
        flip = made.built("a")
        made.ledger.builds.discard([flip.builds[made.line]])
        tree = made.ledger.tree
        assert builds(tree, "line") == []
        assert [one.document for one in builds(tree, LAZY_ROOT_NAME)] == [flip.row.uid]


def test_what_an_index_lacks(made):
    """Live builds that a space does not hold are known, and so are those that it holds."""
    with made.ledger.lease.held():
        one, other = made.built("a"), made.built("b")
        assert made.ledger.builds.missing_cover(made.line, made.index) == set()
        assert made.ledger.builds.count_covered(made.index) == 2
        made.ledger.builds.uncover([(made.index, one.builds[made.line])])
        assert made.ledger.builds.missing_cover(made.line, made.index) == {one.row.id}
        assert made.ledger.builds.covered(made.index, range(99)) == {other.builds[made.line]}


def test_numbers_are_given_out_once(made):
    """Of builds, over all ledgers of a file, and also where what had them is gone."""
    other = Ledger(made.file, "other")
    with made.ledger.lease.held(), other.lease.held():
        numbers = [
            *reserve(made.ledger, 3),
            *reserve(other, 2),
            *reserve(made.ledger, 1),
        ]
        assert len(set(numbers)) == 6
        flip = made.built("a")
        made.ledger.builds.delete_build_rows([])
        made.ledger.documents.tombstone([flip.row.id], "deleted")
        made.ledger.builds.delete_build_rows(flip.builds.values())
        assert reserve(made.ledger, 1)[0] > max(flip.builds.values())


def test_ledgers_of_one_file_are_apart(made):
    """A Document of another name sees nothing of this one's, and changes nothing of it."""
    other = Ledger(made.file, "other")
    with made.ledger.lease.held(), other.lease.held():
        flip = made.built("a")
        assert (other.tree.groups, other.documents.all()) == ({}, {})
        before = plain(made.ledger.tree)
        register(other, "a")
        other.documents.set_failures(["a"], [("a", "load", LoadError("no"))])
        other.announce_removal()
        assert plain(made.ledger.tree) == before
        assert made.ledger.documents.failures() == []
        assert made.ledger.documents.all()["a"].id == flip.row.id


def test_a_document_keeps_its_row(made):
    """One that was deleted and comes back has the row and the count of versions that it had."""
    with made.ledger.lease.held():
        flip = made.built("a")
        made.ledger.documents.tombstone([flip.row.id], "deleted")
        again = made.built("a")
        assert again.row.id == flip.row.id
        assert made.ledger.documents.all()["a"].version == 2
        assert identities(made.ledger.tree) == ["a"]


def test_failures(made):
    """Those of documents that were tried are replaced, others stay; identities may be any text."""
    strange = "half \ud83c pair"
    documents = made.ledger.documents
    with made.ledger.lease.held():
        documents.set_failures(
            ["a", strange], [("a", "load", LoadError("no")), (strange, "load", LoadError(strange))]
        )
        documents.set_failures(["b"], [("b", "transform line", TransformError("never"))])
        assert [(one, stage) for one, stage, _, _ in documents.failures()][:2] == [
            ("a", "load"),
            ("b", "transform line"),
        ]
        assert (strange, "load", "LoadError", strange) in documents.failures()
        documents.set_failures(["a"], [])
        assert {one for one, _, _, _ in documents.failures()} == {"b", strange}
        documents.set_failures(["b", strange], [])
        assert documents.failures() == []


def test_groups_by_their_definitions(made):
    """The same definition has the same row; another one, or one that is to be built afresh, has one
    of its own.
    """
    with made.ledger.lease.held():
        assert made.open("line", made.root) == made.line
        other = made.open("line", made.root, "2")
        fresh = made.open("line", made.root, fresh=True)
        assert len({made.line, other, fresh}) == 3
        made.ledger.switch([other], [], [made.line])
        assert made.open("line", made.root) in {made.line, fresh}
        with made.file.reading() as connection:
            collections = [
                one for (one,) in connection.execute("SELECT collection FROM node_group")
            ]
        assert len(set(collections)) == len(collections)


def test_a_dropped_group_that_is_wanted_again(made):
    """It is begun anew, in another collection: what the dropped one was made of may be removed at
    any time.
    """
    with made.ledger.lease.held():
        made.built("a")
        other = made.open("line", made.root, "2")
        made.ledger.switch([other], [], [made.line])
        again = made.open("line", made.root)
        assert again not in {made.line, other}
        assert made.open("line", made.root) == again


def test_a_space_of_another_identity(made):
    """It takes the place of the one of the same name when it is switched, and has no dimension
    until that is set.
    """
    with made.ledger.lease.held():
        first, dimension = made.ledger.groups.open_index(
            made.line, "vectors", "default", "m1", "v1"
        )
        assert dimension == 0
        made.ledger.groups.set_dimension(first, 8)
        made.ledger.switch([], [first], [])
        assert made.ledger.groups.open_index(made.line, "vectors", "default", "m1", "v1") == (
            first,
            8,
        )
        second, dimension = made.ledger.groups.open_index(
            made.line, "vectors", "default", "m2", "v2"
        )
        assert (second != first, dimension) == (True, 0)
        made.ledger.switch([], [second], [])
        indexes = made.ledger.tree.groups["line"].indexes
        assert [index.collection for index in indexes.values() if index.kind == "vectors"] == ["v2"]
        assert find_waste(made.ledger, time.time()).indexes == [(first, "v1")]
        assert made.ledger.groups.vector_collections(made.line) == ["v1"]


def test_removals_are_announced(made, tmp_path):
    """The count that tells readers to read again grows for them too, and what is live stays the
    same object.
    """
    with (
        closing(StoreFile(tmp_path / "store.db", read_only=True)) as other,
        made.ledger.lease.held(),
    ):
        reader = Ledger(other, "default")
        before, tree = reader.removals, reader.tree
        made.ledger.announce_removal()
        assert (reader.removals, made.ledger.removals) == (before + 1, before + 1)
        assert reader.tree is tree


def test_a_ledger_that_is_not_there_yet(tmp_path):
    """A reader that comes before the first writer sees an empty tree, and then what was written."""
    path = tmp_path / "store.db"
    with closing(StoreFile(path)) as file, closing(StoreFile(path, read_only=True)) as other:
        reader = Ledger(other, "default")
        assert (reader.tree.changes, reader.removals, reader.writer()) == (-1, 0, "")
        made = Made(file)
        with made.ledger.lease.held():
            made.built("a")
        assert identities(reader.tree) == ["a"]


def test_a_chain_of_uids():
    """They follow from the counts of nodes below each node, group by group."""
    root = Build(1, "d", LAZY_ROOT_NAME, None, "[1]")
    line = Build(2, "d", "line", root, "[2]")
    word = Build(3, "d", "word", line, "[0, 3]")
    assert root.uids == ("d",)
    first, second = line.uids
    assert word.uids == tuple(child_uids(second, "word", [1, 2, 3]))
    assert first != second
    assert [one.size for one in (root, line, word)] == [1, 2, 3]
    assert word.keys == [f"{uid}-3" for uid in word.uids]
    assert Build(4, "d", "word", line, "[0, 0]").size == 0


GROUPS = ("line", "word")
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write",
                "write",
                "write",
                "remove",
                "move",
                "text",
                "delete",
                "metadata",
                "define",
                "define",
                "ask",
                "ask",
                "back",
                "repair",
                "restart",
            ]
        ),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=8,
)


class World:
    """A Document, and all that one can do with it."""

    def __init__(self, root):
        """A folder with one file, and a store."""
        self.dataset, self.store = root / "dataset", root / "store.db"
        self.dataset.mkdir()
        (self.dataset / "keep.txt").write_text("always here")
        self.docs = self.open()
        self.widths = {"line": 1, "word": 1}

    def open(self):
        """A Document with two groups, one above the other."""
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(self.store)}}}
        return Document(self.dataset, store_conf=conf, embed=embed, keep_versions=1, workers=1)

    def define(self):
        """Define the groups as they are at present."""
        line, word = self.widths["line"], self.widths["word"]
        self.docs.create_node_group("line", transform=lambda text: [text[::line]], replace=True)
        self.docs.create_node_group(
            "word", transform=lambda text: text.split()[:word], parent="line", replace=True
        )

    def do(self, what, one, other):
        """One operation; those that cannot be done now do nothing."""
        docs, path = self.docs, self.dataset / f"{one}.txt"
        works = {
            "write": lambda: path.write_text(f"text {other} " * (other + 1)),
            "remove": lambda: path.unlink(missing_ok=True),
            "move": lambda: path.exists() and path.replace(self.dataset / f"{other}.txt"),
            "text": lambda: docs.add_texts({f"note {one}": f"words {other}"}),
            "delete": lambda: docs.delete_files([f"note {one}" if other % 2 else path.name]),
            "metadata": lambda: docs.update_metadata({path.name: {"x": other}}),
            "define": lambda: self.redefine("line" if one % 2 else "word", other + 1),
            "ask": lambda: Retriever(
                docs, GROUPS[one % 2], **({"similarity": "bm25"} if other % 2 else {})
            )("text"),
            "back": lambda: docs.versions.rollback(path.name),
            "repair": docs.maintenance.repair,
            "restart": self.restart,
        }
        with suppress(ConfigError, IngestionError):
            works[what]()
        self.docs.sync(max_deleted=1)

    def redefine(self, name, width):
        """Define a group otherwise."""
        self.widths[name] = width
        self.define()

    def restart(self):
        """Go on in a new Document."""
        self.docs.close()
        self.docs = self.open()
        self.define()


def mistakes(connection, parts):
    """What is counted or marked otherwise than the intervals of builds and documents say."""
    groups = connection.execute("SELECT id FROM node_group WHERE status <> 'dropped'").fetchall()
    for (group,) in groups:
        yield from (one.problem for one in corrections(connection, parts, group))
    query = "SELECT identity FROM document WHERE (status = 'live') <> (until = ?)"
    yield from connection.execute(query, (FOREVER,)).fetchall()
    query = (
        "SELECT document, node_group, count(*) FROM build WHERE until = ?"
        " GROUP BY document, node_group HAVING count(*) > 1"
    )
    yield from connection.execute(query, (FOREVER,)).fetchall()


def live_in(connection, table, changes):
    """What is live in one state."""
    column = {"build": "number", "document": "id"}[table]
    query = f"SELECT {column} FROM {table} WHERE since <= ? AND until > ?"  # noqa: S608  names of our own
    return {number for (number,) in connection.execute(query, (changes, changes))}


class States:
    """What was live in each state, as long as a reader of that state may ask for it."""

    def __init__(self):
        """None yet."""
        self.removals, self.states = -1, {}

    def check(self, connection):
        """Ask for what is live in each of them; then remember the present one."""
        changes, removals = connection.execute("SELECT changes, removals FROM ledger").fetchone()
        if removals != self.removals:
            self.removals, self.states = removals, {}
        for earlier, (documents, builds) in self.states.items():
            assert live_in(connection, "document", earlier) == documents
            assert live_in(connection, "build", earlier) >= builds
        live = connection.execute(
            "SELECT number FROM build JOIN node_group ON id = node_group"
            " WHERE until = ? AND node_group.status = 'live'",
            (FOREVER,),
        )
        documents = connection.execute("SELECT id FROM document WHERE status = 'live'")
        self.states[changes] = {one for (one,) in documents}, {one for (one,) in live}


def embed(text):
    """Two numbers."""
    return [float(len(text)), 1.0]


@pytest.mark.slow
@settings(max_examples=15)
@given(OPERATIONS)
def test_following_step_by_step(tmp_path_factory, operations):
    """Whatever is done, a tree that was brought up to date at any steps equals one that is read
    from nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_GRACE_S", 0.0)
        world = World(tmp_path_factory.mktemp("world"))
        world.define()
        always, now_and_then = Tree(), Tree()
        states = States()
        try:
            with closing(StoreFile(world.store, read_only=True)) as file:
                for number, operation in enumerate(operations):
                    world.do(*operation)
                    with file.reading() as connection:
                        assert list(mistakes(connection, TermParts(file))) == []
                        states.check(connection)
                        fresh = load_tree(connection, 1, Tree(), file.reading)
                        always = load_tree(connection, 1, always, file.reading)
                        assert plain(always) == plain(fresh)
                        if number % 3 == 2 or number == len(operations) - 1:
                            now_and_then = load_tree(connection, 1, now_and_then, file.reading)
                            assert plain(now_and_then) == plain(fresh)
            assert world.docs.maintenance.verify() == ()
        finally:
            world.docs.close()
