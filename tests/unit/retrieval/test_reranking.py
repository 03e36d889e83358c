"""Rerankers with a model: what they share, and MaxSimReranker."""

from __future__ import annotations

import gc
import math
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import (
    CachedEmbedder,
    DocNode,
    Document,
    OnnxEmbedder,
    Reranker,
    RetrievalChain,
    Retriever,
    explain,
    register_reranker,
    why_not,
)
from lazyrag.errors import AnswerWarning, ConfigError, RetrievalError
from lazyrag.models import MaxSimModel
from lazyrag.retrieval.stages import Stage
from tests.tiny_models import write_embedder

TEXTS = ("tea", "late frost", "a cup of green tea", "green tea and cake", "early snow")

_scores = st.floats(-1e6, 1e6)
_cases = st.lists(st.tuples(_scores, _scores), min_size=1, max_size=12)


def nodes_of(*scores: float | None) -> list[DocNode]:
    """Nodes with these scores, told apart by their texts."""
    return [DocNode(text=f"node {number}", score=score) for number, score in enumerate(scores)]


def saying(*scores: float):
    """A model with a score for each document, by its place."""
    return lambda query, documents, top_n: list(enumerate(scores))[: len(documents)]


def texts(nodes) -> list[str]:
    """The nodes' texts."""
    return [node.text for node in nodes]


class TestWeight:
    """The share of a model's scores beside those that nodes came with."""

    def test_both_are_brought_to_one_range_and_added(self):
        """By min-max over the nodes: weight x the model's + (1 - weight) x what they came with."""
        model = saying(10.0, 30.0, 20.0)
        found = Reranker("ModuleReranker", model=model, weight=0.25)(
            nodes_of(0.9, 0.5, 0.1), query="q"
        )
        assert [(node.text, node.score) for node in found] == [
            ("node 0", 0.75),
            ("node 1", 0.625),
            ("node 2", 0.125),
        ]

    @given(_cases, st.floats(0, 1, exclude_max=True))
    def test_shares_add_up_to_the_score(self, cases, weight):
        """Of every node, exactly; the nodes are those that came in, best first, with scores in [0,
        1].
        """
        nodes = nodes_of(*(came for came, _ in cases))
        came = Stage("retriever", "given", tuple(nodes))
        stage = Reranker(
            "ModuleReranker", model=saying(*(told for _, told in cases)), weight=weight
        ).trace(came, "q")
        assert (stage.kind, stage.inputs[0]) == ("fusion", came)
        assert stage.inputs[1].kind == "reranker"
        assert sorted(texts(stage.nodes)) == sorted(texts(nodes))
        for node in stage.nodes:
            assert len(stage.contributions[node]) == 2
            assert node.score == math.fsum(stage.contributions[node])
            assert 0 <= node.score <= 1
        scores = [node.score for node in stage.nodes]
        assert scores == sorted(scores, reverse=True)

    @given(_cases)
    def test_the_ends_are_one_side_alone(self, cases):
        """Weight 0 keeps the order of the scores that came, weight 1 takes the model's with its own
        scores.
        """
        nodes = nodes_of(*sorted((came for came, _ in cases), reverse=True))
        model = saying(*(told for _, told in cases))
        kept = Reranker("ModuleReranker", model=model, weight=0)(nodes, query="q")
        assert texts(kept) == texts(nodes)
        alone = Reranker("ModuleReranker", model=model, weight=1)(nodes, query="q")
        assert [node.score for node in alone] == sorted((told for _, told in cases), reverse=True)

    def test_weight_0_orders_by_the_scores_that_came(self):
        """In whatever order they came, such as that of a function, whose scores do not compare."""
        found = Reranker("ModuleReranker", model=saying(0.1, 0.2, 0.3), weight=0)(
            nodes_of(0.9, 7.0, 0.8), query="q"
        )
        assert texts(found) == ["node 1", "node 0", "node 2"]

    def test_topk_cuts_what_was_mixed(self):
        """The model sees all nodes, and the cut is a stage of its own."""
        seen = []

        def model(query, documents, top_n):
            seen.append((len(documents), top_n))
            return [(0, 0.0), (1, 1.0), (2, 5.0)]

        reranker = Reranker("ModuleReranker", model=model, weight=0.5, topk=2)
        stage = reranker.trace(Stage("retriever", "given", tuple(nodes_of(3.0, 2.0, 1.0))), "q")
        assert seen == [(3, 3)]
        assert (stage.kind, stage.name, texts(stage.nodes)) == ("cut", "topk", ["node 0", "node 2"])
        assert len(stage.inputs[0].nodes) == 3
        assert texts(reranker(nodes_of(3.0, 2.0, 1.0), query="q")) == texts(stage.nodes)

    def test_what_a_model_leaves_out_gets_nothing_of_it(self):
        """Its node keeps its share of the score that it came with, and the caller is told."""
        reranker = Reranker(
            "ModuleReranker", model=lambda query, documents, top_n: [(1, 2.0)], weight=0.5
        )
        with pytest.warns(AnswerWarning, match="keep only their share"):
            found = reranker(nodes_of(3.0, 2.0, 1.0), query="q")
        assert [node.score for node in found] == [0.75, 0.5, 0.0]

    @pytest.mark.parametrize("weight", [1, 0.5])
    def test_a_node_that_comes_twice_is_taken_once(self, weight):
        """At its first place; the shares are those of its score."""
        one, two = nodes_of(3.0, 1.0)
        came = Stage("retriever", "given", (one, two, one.with_score(2.0)))
        stage = Reranker("ModuleReranker", model=saying(1.0, 4.0, 2.0), weight=weight).trace(
            came, "q"
        )
        assert texts(stage.nodes) == (["node 1", "node 0"] if weight == 1 else ["node 0", "node 1"])
        if weight < 1:
            assert [stage.contributions[node] for node in stage.nodes] == [(0.5, 0.0), (0.0, 0.5)]

    def test_nodes_of_one_uid_from_two_documents_have_shares_of_their_own(self):
        """Each Document's own."""
        one, two = (Document() for _ in range(2))
        for docs in (one, two):
            docs.add_texts({"a": "green tea"})
        first, second = (docs.get_nodes("FineChunk")[0] for docs in (one, two))
        assert first.uid == second.uid
        came = Stage("retriever", "given", (first.with_score(1.0), second.with_score(0.0)))
        stage = Reranker("ModuleReranker", model=saying(1.0, 4.0), weight=0.75).trace(came, "q")
        assert [(node.score, stage.contributions[node]) for node in stage.nodes] == [
            (0.75, (0.0, 0.75)),
            (0.25, (0.25, 0.0)),
        ]

    @pytest.mark.parametrize("query", ["", " ", "\n"])
    def test_a_blank_query_is_refused(self, query):
        """By every reranker with a model, whatever the model is, if there are nodes."""
        for reranker in (Reranker("ModuleReranker", model=saying(1.0)), Reranker("BM25Reranker")):
            with pytest.raises(ConfigError, match=r"query must be a string that is not blank"):
                reranker(nodes_of(1.0), query=query)
            assert reranker([], query=query) == []

    def test_equal_scores_stay_in_their_order(self):
        """As they came in."""
        found = Reranker("ModuleReranker", model=saying(0.0, 1.0, 0.5), weight=0.5)(
            nodes_of(3, 1, 2), query="q"
        )
        assert texts(found) == ["node 0", "node 1", "node 2"]
        assert {node.score for node in found} == {0.5}

    @pytest.mark.parametrize("score", [None, math.nan, math.inf])
    def test_a_node_without_score_is_refused(self, score):
        """There is nothing to mix with; the model's scores alone are all right."""
        nodes = nodes_of(1.0, score)
        with pytest.raises(ConfigError, match="weight=1"):
            Reranker("ModuleReranker", model=saying(1.0, 2.0), weight=0.5)(nodes, query="q")
        assert len(Reranker("ModuleReranker", model=saying(1.0, 2.0))(nodes, query="q")) == 2

    @pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan, True, "0.5", None])
    def test_another_weight_is_refused(self, weight):
        """When the Reranker is made."""
        with pytest.raises(ConfigError, match=r"weight must be a number in \[0, 1\]"):
            Reranker("ModuleReranker", model=saying(1.0), weight=weight)

    @pytest.mark.parametrize("normalise", ["minmax", "theoretical", ["min_max"], None])
    def test_another_normalisation_is_refused(self, normalise):
        """When the Reranker is made: one there is not, one that needs a bound, another number of
        them.
        """
        with pytest.raises(ConfigError, match="normalise"):
            Reranker("ModuleReranker", model=saying(1.0), weight=0.5, normalise=normalise)

    def test_scores_may_be_mixed_as_they_are(self):
        """With other normalisations than min-max, one for each side."""
        reranker = Reranker(
            "ModuleReranker", model=saying(4.0, 8.0), weight=0.5, normalise=["none", "max"]
        )
        assert [node.score for node in reranker(nodes_of(1.0, 0.25), query="q")] == [0.75, 0.625]

    def test_without_nodes_no_model_is_asked(self):
        """The result is empty."""

        def model(query, documents, top_n):
            raise AssertionError

        assert Reranker("ModuleReranker", model=model, weight=0.5)([], query="q") == []


class TestTrace:
    """What a reranker did, as a stage."""

    def test_a_models_own_scores_are_one_stage(self):
        """Above the one it came from, with the nodes that a call returns."""
        came = Stage("retriever", "given", tuple(nodes_of(3.0, 2.0, 1.0)))
        reranker = Reranker("ModuleReranker", model=saying(0.1, 0.3, 0.2), topk=2)
        stage = reranker.trace(came, "q")
        assert (stage.kind, stage.name, stage.inputs, stage.settings) == (
            "reranker",
            "ModuleReranker",
            (came,),
            {"topk": 2},
        )
        assert [(node.text, node.score) for node in stage.nodes] == [
            ("node 1", 0.3),
            ("node 2", 0.2),
        ]
        assert stage.seconds > 0

    def test_a_function_is_a_stage_with_its_keywords(self):
        """Whatever it drops is missing there."""
        came = Stage("retriever", "given", tuple(DocNode(text=text) for text in TEXTS))
        stage = Reranker("KeywordFilter", required_keys=["tea"]).trace(came, "q")
        assert (stage.kind, stage.name, dict(stage.settings)) == (
            "reranker",
            "KeywordFilter",
            {"required_keys": ["tea"]},
        )
        assert texts(stage.nodes) == [text for text in TEXTS if "tea" in text]

    def test_secrets_are_no_part_of_it(self):
        """What is named as a key, token, secret or password is hidden, also deeper; the function
        gets it as it is.
        """
        seen = []

        @register_reranker(batch=True, replace=True)
        def remote(nodes, **kwargs):
            seen.append(kwargs)
            return nodes

        secrets = {
            "api_key": "s3cr3t",
            "token": "s3cr3t",
            "db_password": "s3cr3t",
            "clientSecret": "s3cr3t",
        }
        nested = {"headers": {"Authorization": "s3cr3t"}, "hosts": [{"access-keys": ["s3cr3t"]}]}
        plain = {"max_tokens": 9, "required_keys": ["tea"], "embed_key": "dense", "monkey": 1}
        chain = RetrievalChain(
            lambda query, filters=None, topk=None: nodes_of(1.0),
            Reranker("remote", **secrets, **nested, **plain),
        )
        told = explain(chain, "q")
        assert "s3cr3t" not in str(told) + told.to_json()
        assert told.stages[-1].settings == {
            **dict.fromkeys(secrets, "***"),
            "headers": {"Authorization": "***"},
            "hosts": [{"access-keys": "***"}],
            **plain,
        }
        assert seen == [{"query": "q", **secrets, **nested, **plain}]


@pytest.fixture
def embedder(tmp_path) -> OnnxEmbedder:
    """A tiny model that gives token embeddings."""
    return OnnxEmbedder(write_embedder(tmp_path / "tiny", pooling={"pooling_mode": "mean"}))


@pytest.fixture
def folder(tmp_path):
    """A file of one line for each text."""
    path = tmp_path / "files"
    path.mkdir()
    (path / "lines.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def lines_of(folder, embed, **keywords) -> Document:
    """A Document whose nodes are lines."""
    docs = Document(folder, embed=embed, **keywords)
    docs.create_node_group("line", transform=lambda text: text.split("\n"))
    return docs


class TestMaxSimReranker:
    """Late interaction over the embedding model that a Document has."""

    def test_it_ranks_as_its_model_does(self, embedder):
        """With weight 1: a MaxSimModel's order and scores."""
        nodes = [DocNode(text=text) for text in TEXTS]
        found = Reranker("MaxSimReranker", embedder=embedder, weight=1, topk=3)(
            nodes, query="green tea"
        )
        expected = MaxSimModel(embedder)("green tea", TEXTS, top_n=3)
        assert [(TEXTS.index(node.text), node.score) for node in found] == expected
        given_model = Reranker("MaxSimReranker", embedder=MaxSimModel(embedder), weight=1, topk=3)
        assert given_model(nodes, query="green tea") == found

    @pytest.mark.parametrize("cached", [False, True])
    def test_it_finds_the_documents_embedder(self, embedder, folder, tmp_path, cached):
        """Without embedder= it is the one that the nodes' Document embeds with, also inside of one
        that caches.
        """
        if cached:
            embedder = CachedEmbedder(embedder, tmp_path / "cache.db")
        docs = lines_of(folder, embedder)
        hits = Retriever(docs, "line", similarity="cosine", topk=5)("green tea")
        inner = embedder.embedder if cached else embedder
        own = Reranker("MaxSimReranker")(hits, query="green tea")
        given_one = Reranker("MaxSimReranker", embedder=inner)(hits, query="green tea")
        assert [(node.uid, node.score) for node in own] == [
            (node.uid, node.score) for node in given_one
        ]
        assert own[0].text in {"a cup of green tea", "green tea and cake"}

    @pytest.mark.slow
    def test_a_key_chooses_among_several(self, embedder, folder, tmp_path):
        """Two that can are told, by key; one that cannot is no choice."""
        other = OnnxEmbedder(write_embedder(tmp_path / "other", pooling={"pooling_mode": "cls"}))
        docs = lines_of(folder, {"a": embedder, "b": other, "plain": lambda text: [1.0, len(text)]})
        hits = Retriever(docs, "line", similarity="bm25")("tea")
        with pytest.raises(
            ConfigError, match=r"give token embeddings: a, b\. Pass one as embed_key="
        ):
            Reranker("MaxSimReranker")(hits, query="tea")
        assert Reranker("MaxSimReranker", embed_key="b")(hits, query="tea")
        with pytest.raises(
            ConfigError, match=r"no embedder gives token embeddings \(its embed keys: plain\)"
        ):
            Reranker("MaxSimReranker", embed_key="plain")(hits, query="tea")
        with pytest.raises(ConfigError, match="no embed key 'c'"):
            Reranker("MaxSimReranker", embed_key="c")(hits, query="tea")

    @pytest.mark.slow
    def test_several_documents_need_one_model(self, embedder, folder, tmp_path):
        """Two objects of one model are one; two models are refused, as their scores do not
        compare.
        """
        again = OnnxEmbedder(
            write_embedder(tmp_path / "again" / "tiny", pooling={"pooling_mode": "mean"})
        )
        other = OnnxEmbedder(write_embedder(tmp_path / "other", pooling={"pooling_mode": "cls"}))
        one, two, three = (lines_of(folder, each) for each in (embedder, again, other))
        assert Reranker("MaxSimReranker")(
            Retriever([one, two], "line", similarity="bm25")("tea"), query="tea"
        )
        with pytest.raises(ConfigError, match="have different models"):
            Reranker("MaxSimReranker")(
                Retriever([one, three], "line", similarity="bm25")("tea"), query="tea"
            )

    def test_nodes_outside_a_document_need_an_embedder(self):
        """There is none to be found."""
        with pytest.raises(ConfigError, match=r"outside a Document\. Pass embedder="):
            Reranker("MaxSimReranker")(nodes_of(1.0), query="tea")

    def test_what_it_is_made_with_is_checked(self, embedder):
        """Before anything is asked."""
        with pytest.raises(ConfigError, match="embed_key names an embedder"):
            Reranker("MaxSimReranker", embedder=embedder, embed_key="a")
        with pytest.raises(ConfigError, match="token_embeddings"):
            Reranker("MaxSimReranker", embedder=len)
        with pytest.raises(ConfigError, match="cache_bytes"):
            MaxSimModel(embedder, cache_bytes=-1)


class TestInAChain:
    """What an explanation says of a reranker."""

    @pytest.fixture
    def retriever(self, embedder, folder) -> Retriever:
        """By vectors, over five lines."""
        return Retriever(lines_of(folder, embedder), "line", similarity="cosine", topk=5)

    def test_both_shares_of_a_mixed_score_are_told(self, retriever):
        """They add up to the score of the hit."""
        chain = RetrievalChain(retriever, Reranker("MaxSimReranker", weight=0.25, topk=3))
        told = explain(chain, "green tea")
        assert [hit.uid for hit in told.hits] == [node.uid for node in chain("green tea")]
        assert len(told.hits) == 3
        for hit in told.hits:
            assert list(hit.contributions) == ["cosine", "MaxSimReranker"]
            assert hit.score == math.fsum(hit.contributions.values())

    @pytest.mark.parametrize("weight", [0.25, 1])
    def test_who_dropped_a_node_is_told(self, retriever, weight):
        """The cut behind the mixed scores, or the reranker itself."""
        chain = RetrievalChain(retriever, Reranker("MaxSimReranker", weight=weight, topk=1))
        [kept] = chain("green tea")
        dropped = next(node for node in retriever("green tea") if node.uid != kept.uid)
        assert why_not(chain, dropped.uid, "green tea").stage == (
            "topk" if weight < 1 else "MaxSimReranker"
        )


class Counting:
    """An embedder that counts the documents it is asked for."""

    def __init__(self, embedder: OnnxEmbedder) -> None:
        self.embedder = embedder
        self.identity = embedder.identity
        self.asked: list[str] = []

    def token_embeddings(self, texts, input_type="document"):
        """The inner one's."""
        if input_type == "document":
            self.asked += texts
        return self.embedder.token_embeddings(texts, input_type)


class Tokens:
    """The same for a Document. It has no room for weak references of its own."""

    __slots__ = ("asked", "embedder", "identity")
    dimension, max_tokens, normalised = 2, None, False
    __init__ = Counting.__init__
    token_embeddings = Counting.token_embeddings

    def embed(self, texts, input_type="document"):
        """Vectors of texts."""
        return [[1.0, len(text)] for text in texts]


class Weak(Tokens):
    """One that has."""


class TestKeptVectors:
    """A MaxSimModel keeps token vectors up to a number of bytes."""

    def test_a_document_is_embedded_once(self, embedder):
        """And scores are the same to the last bit, with and without."""
        counting = Counting(embedder)
        model = MaxSimModel(counting)
        first = model("green tea", TEXTS)
        assert (
            model("green tea", TEXTS)
            == first
            == MaxSimModel(embedder, cache_bytes=0)("green tea", TEXTS)
        )
        assert sorted(counting.asked) == sorted(TEXTS)

    def test_models_over_one_embedder_share_them(self, embedder):
        """So do Rerankers, one after the other; a bound of one's own is one's own."""
        counting = Counting(embedder)
        nodes = [DocNode(text=text) for text in TEXTS]
        for _ in range(3):
            Reranker("MaxSimReranker", embedder=counting, weight=1)(nodes, query="tea")
        assert sorted(counting.asked) == sorted(TEXTS)
        MaxSimModel(counting, cache_bytes=1 << 20)("tea", TEXTS)
        assert sorted(counting.asked) == sorted(TEXTS * 2)

    @pytest.mark.slow
    def test_they_go_with_the_embedder(self, embedder):
        """Nothing is left of them."""
        counting = Counting(embedder)
        model = MaxSimModel(counting)
        model("tea", TEXTS)
        kept = weakref.ref(model._cached)
        del model
        gc.collect()
        assert kept() is not None
        del counting
        gc.collect()
        assert kept() is None

    def test_an_embedder_without_a_hash_will_do(self, embedder):
        """Its models share what they keep, too; of two that say they are equal each keeps its
        own.
        """

        class Unhashable(Counting):
            __hash__ = None

            def __eq__(self, other):
                return True

        counting, other = Unhashable(embedder), Unhashable(embedder)
        for _ in range(2):
            assert MaxSimModel(counting)("tea", TEXTS) == MaxSimModel(other)("tea", TEXTS)
        assert sorted(counting.asked) == sorted(other.asked) == sorted(TEXTS)

    @pytest.mark.slow
    def test_a_reranker_holds_no_embedder_of_documents_that_are_gone(self, embedder, folder):
        """One Reranker over Documents that come and go: each one's embedder goes with it, and what
        is kept, too.
        """
        reranker = Reranker("MaxSimReranker")
        gone = []
        for _ in range(3):
            counting = Weak(embedder)
            hits = Retriever(lines_of(folder, counting), "line", similarity="bm25")("tea")
            for _ in range(2):
                assert len(reranker(hits, query="tea")) == len(hits)
            assert len(counting.asked) == len(hits)
            gone += [weakref.ref(counting), weakref.ref(MaxSimModel(counting)._cached)]
            del counting, hits
            gc.collect()
        assert [one() for one in gone] == [None] * 6

    def test_an_embedder_that_nothing_can_point_to_weakly_will_do(self, embedder, folder):
        """A Reranker holds the last one, so that its passages are embedded once."""
        counting = Tokens(embedder)
        hits = Retriever(lines_of(folder, counting), "line", similarity="bm25")("tea")
        reranker = Reranker("MaxSimReranker")
        assert reranker(hits, query="tea") == reranker(hits, query="tea")
        assert len(counting.asked) == len(hits)

    def test_what_was_used_last_stays(self, embedder):
        """The bytes are a bound: older ones go, and one that is larger than all of it is not
        kept.
        """
        [one] = embedder.token_embeddings(["tea"])
        counting = Counting(embedder)
        model = MaxSimModel(counting, cache_bytes=2 * (one.nbytes + 4 * 4))
        for document in ("tea", "cake", "tea", "snow", "tea", "cake", "green tea " * 40, "tea"):
            model("tea", [document])
        assert counting.asked == ["tea", "cake", "snow", "cake", "green tea " * 40]

    def test_without_bytes_nothing_is_kept(self, embedder):
        """Each call embeds."""
        counting = Counting(embedder)
        model = MaxSimModel(counting, cache_bytes=0)
        assert model("tea", ["tea"]) == model("tea", ["tea"])
        assert counting.asked == ["tea", "tea"]

    @pytest.mark.slow
    def test_threads_share_it(self, embedder):
        """Eight of them, with a cache that holds half: each gets the scores that one alone gets."""
        expected = MaxSimModel(embedder)("green tea", TEXTS)
        model = MaxSimModel(
            embedder, cache_bytes=sum(one.nbytes for one in embedder.token_embeddings(TEXTS)) // 2
        )
        found = []
        threads = [
            threading.Thread(
                target=lambda: found.extend(model("green tea", TEXTS) for _ in range(20))
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [expected] * 160


def test_an_embedder_that_fails_is_named(tmp_path, embedder):
    """The error says which text."""
    strict = OnnxEmbedder(
        write_embedder(tmp_path / "m", pooling={"pooling_mode": "mean"}, max_tokens=6),
        too_long="raise",
    )
    with pytest.raises(RetrievalError, match=r"'a b c d e'.*has 5 tokens"):
        Reranker("MaxSimReranker", embedder=strict, weight=1)(
            [DocNode(text="a b c d e")], query="tea"
        )
