"""`Document.restricted`: nothing outside the scope leaves it, by whatever way it is asked."""

from __future__ import annotations

import pytest

from lazyrag import (
    And,
    Condition,
    DataType,
    DocField,
    DocNode,
    Document,
    IngestionWarning,
    Or,
    Retriever,
    register_similarity,
)
from lazyrag.errors import ConfigError, IngestionError, NotRegisteredError, StaleNodeError
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import segment_stores, vector_stores

FILES = {
    "public/a.txt": "green tea in spring\nblack tea in autumn",
    "public/b.txt": "green coffee in spring",
    "secret/c.txt": "green tea is the secret\nanother secret in spring",
    "secret/d.txt": "spring water is secret",
}
FIELDS = {"access": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}


def embed(text):
    """A vector for a text."""
    return [float(text.count(one)) + 0.1 for one in "aegst"]


@pytest.fixture
def docs(folder):
    """Two public and two secret files in lines and words."""
    made = Document(
        folder(FILES),
        embed=embed,
        doc_fields=FIELDS,
        file_metadata=lambda path: {
            "access": path.parent.name,
            "year": 2000 + "abcd".index(path.stem),
        },
    )
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group("word", transform=str.split, parent="line")
    return made


@pytest.fixture
def public(docs):
    """The same Document, of which only the public files can be seen."""
    return docs.restricted({"access": ["public"]})


def secret(nodes) -> list:
    """The nodes that must not be seen, of those that are seen."""
    return [node for node in nodes if "secret" in node.text or "secret" in node.path]


@pytest.mark.parametrize("group", ["lazyllm_root", "line", "word", "FineChunk"])
def test_get_nodes(docs, public, group):
    """get_nodes gives what lies in the scope, in the same order, and nothing else, of every
    group.
    """
    every, seen = docs.get_nodes(group), public.get_nodes(group)
    assert seen == [node for node in every if node.path.startswith("public/")]
    assert 0 < len(seen) < len(every)


def test_get_nodes_by_what_lies_outside(docs, public):
    """Asking for nodes outside the scope by uid, document, number or filter finds nothing."""
    outside = docs.get_nodes("line", filters={"access": ["secret"]})
    assert outside
    assert public.get_nodes("line", uids=[node.uid for node in outside]) == []
    assert public.get_nodes("line", document_ids=[node.document_id for node in outside]) == []
    assert public.get_nodes("line", filters={"access": ["secret"]}) == []
    assert public.get_nodes("line", filters=Condition("access", "ne", "public")) == []
    assert secret(public.get_nodes("line", limit=100)) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine"])
@pytest.mark.parametrize("group", ["lazyllm_root", "line", "word"])
def test_hits(docs, public, similarity, group):
    """No similarity finds anything outside the scope, and all that it finds inside is found, up to
    topk.
    """
    every = Retriever(docs, group, similarity=similarity, topk=100)("secret green tea in spring")
    seen = Retriever(public, group, similarity=similarity, topk=100)("secret green tea in spring")
    assert secret(every)
    assert sorted(hit.uid for hit in seen) == sorted(
        hit.uid for hit in every if hit.path.startswith("public/")
    )
    assert secret(Retriever(public, group, similarity=similarity, topk=1)("secret")) == []


def test_topk_counts_what_is_in_scope(public):
    """The best hits outside the scope take no places away from those inside."""
    hits = Retriever(public, "line", similarity="bm25", topk=3)("secret green tea spring")
    assert len(hits) == 3
    assert secret(hits) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "filters",
    [
        {"access": ["secret"]},
        {"access": ["secret", "public"]},
        Condition("access", "ne", "public"),
        Condition("year", "ge", 0) | Condition("access", "eq", "secret"),
        ~Condition("access", "eq", "public"),
        Condition("access", "exists", False),
        And(),
    ],
)
@pytest.mark.parametrize("similarity", ["bm25", "cosine"])
def test_a_question_s_own_filters_cannot_widen_the_scope(public, similarity, filters):
    """Whatever filters a question brings, they only take away."""
    assert (
        secret(
            Retriever(public, "line", similarity=similarity, topk=100)(
                "secret spring", filters=filters
            )
        )
        == []
    )
    assert secret(public.get_nodes("line", filters=filters)) == []


@pytest.mark.parametrize("mode", ["text", "embedding"])
@pytest.mark.parametrize("batch", [True, False])
def test_own_similarities_see_nothing_outside(docs, public, mode, batch):
    """A user's own similarity function is not even shown nodes outside the scope, nor can it reach
    them from others.
    """
    shown: list[DocNode] = []

    def look(query, node):
        shown.extend([node, node.root, *([] if node.parent is None else [node.parent])])
        return 1.0

    def look_at_all(query, nodes):
        return [(node, look(query, node)) for node in nodes]

    register_similarity(look_at_all if batch else look, mode=mode, batch=batch, name="look")
    assert len(Retriever(public, "line", similarity="look", topk=100)("spring")) == 3
    assert {node.path for node in shown} == {"public/a.txt", "public/b.txt"}
    shown.clear()
    assert len(Retriever(docs, "line", similarity="look", topk=100)("spring")) == 6
    assert secret(shown)


def test_an_own_similarity_that_returns_other_nodes(docs, public):
    """A similarity function that smuggles in a node from outside the scope is an error."""
    [outside, *_] = docs.get_nodes("line", filters={"access": "secret"})

    @register_similarity(batch=True)
    def smuggle(query, nodes):
        return [(outside, 1.0)]

    with pytest.raises(Exception, match="each of the given nodes at most once"):
        Retriever(public, "line", similarity="smuggle")("spring")


def test_several_documents_with_one_scope(docs, public, tmp_path):
    """Asked together with another Document, the scope holds for its own one only."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "e.txt").write_text("no secret here", encoding="utf-8")
    other = Document(tmp_path / "other")
    other.create_node_group("line", transform=str.splitlines)
    hits = Retriever([public, other], "line", similarity="bm25", topk=100)("secret spring")
    assert {hit.path for hit in hits} == {"public/a.txt", "public/b.txt", "e.txt"}


def test_targets(public):
    """Hits that are mapped to another group stay in the scope."""
    for target in ("lazyllm_root", "line", "FineChunk"):
        hits = Retriever(public, "word", similarity="bm25", topk=100, target=target)("spring green")
        assert hits
        assert secret(hits) == []


def test_find_from_nodes_outside(docs, public):
    """Nodes from outside the scope, which someone kept, lead to nothing inside a restricted
    view.
    """
    outside = docs.get_nodes("line", filters={"access": "secret"})
    assert docs.find("word")(outside)
    assert public.find("word")(outside) == []
    assert public.find("lazyllm_root")(outside) == []
    assert public.find("word")(outside) == []
    assert public.find("line")(outside) == []


def test_find_inside(docs, public):
    """Ways through the tree inside the scope are as they are without one."""
    lines = public.get_nodes("line")
    assert public.find("word")(lines) == docs.find("word")(lines)
    assert public.find("lazyllm_root")(lines) == public.get_nodes()


@pytest.fixture
def labelled(folder):
    """Lines that carry their own access where they begin with it."""

    def lines(text):
        for line in text.splitlines():
            own, mark, rest = line.partition(": ")
            yield DocNode(text=rest if mark else line, metadata={"access": own} if mark else {})

    made = Document(
        folder(
            {
                "a.txt": "open words\nsecret: hidden words",
                "c.txt": "closed words\npublic: shared words",
            }
        ),
        embed=embed,
        doc_fields=FIELDS,
        file_metadata={"a.txt": {"access": "public"}, "c.txt": {"access": "secret"}},
    )
    made.create_node_group("line", transform=lines)
    made.create_node_group("word", transform=str.split, parent="line")
    return made


def test_a_node_s_own_field_decides(labelled):
    """A node is in the scope by its own value of the field where it has one."""
    public = labelled.restricted({"access": "public"})
    assert [node.text for node in public.get_nodes("line")] == ["open words", "shared words"]
    for similarity in ("bm25", "cosine"):
        hits = Retriever(public, "line", similarity=similarity)("words")
        assert {hit.text for hit in hits} == {"open words", "shared words"}


def test_parents_and_roots_outside_the_scope(labelled):
    """A node in the scope whose parent or root lies outside says so instead of giving it."""
    public = labelled.restricted({"access": "public"})
    shared = public.get_nodes("line")[1]
    for way in (lambda: shared.parent, lambda: shared.root):
        with pytest.raises(StaleNodeError, match="hides"):
            way()
    assert public.get_nodes("line")[0].parent.path == "a.txt"


def test_children_outside_the_scope(labelled):
    """A node's children are those in the scope."""
    public = labelled.restricted({"access": "public"})
    public.activate_group("line")
    [root] = public.get_nodes()
    assert [node.text for node in root.children["line"]] == ["open words"]
    assert [node.text for node in labelled.get_nodes()[0].children["line"]] == [
        "open words",
        "hidden words",
    ]


def test_ways_over_a_node_outside_the_scope(labelled):
    """find goes over a node outside the scope without giving it, and ends only inside."""
    public = labelled.restricted({"access": "public"})
    shared = public.get_nodes("line")[1]
    assert public.find("lazyllm_root")([shared]) == []
    assert [node.text for node in public.find("line")(public.get_nodes())] == ["open words"]
    assert Retriever(public, "line", similarity="bm25", target="lazyllm_root")("shared") == []


def test_where_a_hit_stands_without_its_root(labelled):
    """A hit whose document lies outside the scope can be shown, without a word of the document."""
    public = labelled.restricted({"access": "public"})
    [hit] = Retriever(public, "line", similarity="bm25")("shared")
    assert (hit.text, hit.path) == ("shared words", "c.txt")
    assert isinstance(hit.location, str)
    assert "closed" not in repr(hit)
    [row] = Retriever(public, "line", similarity="bm25", output_format="dict")("shared")
    assert "closed" not in str(row)


def test_restricting_twice_narrows(docs, public):
    """Restricting a restricted view leaves what satisfies both filters, in whichever order."""
    first = public.restricted({"year": [2000, 2002]})
    second = docs.restricted({"year": [2000, 2002]}).restricted({"access": ["public"]})
    for view in (first, second):
        assert [node.path for node in view.get_nodes()] == ["public/a.txt"]
        assert {
            hit.path for hit in Retriever(view, "line", similarity="bm25", topk=100)("spring")
        } == {"public/a.txt"}


def test_restricting_cannot_widen(public):
    """A second filter that names what the first one excludes leaves nothing."""
    for filters in ({"access": ["secret"]}, Condition("access", "ne", "public")):
        assert public.restricted(filters).get_nodes("line") == []


@pytest.mark.parametrize("filters", [None, {}, And(), And(And(), Or()), ~Or()], ids=repr)
def test_a_view_that_hides_nothing_is_refused(docs, filters):
    """A rule that was not found must not open everything."""
    with pytest.raises(ConfigError, match="condition"):
        docs.restricted(filters)


def test_the_document_itself_stays_as_it_was(docs, public):
    """Making a restricted view changes nothing about the Document it was made of."""
    assert secret(public.get_nodes("line")) == []
    assert secret(docs.get_nodes("line"))


def test_nodes_remember_their_view(docs, public):
    """Nodes keep to the view they came from, also when the Document itself is asked meanwhile."""
    [node, *_] = public.get_nodes("line")
    docs.get_nodes("word")
    assert secret([node.root, node.parent, *node.root.children["line"]]) == []
    assert len(node.root.children["line"]) == 2


def test_groups_defined_on_a_view(docs, public):
    """A group that is defined on a view is the Document's; each sees of it what it may."""
    public.create_node_group("upper", transform=str.upper)
    assert len(public.get_nodes("upper")) == 2
    assert len(docs.get_nodes("upper")) == 4
    with pytest.raises(NotRegisteredError):
        Document().get_nodes("upper")


def test_a_view_is_a_document(folder):
    """A view of a subclass's instance is of that class, with its name and groups."""

    class Notes(Document):
        """A kind of Document."""

    view = Notes(folder(FILES), name="notes").restricted({"file_type": ".txt"})
    assert isinstance(view, Notes)
    assert (view.name, len(view.get_nodes())) == ("notes", 4)


@pytest.mark.parametrize(
    "filters",
    [{"acess": ["public"]}, {"year": ["new"]}, "public", 5, Condition("year", "contains", 2)],
)
def test_wrong_filters_are_refused_at_once(docs, filters):
    """A filter that names an unknown field or does not fit its type is refused when the view is
    made.
    """
    with pytest.raises(ConfigError):
        docs.restricted(filters)


def test_a_view_made_before_the_first_use(docs):
    """A view that is asked first builds the Document; it reports what became of the files that it
    shows.
    """
    view = docs.restricted({"access": "public"})
    docs.create_node_group(
        "picky", transform=lambda text: {"green coffee in spring": "fine"}.get(text) or text.no_such
    )
    with pytest.warns(IngestionWarning, match="picky"):
        assert [node.text for node in view.get_nodes("picky")] == ["fine"]
    assert len(docs.last_report.failed) == 3
    assert view.last_report.added == ("public/a.txt", "public/b.txt")
    assert [failure.path for failure in view.last_report.failed] == ["public/a.txt"]


def test_what_fails_out_of_sight_is_not_told(folder):
    """A view whose hidden file breaks names it neither in its report nor in its errors."""
    docs = Document(folder({"secret.pdf": b"broken"}))
    view = docs.restricted({"file_type": ".txt"})
    assert view.get_nodes() == view.get_nodes("FineChunk") == []
    assert Retriever(view, "FineChunk", "bm25")("tea") == []
    view.activate_group("CoarseChunk")
    with pytest.raises(IngestionError, match=r"secret\.pdf"):
        docs.get_nodes()
    assert view.last_report.failed == ()
    assert [failure.path for failure in docs.last_report.failed] == ["secret.pdf"]


@pytest.fixture
def blocks(folder):
    """Blocks that may carry their own access, lines of blocks, words of lines."""

    def split(text):
        for block in text.split("\n\n"):
            own, mark, rest = block.partition(": ")
            yield DocNode(text=rest if mark else block, metadata={"access": own} if mark else {})

    made = Document(
        folder(
            {
                "a.txt": "open tea\nopen cup\n\nsecret: hidden tea\nhidden cup",
                "c.txt": "closed tea\n\npublic: shared tea\nshared cup",
            }
        ),
        embed=embed,
        doc_fields=FIELDS,
        file_metadata={"a.txt": {"access": "public"}, "c.txt": {"access": "secret"}},
    )
    made.create_node_group("block", transform=split)
    made.create_node_group("line", transform=str.splitlines, parent="block")
    made.create_node_group("word", transform=str.split, parent="line")
    return made


SEEN = ["open tea", "open cup", "shared tea", "shared cup"]


@pytest.mark.slow
def test_fields_are_inherited_from_the_node_above(blocks):
    """A filter on a field takes the nodes of a group by the value of the block they were made of,
    at any depth.
    """
    assert [node.text for node in blocks.get_nodes("line", filters={"access": "public"})] == SEEN
    words = blocks.get_nodes("word", filters=Condition("access", "eq", "secret"))
    assert [node.text for node in words] == "hidden tea hidden cup closed tea".split()
    hits = Retriever(blocks, "line", similarity="bm25", topk=10)(
        "cup", filters={"access": "secret"}
    )
    assert [hit.text for hit in hits] == ["hidden cup"]


@pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine"])
def test_what_stands_beneath_a_hidden_node_is_hidden(blocks, similarity):
    """No line beneath a hidden block leaves a view, and those beneath a visible block do whatever
    their file is.
    """
    public = blocks.restricted({"access": "public"})
    hits = Retriever(public, "line", similarity=similarity, topk=10)("tea cup")
    assert sorted(hit.text for hit in hits) == sorted(SEEN)
    assert [node.text for node in public.get_nodes("line")] == SEEN
    assert [node.text for node in public.get_nodes("word")] == " ".join(SEEN).split()


def test_the_ways_down_end_at_a_hidden_node(blocks):
    """Neither find nor children lead from a visible document beneath a hidden block."""
    public = blocks.restricted({"access": "public"})
    public.activate_group("word")
    roots = public.get_nodes()
    assert [root.path for root in roots] == ["a.txt"]
    assert [node.text for node in public.find("line")(roots)] == SEEN[:2]
    assert [node.text for node in public.find("word")(blocks.get_nodes())] == " ".join(SEEN).split()
    assert [node.text for node in roots[0].children["block"]] == ["open tea\nopen cup"]
    found = Retriever(public, "word", similarity="bm25", target="line", topk=20)(
        "hidden tea closed cup"
    )
    assert sorted(node.text for node in found) == sorted(SEEN)


def test_closing_a_view_closes_no_store(folder):
    """The stores are the Document's: they are closed with it, and not with a view of it."""
    closed = []

    class Segments(MapSegmentStore):
        """Notes when it is closed."""

        def close(self):
            """Note it."""
            closed.append("segments")

    class Vectors(MapVectorStore):
        """Notes when it is closed."""

        def close(self):
            """Note it."""
            closed.append("vectors")

    with segment_stores.isolated(), vector_stores.isolated():
        segment_stores.register("noting", Segments)
        vector_stores.register("noting", Vectors)
        docs = Document(
            folder(FILES),
            store_conf={"segment_store": {"type": "noting"}, "vector_store": {"type": "noting"}},
        )
    with docs.restricted({"file_type": ".txt"}) as view:
        assert len(view.get_nodes()) == 4
    assert closed == []
    assert len(docs.get_nodes()) == 4
    docs.close()
    assert sorted(closed) == ["segments", "vectors"]


def test_a_view_s_report_names_only_what_is_seen(docs, public):
    """last_report of a view is None before the first use and names no hidden file after it."""
    assert public.last_report is None
    docs.activate_group("line")
    assert docs.last_report.added == tuple(FILES)
    assert public.last_report.added == ("public/a.txt", "public/b.txt")
