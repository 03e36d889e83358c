"""Similarities: registration, prototypes, contracts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lazyrag import DocNode, Document, Retriever, register_similarity
from lazyrag.errors import AlreadyRegisteredError, ConfigError, NotRegisteredError, RetrievalError
from lazyrag.retrieval import similarities

TEXTS = {"a.txt": "green tea", "b.txt": "black tea and more tea", "c.txt": "coffee"}


def embed(text):
    """Three numbers that tell the texts apart."""
    return [text.count("tea"), text.count("e"), 1.0]


@pytest.fixture
def docs(folder):
    """Three tiny files, embedded."""
    return Document(folder(TEXTS), embed=embed)


def paths(nodes):
    """The files of nodes, in order."""
    return [node.path for node in nodes]


class TestRegistration:
    """The decorator's three forms and its refusals."""

    def test_every_form_returns_the_function_unchanged(self):
        """Bare, with arguments and as a call, the decorated name is still the plain function."""

        def one(query, node):
            return 1.0

        assert register_similarity(one) is one
        assert register_similarity(mode="text", batch=False, name="two")(one) is one
        assert register_similarity(one, "text", True, False, name="three") is one
        assert {"one", "two", "three"} <= set(similarities)

    def test_another_function_under_a_taken_name_is_refused(self):
        """A second function of one name needs replace=True; the same one again is fine."""

        def score(query, node):
            return 1.0

        register_similarity(score)
        register_similarity(score)
        with pytest.raises(AlreadyRegisteredError, match="replace=True"):
            register_similarity(lambda query, node: 2.0, name="score")
        register_similarity(lambda query, node: 2.0, name="score", replace=True)
        assert similarities["score"].func("", None) == 2.0

    def test_an_unknown_mode_names_the_known_ones(self):
        """A misspelt mode is refused at registration, with the nearest one."""
        with pytest.raises(ConfigError, match="Did you mean 'embedding'"):
            register_similarity(lambda query, node: 0.0, mode="embeding", name="x")

    def test_decend_works(self):
        """Spec 001's spelling of descend."""
        register_similarity(lambda query, node: 0.0, name="old", decend=False)
        assert similarities["old"].descend is False

    def test_both_spellings_are_a_type_error(self):
        """descend and decend together are refused."""
        with pytest.raises(TypeError, match="descend and decend"):
            register_similarity(lambda query, node: 0.0, name="x", descend=True, decend=True)

    def test_something_that_cannot_be_called_is_refused(self):
        """Registering a string is a ConfigError, not a surprise at the first query."""
        with pytest.raises(ConfigError, match="function"):
            register_similarity("bm25", mode="text")

    def test_an_unknown_similarity_names_the_nearest(self, docs):
        """A misspelt similarity is refused when the Retriever is made."""
        with pytest.raises(
            NotRegisteredError, match=r"Known: bm25, bm25_chinese, cosine, ip\. Did you mean 'bm25'"
        ):
            Retriever(docs, "FineChunk", similarity="bm52")


class TestPrototypes:
    """Spec 001's four prototypes behave alike."""

    @pytest.mark.parametrize("batch", [True, False])
    def test_text_functions_get_words_and_nodes(self, docs, batch):
        """Both text prototypes rank by what they return, best first."""
        if batch:

            @register_similarity(mode="text", batch=True)
            def by_count(query, nodes, **kwargs):
                return [(node, node.get_text().count(query)) for node in nodes]

        else:

            @register_similarity(mode="text", batch=False)
            def by_count(query, nodes, **kwargs):
                return nodes.get_text().count(query)

        nodes = Retriever(docs, "lazyllm_root", similarity="by_count")("tea")
        assert [(node.path, node.score) for node in nodes] == [
            ("b.txt", 2.0),
            ("a.txt", 1.0),
            ("c.txt", 0.0),
        ]

    @pytest.mark.parametrize("batch", [True, False])
    def test_embedding_functions_get_a_list_and_nodes_with_their_vector(self, docs, batch):
        """Both embedding prototypes get the query as a list of floats and read node.embedding."""
        seen = []

        def product(query, node):
            seen.append(type(query))
            return float(np.dot(query, node.embedding))

        if batch:

            @register_similarity(mode="embedding", batch=True)
            def inner(query, nodes, **kwargs):
                return [(node, product(query, node)) for node in nodes]

        else:

            @register_similarity(mode="embedding", batch=False)
            def inner(query, node, **kwargs):
                return product(query, node)

        nodes = Retriever(docs, "lazyllm_root", similarity="inner")("tea")
        assert [(node.path, node.score) for node in nodes] == [
            ("b.txt", 6.0),
            ("a.txt", 5.0),
            ("c.txt", 3.0),
        ]
        assert set(seen) == {list}

    def test_with_several_embed_keys_a_node_carries_the_one_that_is_asked_for(self, folder):
        """node.embedding is never ambiguous inside a similarity function."""
        docs = Document(folder(TEXTS), embed={"one": embed, "two": lambda text: [len(text), 0.0]})
        lengths = []

        @register_similarity(mode="embedding")
        def dimension(query, node):
            lengths.append((len(query), len(node.embedding)))
            return 0.0

        Retriever(docs, "lazyllm_root", similarity="dimension")("tea")
        assert lengths == [(3, 3)] * 3 + [(2, 2)] * 3

    def test_ascending_functions_rank_the_lowest_first(self, docs):
        """With descend=False a smaller score is better, ties go by uid."""
        register_similarity(lambda query, node: len(node.get_text()), name="length", descend=False)
        assert paths(Retriever(docs, "lazyllm_root", similarity="length")("x")) == [
            "c.txt",
            "a.txt",
            "b.txt",
        ]

    def test_a_batch_function_may_leave_nodes_out(self, docs):
        """Nodes that a batch function does not return are no hits."""
        register_similarity(
            lambda query, nodes: [(node, 1.0) for node in nodes if query in node.text],
            name="holds",
            batch=True,
        )
        assert sorted(paths(Retriever(docs, "lazyllm_root", similarity="holds")("black"))) == [
            "b.txt"
        ]

    def test_filters_apply_before_a_function_sees_nodes(self, docs):
        """A user's function is only given the nodes that the filter lets through."""
        seen = []
        register_similarity(lambda query, node: seen.append(node.path) or 1.0, name="spy")
        Retriever(docs, "lazyllm_root", similarity="spy")(
            "x", filters={"file_name": ["a.txt", "c.txt"]}
        )
        assert seen == ["a.txt", "c.txt"]

    @pytest.mark.parametrize(
        "returned",
        [3, [1, 2], [("no node", 1.0)], [(DocNode(text="stranger"), 1.0)], {"a": 1}, None],
        ids=["number", "numbers", "text", "stranger", "mapping", "nothing"],
    )
    def test_a_batch_function_that_breaks_its_contract_is_named(self, docs, returned):
        """Anything but pairs of given nodes and numbers is a RetrievalError that names the
        function.
        """
        register_similarity(lambda query, nodes: returned, name="broken", batch=True)
        with pytest.raises(RetrievalError, match="'broken' returned"):
            Retriever(docs, "lazyllm_root", similarity="broken")("x")

    def test_a_node_returned_twice_is_refused(self, docs):
        """One node has one score."""
        register_similarity(
            lambda query, nodes: [(nodes[0], 1.0), (nodes[0], 2.0)], name="twice", batch=True
        )
        with pytest.raises(RetrievalError, match="once"):
            Retriever(docs, "lazyllm_root", similarity="twice")("x")

    @pytest.mark.parametrize("score", [math.nan, None, "high"])
    def test_a_score_that_is_no_number_is_refused(self, docs, score):
        """nan, None and text have no place in a ranking."""
        register_similarity(lambda query, node: score, name="broken")
        with pytest.raises(RetrievalError, match="'broken' returned"):
            Retriever(docs, "lazyllm_root", similarity="broken")("x")

    def test_what_a_function_raises_is_wrapped_with_its_cause(self, docs):
        """The error names the similarity and keeps the original exception as its cause."""
        register_similarity(lambda query, node: 1 / 0, name="broken")
        with pytest.raises(RetrievalError, match="'broken' raised ZeroDivisionError") as caught:
            Retriever(docs, "lazyllm_root", similarity="broken")("x")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


class TestKeywords:
    """similarity_kw and further keywords."""

    def test_keywords_reach_the_function(self, docs):
        """similarity_kw and direct keywords are both passed through."""
        seen = []

        @register_similarity(batch=True)
        def spy(query, nodes, alpha=0, beta=0):
            seen.append((alpha, beta))
            return []

        Retriever(docs, "lazyllm_root", similarity="spy", similarity_kw={"alpha": 1}, beta=2)("x")
        assert seen == [(1, 2)]

    def test_a_keyword_that_the_function_does_not_take_is_refused(self, docs):
        """A misspelt keyword of bm25 is refused with the nearest one, when the Retriever is
        made.
        """
        with pytest.raises(ConfigError, match="Did you mean 'variant'"):
            Retriever(docs, "FineChunk", similarity="bm25", varient="okapi")

    def test_a_misspelt_parameter_of_the_retriever_is_not_swallowed(self, docs):
        """topK is refused even by a function that takes any keyword."""
        register_similarity(lambda query, nodes, **kwargs: [], name="any", batch=True)
        with pytest.raises(ConfigError, match="Did you mean 'topk'"):
            Retriever(docs, "FineChunk", similarity="any", topK=3)

    def test_bm25_checks_its_parameters(self, docs):
        """An impossible b is refused when the Retriever is made, not at the first query."""
        with pytest.raises(ConfigError, match="b of BM25 must be a number from 0 to 1; got 2"):
            Retriever(docs, "FineChunk", similarity="bm25", b=2)


class TestBuiltInFunctions:
    """The built-in entries can be called like any other."""

    def test_bm25_ranks_loose_nodes_as_the_index_ranks_a_group(self, docs):
        """similarities["bm25"].func gives the nodes and scores that a Retriever gives."""
        nodes = docs.get_nodes()
        direct = similarities["bm25"].func("green teas", nodes)
        found = Retriever(docs, "lazyllm_root", similarity="bm25")("green teas")
        assert [(node.path, score) for node, score in direct] == [
            (node.path, node.score) for node in found
        ]
        assert len(found) == 2

    def test_cosine_of_one_node_is_what_the_store_ranks_by(self, docs):
        """similarities["cosine"].func agrees with a Retriever's scores."""
        for node in Retriever(docs, "lazyllm_root", similarity="cosine")("tea"):
            assert similarities["cosine"].func(embed("tea"), node) == pytest.approx(
                node.score, abs=1e-6
            )

    def test_bm25_of_no_nodes_is_empty(self):
        """No nodes, no ranking, no error."""
        assert similarities["bm25_chinese"].func("茶", []) == []


class TestBatches:
    """What a batch function is called with."""

    @pytest.mark.parametrize("mode", ["text", "embedding"])
    def test_no_function_is_called_without_nodes(self, docs, mode):
        """A filter that lets nothing through gives an empty result without a call."""
        sizes = []
        register_similarity(
            lambda query, nodes: sizes.append(len(nodes)) or [(max(nodes), 1.0)],
            mode,
            name="spy",
            batch=True,
        )
        assert (
            Retriever(docs, "lazyllm_root", similarity="spy")(
                "x", filters={"file_name": ["no such"]}
            )
            == []
        )
        assert Retriever(Document(embed=embed), "lazyllm_root", similarity="spy")("x") == []
        assert sizes == []

    def test_a_document_that_a_filter_excludes_whole_hides_no_other(self, docs, tmp_path):
        """Of two Documents the one that has nodes left is ranked, by one call with those."""
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "d.txt").write_text("green tea", encoding="utf-8")
        sizes = []
        register_similarity(
            lambda query, nodes: sizes.append(len(nodes)) or [(node, 1.0) for node in nodes],
            name="spy",
            batch=True,
        )
        retriever = Retriever(
            [docs, Document(tmp_path / "other", embed=embed)], "lazyllm_root", similarity="spy"
        )
        assert paths(retriever("x", filters={"file_name": ["d.txt"]})) == ["d.txt"]
        assert sizes == [1]


class TestEmbedKey:
    """What an own embedding similarity is told of the embed key."""

    def test_a_parameter_embed_key_is_told_it(self, folder):
        """A function with that parameter hears which key its query and nodes are embedded by, key
        by key.
        """
        docs = Document(folder(TEXTS), embed={"one": embed, "two": lambda text: [len(text), 1.0]})
        told = []

        @register_similarity(mode="embedding", batch=True)
        def spy(query, nodes, embed_key="none"):
            told.append((embed_key, len(query), len(nodes[0].embedding)))
            return [(node, 1.0) for node in nodes]

        assert len(Retriever(docs, "lazyllm_root", similarity="spy")("tea")) == 3
        assert told == [("one", 3, 3), ("two", 2, 2)]

    def test_a_text_function_is_told_none(self, docs):
        """A text function's own parameter of that name keeps its default: texts are ranked under no
        key.
        """
        told = []
        register_similarity(
            lambda query, node, embed_key="none": told.append(embed_key) or 1.0, name="spy"
        )
        assert len(Retriever(docs, "lazyllm_root", similarity="spy")("tea")) == 3
        assert told == ["none"] * 3
