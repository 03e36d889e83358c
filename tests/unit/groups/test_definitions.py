"""Whether what is live is what the present definitions would give: across processes, and within
one.
"""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.groups.node_group import (
    Definitions,
    GroupGraph,
    GroupOptions,
    built_in_groups,
    embed_identity,
    make_group,
    schema_digest,
)
from lazyrag.ledger.tree import LiveGroup, Tree
from tests.interpreter import python

PROGRAM = """
import json, threading
from lazyrag import Document
from lazyrag.data.fields import DataType, DocField

WIDTH = 40

def lines(text):
    # comments and layout do not count
    return [line[:WIDTH] for line in text.splitlines()]

class Client:
    def __init__(self):
        self.connection = threading.Lock()

class Asking:
    def __init__(self, client, model):
        self.client = client
        self.model = model
    def __call__(self, text):
        return [text]

docs = Document(doc_fields={"year": DocField(DataType.INT32)})
docs.create_node_group("line", transform=lines)
docs.create_node_group("word", transform=str.split, parent="line")
docs.create_node_group("chunk", transform="SentenceSplitter", chunk_size=64, chunk_overlap=8)
docs.create_node_group("asked", transform=Asking(Client(), "small"))
docs.create_node_group("set", transform=lambda text: [one for one in text.split() if one not in {"a", "b", "c", "d"}])
print(json.dumps(docs.reader.indexer.definitions.all_fingerprints(), sort_keys=True))
"""


EDITS = {
    "a comment": ("# comments and layout do not count", "# another comment", set()),
    "layout": ("    return [line[:WIDTH]", "    return   [ line[:WIDTH]", set()),
    "a constant": ("WIDTH = 40", "WIDTH = 41", {"line", "word"}),
    "code": ("text.splitlines()]", "text.splitlines(True)]", {"line", "word"}),
    "a built-in function": ("transform=str.split", "transform=str.splitlines", {"word"}),
    "a parameter": ("chunk_size=64", "chunk_size=65", {"chunk"}),
    "an attribute": ('"small"', '"large"', {"asked"}),
}


def fingerprints(folder, *sources):
    """The fingerprints of programs' groups, as a fresh interpreter finds them."""
    for number, source in enumerate(sources):
        (folder / f"program{number}.py").write_text(source)
    paths = [str(folder / f"program{number}.py") for number in range(len(sources))]
    done = python("-c", f"import runpy\nfor path in {paths!r}: runpy.run_path(path)")
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """The fingerprints before and after each edit."""
    programs = [PROGRAM, *(PROGRAM.replace(old, new) for old, new, _ in EDITS.values())]
    assert len(set(programs)) == len(EDITS) + 1
    before, *after = fingerprints(tmp_path_factory.mktemp("edited"), *programs)
    return before, dict(zip(EDITS, after, strict=True))


@pytest.fixture
def graph():
    """A graph with a group, and one below it, besides the built-in ones."""
    made = GroupGraph(built_in_groups())
    made.define(group("line", lambda text: text.splitlines()), replace=False)
    made.define(group("word", lambda text: text.split(), parent="line"), replace=False)
    return made


def group(name, transform, parent=LAZY_ROOT_NAME, *, version=None):
    """A definition."""
    return make_group(name, transform, parent, {}, GroupOptions(version=version))


def definitions(graph, fields=None, name="default"):
    """What they are to a ledger."""
    return Definitions(name, str, graph, make_schema(fields))


def live(name, fingerprint):
    """A live group of a fingerprint."""
    return LiveGroup(1, name, LAZY_ROOT_NAME, fingerprint, f"c-{name}", complete=True)


@pytest.mark.slow
def test_processes_agree(edited, tmp_path):
    """Two interpreters give every group the same fingerprint, whatever their hashes of texts and
    addresses are.
    """
    before, _ = edited
    assert set(before) >= {LAZY_ROOT_NAME, "line", "word", "chunk", "asked", "set", "FineChunk"}
    assert fingerprints(tmp_path, PROGRAM) == [before]


@pytest.mark.sample(3)
@pytest.mark.parametrize("edit", EDITS)
def test_what_an_edit_changes(edited, edit):
    """Fingerprints change for the edited group and those below it; for none where only layout or
    comments did.
    """
    before, after = edited
    assert {name for name in before if before[name] != after[edit][name]} == EDITS[edit][2]


def test_other_fields_change_all(graph):
    """Nodes carry the values of fields, so that other fields are other groups, from the root on."""
    plain, other = definitions(graph), definitions(graph, {"year": DocField(DataType.INT32)})
    changed = {
        name
        for name, told in plain.all_fingerprints().items()
        if told != other.all_fingerprints()[name]
    }
    assert changed == {LAZY_ROOT_NAME, *graph}


def test_the_order_of_fields_does_not_matter():
    """Fields are a mapping."""
    one, other = DocField(DataType.INT32), DocField(DataType.VARCHAR, max_size=9)
    first, second = make_schema({"a": one, "b": other}), make_schema({"b": other, "a": one})
    assert schema_digest(first) == schema_digest(second)
    assert schema_digest(first) != schema_digest(
        make_schema({"a": one, "b": DocField(DataType.VARCHAR, max_size=8)})
    )
    assert schema_digest(first) != schema_digest(
        make_schema({"a": DocField(DataType.INT32, default_value=1), "b": other})
    )


def test_the_name_of_the_document_does_not_matter(graph):
    """It tells collections apart, and no definitions."""
    one, other = definitions(graph), definitions(graph, name="other")
    assert one.all_fingerprints() == other.all_fingerprints()
    assert one.collections("line", "1")("") != other.collections("line", "1")("")


def test_collections_differ(graph):
    """By group, by definition, by embed key, by suffix."""
    told = definitions(graph)
    names = {
        told.collections("line", "1")(""),
        told.collections("line", "2")(""),
        told.collections("word", "1")(""),
        told.collections("line", "1", "default")(""),
        told.collections("line", "1", "other")(""),
        told.collections("line", "1")(".2"),
    }
    assert len(names) == 6


def test_what_is_current(graph):
    """A live group is current while its definition, and those above it, are what it was made by."""
    told = definitions(graph)
    tree = Tree(
        groups={
            name: live(name, told.fingerprint(name)) for name in (LAZY_ROOT_NAME, "line", "word")
        }
    )
    assert set(told.current(tree)) == {LAZY_ROOT_NAME, "line", "word"}
    graph.define(group("word", lambda text: text.split(","), parent="line"), replace=True)
    assert set(told.current(tree)) == {LAZY_ROOT_NAME, "line"}
    graph.define(group("line", lambda text: [text]), replace=True)
    assert set(told.current(tree)) == {LAZY_ROOT_NAME}


def test_what_is_not_defined(graph):
    """A live group that this program does not define is not current; its fingerprint cannot be
    asked.
    """
    told = definitions(graph)
    assert not told.is_defined("other")
    assert not told.is_current(live("other", "f"))
    assert "other" not in told.all_fingerprints()
    with pytest.raises(NotRegisteredError, match="'other'"):
        told.fingerprint("other")


def test_a_group_whose_parent_is_missing(graph):
    """It is not defined, until its parent is."""
    graph.define(group("below", lambda text: [text], parent="word"), replace=False)
    told = definitions(graph)
    assert told.is_defined("below")
    assert [one.name for one in told.needed("below")] == ["below", "word", "line"]
    assert told.needed(LAZY_ROOT_NAME) == []


def test_definitions_in_a_circle(graph):
    """A group that would stand above itself is refused, or is no definition."""
    try:
        graph.define(group("line", lambda text: [text], parent="word"), replace=True)
    except ConfigError:
        return
    assert not definitions(graph).is_defined("line")


def asking(client):
    """A transform whose client no fingerprint sees."""
    return lambda text: [next(client, text)]


def test_what_no_fingerprint_sees_counts_in_one_process(graph):
    """Another client under the same code is another definition here and now; it is not stored
    anywhere.
    """
    first, second = group("asked", asking(iter("a"))), group("asked", asking(iter("b")))
    assert first.fingerprint.value == second.fingerprint.value
    graph.define(first, replace=False)
    told = definitions(graph)
    made = live("asked", told.fingerprint("asked"))
    assert told.is_current(made)
    graph.define(second, replace=True)
    assert told.fingerprint("asked") == made.fingerprint
    assert told.is_replaced("asked")
    assert not told.is_current(made)
    told.accept("asked", told.revisions("asked"))
    assert told.is_current(made)


def test_what_fingerprints_see_all_of(graph):
    """Plain code is seen as a whole; what holds a client is not, unless a version speaks for it."""
    graph.define(group("asked", asking(iter("a"))), replace=False)
    graph.define(group("below", lambda text: [text], parent="asked"), replace=False)
    graph.define(group("spoken for", asking(iter("a")), version="1"), replace=False)
    told = definitions(graph)
    assert {name for name in graph if any(told.revisions(name))} == {"asked", "below"}


def test_another_process_takes_what_is_stored_for_its_own(graph):
    """Revisions begin anew with each process: only fingerprints decide about what another one
    made.
    """
    graph.define(group("asked", asking(iter("a"))), replace=False)
    graph.define(group("asked", asking(iter("b"))), replace=True)
    later = definitions(graph)
    made = live("asked", definitions(graph).fingerprint("asked"))
    assert later.is_current(made)
    assert later.fingerprint("asked") == made.fingerprint


def test_the_same_definition_again(graph):
    """Defining a group once more in the same words replaces nothing."""
    told = definitions(graph)
    before, revisions = told.fingerprint("line"), told.revisions("word")
    graph.define(group("line", lambda text: text.splitlines()), replace=False)
    assert (told.fingerprint("line"), told.revisions("word")) == (before, revisions)
    assert not told.is_replaced("word")


def test_nothing_is_defined_meanwhile(graph):
    """While definitions are held no other thread changes them, and this one still may."""
    told = definitions(graph)
    with told.graph.locked(), ThreadPoolExecutor(1) as pool:
        graph.define(group("more", lambda text: [text]), replace=False)
        assert told.is_defined("more")
        assert not pool.submit(may_define, graph).result()
        assert not pool.submit(may_define, GroupGraph(graph)).result()
    assert may_define(graph)


def may_define(graph):
    """Whether this thread may define groups."""
    with graph.locked(0.01) as is_free:
        return is_free


def vector(text):
    """An embed callable."""
    return [float(len(text))]


def other_vector(text):
    """Another one."""
    return [float(len(text)), 1.0]


class Model:
    """An embed callable with something to hold."""

    def __init__(self, name):
        """Hold it."""
        self.name = name

    def __call__(self, text):
        """One number."""
        return [float(len(text))]


def test_which_model_embeds():
    """What it says of itself counts before all; then its name, its code and the settings that it
    holds.
    """
    assert embed_identity(vector, "m-1") == embed_identity(other_vector, "m-1") == "m-1"
    assert embed_identity(vector, "") != embed_identity(other_vector, "")
    assert (
        embed_identity(Model("a"), "")
        == embed_identity(Model("a"), "")
        != embed_identity(Model("b"), "")
    )
    assert embed_identity(Model("a").__call__, "") != embed_identity(Model("b").__call__, "")
    assert embed_identity(functools.partial(vector, "x"), "") != embed_identity(
        functools.partial(vector, "y"), ""
    )
    assert embed_identity(len, "") == embed_identity(len, "") != embed_identity(max, "")


@pytest.mark.slow
def test_the_identity_of_a_callable_in_another_process():
    """It is the same there, and another one where it closes over something else."""
    code = """
from lazyrag.groups.node_group import embed_identity
def made(size):
    def embed(text):
        return [float(len(text)), size]
    return embed
print(embed_identity(made(1), "") == embed_identity(made(2), ""), embed_identity(made(1), ""))
"""
    first, second = python("-c", code).stdout, python("-c", code).stdout
    assert first == second
    assert first.startswith("False code:")
