"""BM25 over the candidates, and several rerankers fused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import rank_bm25
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, Reranker, Retriever, register_reranker
from lazyrag.errors import ConfigError, NotRegisteredError, RetrievalError
from lazyrag.models import RerankModel
from lazyrag.models.rerank import Bm25RerankModel
from lazyrag.ranking.fusion import rrf
from lazyrag.retrieval.stages import Stage
from lazyrag.text.analyzers import chinese_terms, english_terms

TEAS = ["A cup of coffee", "Green teas are kept cool", "Late frost", "green tea with green cups"]
CHINESE = ["红茶要发酵", "绿茶不要发酵", "绿茶要低温存放", "咖啡"]

_words = st.lists(
    st.lists(st.sampled_from(["tea", "green", "cup", "frost", "的", "绿茶"]), max_size=6),
    max_size=8,
)


def nodes_of(texts, *scores):
    """Nodes with these texts, and scores where there are some."""
    return [
        DocNode(text=text, score=score)
        for text, score in zip(texts, scores or [None] * len(texts), strict=True)
    ]


class TestBm25Reranker:
    """Words that candidates share with a query."""

    @pytest.mark.parametrize(
        ("variant", "library"),
        [("plus", "BM25Plus"), ("okapi", "BM25Okapi"), ("l", "BM25L")],
        ids=str,
    )
    def test_scores_are_the_librarys(self, variant, library):
        """On the terms of our analysers."""
        for query, texts, terms in (
            ("green tea", TEAS, english_terms),
            ("绿茶发酵", CHINESE, chinese_terms),
        ):
            expected = getattr(rank_bm25, library)([terms(text) for text in texts]).get_scores(
                terms(query)
            )
            found = dict(Bm25RerankModel(variant=variant)(query, texts))
            np.testing.assert_allclose(
                [found[position] for position in range(len(texts))], expected
            )

    def test_it_is_a_reranker(self):
        """By name; Chinese and English, by the query unless an analyser is named."""
        english = Reranker("BM25Reranker", topk=1)(nodes_of(TEAS), query="green cups?")
        chinese = Reranker("BM25Reranker", topk=1)(nodes_of(CHINESE), query="绿茶怎么存放")
        assert (english[0].text, chinese[0].text) == (TEAS[3], CHINESE[2])
        assert Reranker("BM25Reranker", analyser="zh")(nodes_of(TEAS), query="cups")[0].text in {
            TEAS[0],
            TEAS[3],
        }
        assert isinstance(Bm25RerankModel(), RerankModel)

    def test_its_scores_are_mixed(self):
        """With those that nodes came with, as any model's are."""
        nodes = nodes_of(TEAS, 1.0, 0.75, 0.5, 0.0)
        [best, *_] = Reranker("BM25Reranker", weight=0.5)(nodes, query="cool")
        assert (best.text, best.score) == (TEAS[1], 0.5 + 0.375)

    @given(_words, st.sampled_from(["plus", "okapi", "l"]))
    def test_any_candidates_are_ranked(self, texts, variant):
        """Without terms, all alike, one alone: each once, finite, and the same again."""
        model = Bm25RerankModel(variant=variant)
        documents = [" ".join(words) for words in texts]
        found = model("green tea 绿茶", documents)
        assert sorted(position for position, _ in found) == list(range(len(documents)))
        assert all(map(math.isfinite, dict(found).values()))
        assert found == model("green tea 绿茶", documents)

    @given(_words)
    def test_more_of_a_querys_words_are_not_worse(self, texts):
        """With the default variant a document that holds none is never above one that holds one."""
        documents = [" ".join(words) for words in texts]
        scores = dict(Bm25RerankModel()("green", documents))
        holding = [scores[position] for position, words in enumerate(texts) if "green" in words]
        others = [scores[position] for position, words in enumerate(texts) if "green" not in words]
        assert not holding or not others or min(holding) >= max(others)

    def test_nothing_in_common_keeps_the_order(self):
        """All scores are 0, also where no document has a term."""
        assert Bm25RerankModel()("tea", ["snow", "", "frost"]) == [(0, 0.0), (1, 0.0), (2, 0.0)]
        assert Bm25RerankModel()("tea", ["", " "], top_n=1) == [(0, 0.0)]
        assert Bm25RerankModel()("the", TEAS) == [(position, 0.0) for position in range(4)]

    def test_what_makes_no_sense_is_refused(self):
        """When it is made, or asked."""
        with pytest.raises(NotRegisteredError, match="No analyser"):
            Reranker("BM25Reranker", analyser="fr")
        with pytest.raises(ConfigError, match="variant"):
            Reranker("BM25Reranker", variant="lucene")
        with pytest.raises(ConfigError, match="not blank"):
            Bm25RerankModel()("  ", ["tea"])


def longest_first(query, documents, top_n):
    """A model: longer is better."""
    return [(position, float(len(text))) for position, text in enumerate(documents)]


def first_letter(query, documents, top_n):
    """A model: later in the alphabet is better."""
    return [(position, float(ord(text[0]))) for position, text in enumerate(documents)]


class TestFusionReranker:
    """Several rerankers' rankings as one."""

    def test_rankings_are_fused(self):
        """The incoming order first, then each reranker's, by rrf; the scores are its."""
        rerankers = [
            Reranker("ModuleReranker", model=longest_first),
            Reranker("ModuleReranker", model=first_letter),
        ]
        nodes = nodes_of(["bb", "a", "ccc"])
        uids = {node.text: node.uid for node in nodes}
        orders = [["bb", "a", "ccc"], ["ccc", "bb", "a"], ["ccc", "bb", "a"]]
        expected = rrf([[(uids[text], 0.0) for text in order] for order in orders], k=10)
        found = Reranker("FusionReranker", rerankers=rerankers, k=10)(nodes, query="q")
        assert [(node.uid, node.score) for node in found] == expected
        without = Reranker("FusionReranker", rerankers=rerankers, incoming=False, topk=1)(
            nodes, query="q"
        )
        assert [(node.text, node.score) for node in without] == [("ccc", 2 / 61)]

    @given(
        st.lists(
            st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=9
        ),
        st.sampled_from(["rrf", "weighted", "comb_mnz", "comb_max"]),
        st.booleans(),
    )
    def test_shares_add_up_to_the_score(self, cases, fusion, incoming):
        """Whatever the fusion: one share for each ranking."""
        models = [
            lambda query, documents, top_n, at=at: [
                (position, case[at]) for position, case in enumerate(cases)
            ]
            for at in (1, 2)
        ]
        rerankers = [Reranker("ModuleReranker", model=model) for model in models]
        reranker = Reranker("FusionReranker", rerankers=rerankers, fusion=fusion, incoming=incoming)
        nodes = [
            DocNode(text=f"node {position}", score=case[0]) for position, case in enumerate(cases)
        ]
        stage = reranker.trace(Stage("retriever", "given", tuple(nodes)), "q")
        assert (stage.kind, stage.name) == ("fusion", fusion)
        assert [one.kind for one in stage.inputs] == ["retriever"] * incoming + ["reranker"] * 2
        assert {node.uid for node in stage.nodes} == {node.uid for node in nodes}
        for node in stage.nodes:
            assert len(stage.contributions[node.uid]) == 2 + incoming
            assert node.score == math.fsum(stage.contributions[node.uid])

    def test_names_do_where_no_keywords_are_needed(self):
        """And a reranker that drops nodes gives those no share."""
        register_reranker(lambda nodes: nodes[:1], batch=True, name="only_the_first", replace=True)
        nodes = nodes_of(TEAS)
        found = Reranker(
            "FusionReranker", rerankers=["BM25Reranker", "only_the_first"], incoming=False
        )
        assert {node.text for node in found(nodes, query="cool")} == {*TEAS}
        assert found.trace(Stage("step", "nodes", tuple(nodes)), "cool").contributions[
            nodes[1].uid
        ] == (1 / 61, 0.0)

    def test_nodes_of_several_documents_with_one_uid_stay_apart(self, tmp_path):
        """Two folders with one file of one name have nodes of one uid."""
        documents = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.txt").write_text("green tea", encoding="utf-8")
            documents.append(Document(tmp_path / name))
        hits = Retriever(documents, "FineChunk", similarity="bm25")("tea")
        assert len(hits) == 2
        assert len({node.uid for node in hits}) == 1
        assert len(Reranker("FusionReranker", rerankers=["BM25Reranker"])(hits, query="tea")) == 2

    def test_no_nodes_stay_none(self):
        """Nothing is nothing."""
        assert Reranker("FusionReranker", rerankers=["BM25Reranker"])([], query="tea") == []

    def test_scores_are_needed_where_they_are_fused(self):
        """And not by rrf."""
        nodes = nodes_of(TEAS)
        assert Reranker("FusionReranker", rerankers=["BM25Reranker"])(nodes, query="tea")
        with pytest.raises(RetrievalError, match="without scores"):
            Reranker("FusionReranker", rerankers=["BM25Reranker"], fusion="weighted")(
                nodes, query="tea"
            )

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"rerankers": []}, "a list of Rerankers"),
            ({"rerankers": "BM25Reranker"}, "a list of Rerankers"),
            ({"rerankers": [longest_first]}, "a list of Rerankers"),
            ({"rerankers": ["BM25"]}, "No reranker is registered as 'BM25'"),
            ({"fusion": "rff"}, "No fusion is registered"),
            ({"k": -1}, "k must be .*got -1"),
            ({"kk": 1}, "no keyword 'kk'"),
            ({"fusion": "weighted", "weights": [1]}, "weights"),
            ({"incoming": "no"}, "incoming"),
            ({"topk": 0}, "topk"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, wrong, error):
        """When it is made."""
        with pytest.raises((ConfigError, NotRegisteredError), match=error):
            Reranker("FusionReranker", **{"rerankers": ["BM25Reranker"], **wrong})


def test_what_nobody_sees_hides_no_keyword():
    """Soft hyphens and decomposed accents, in keys and texts."""
    texts = ["The Refri\u00adgerator is cold", "Der Ku\u0308hlschrank"]
    nodes = [DocNode(text=text) for text in texts]
    for key, expected in (("refrigerator", texts[:1]), ("kühl\u200bschrank", texts[1:])):
        found = Reranker("KeywordFilter", required_keys=[key])(nodes)
        assert [node.text for node in found] == expected


def test_a_query_of_stop_words_is_ranked_by_them():
    """The Who: the text with both words is first; other queries do not see them."""
    texts = ["Coffee and milk", "The Who played in Leeds", "Leeds is a town", "The town hall"]
    (best, score), (second, _), *rest = Bm25RerankModel()("The Who", texts)
    assert (best, second) == (1, 3)
    assert score > max(other for _, other in rest)
    assert Bm25RerankModel()("the coffee", texts)[0][0] == 0
