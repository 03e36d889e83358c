"""A query in a language that an embedding model does not know is searched by the other retrievers
alone.
"""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from lazyrag import (
    CachedEmbedder,
    Document,
    HybridRetriever,
    OnnxEmbedder,
    RetrievalChain,
    Retriever,
    explain,
)
from lazyrag.models import MaxSimModel
from lazyrag.models.onnx.session import unknown_share
from tests.tiny_models import write_embedder

CHINESE = "绿茶 怎么 泡"
TEXTS = {"a": "绿茶 用 八十 度 的 水", "b": "green tea", "c": "early harvest", "d": "绿茶"}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """Its vocabulary is a few English words."""
    return OnnxEmbedder(
        write_embedder(tmp_path_factory.mktemp("model"), pooling={"pooling_mode": "mean"})
    )


@pytest.fixture(scope="module")
def docs(embedder):
    """Texts in two languages."""
    docs = Document(embed=embedder)
    docs.add_texts(TEXTS)
    return docs


class Letters:
    """A model of every language that counts letters, beside one that knows few words."""

    identity, dimension, max_tokens, normalised = "letters", 3, None, False

    def embed(self, texts, input_type="document"):
        """Count."""
        return [[1.0 + text.count("茶"), 1.0 + text.count("e"), 1.0] for text in texts]


def ranking(nodes):
    """Ids and scores."""
    return [(node.uid, node.score) for node in nodes]


@pytest.mark.parametrize("options", [{}, {"fusion_method": "rrf"}, {"fusion_method": "comb_mnz"}])
def test_a_hybrid_is_its_keyword_search(docs, options):
    """As if the vectors had the weight 0; queries in English are fused, the words that they lack
    notwithstanding.
    """
    hybrid = HybridRetriever.over(docs, "FineChunk", **options)
    with pytest.warns(UserWarning, match="a language that its model does not know"):
        found = hybrid(CHINESE)
    assert ranking(found) == ranking(hybrid(CHINESE, weights=[0, 1]))
    assert [node.path for node in found] == ["d", "a"]
    assert len(hybrid("green zebra")) == len(TEXTS)


@pytest.mark.filterwarnings("ignore:Queries in a language")
def test_explanations_say_so(docs):
    """With the share of unknown letters, in the stages and for a node that only vectors would
    find.
    """
    hybrid = HybridRetriever.over(docs, "FineChunk")
    assert "does not know 100% of the query's letters" in str(explain(hybrid, CHINESE))
    tea = next(node for node in docs.get_nodes("FineChunk") if node.path == "b")
    assert "does not know 100%" in str(hybrid.why_not(tea.uid, CHINESE))


@pytest.mark.filterwarnings("ignore:Queries in a language")
def test_a_chain_does_not_rerank_by_the_model(docs, embedder):
    """Late interaction keeps the order; feedback moves nothing."""
    chain, hybrid = RetrievalChain.over(docs, "FineChunk"), HybridRetriever.over(docs, "FineChunk")
    assert [node.uid for node in chain(CHINESE)] == [node.uid for node in hybrid(CHINESE)]
    assert MaxSimModel(embedder)(CHINESE, list(TEXTS.values())) == [
        (at, 0.0) for at in range(len(TEXTS))
    ]


def test_vector_search_alone_still_runs(docs):
    """Nothing else would find anything. So do hybrids whose models all fail to read the query."""
    vectors = Retriever(docs, "FineChunk")
    assert len(vectors(CHINESE)) == len(TEXTS)
    assert len(HybridRetriever(vectors, Retriever(docs, "FineChunk", "cosine"))(CHINESE)) == len(
        TEXTS
    )


def test_of_several_embed_keys_those_that_know_the_language_rank(embedder, tmp_path):
    """Also behind a cache; the other key is named as skipped."""
    with CachedEmbedder(embedder, tmp_path / "cache.db") as cached:
        docs = Document(embed={"english": cached, "letters": Letters()})
        docs.add_texts(TEXTS)
        both, letters = (
            Retriever(docs, "FineChunk", embed_keys=keys) for keys in (None, ["letters"])
        )
        assert [node.uid for node in both(CHINESE)] == [node.uid for node in letters(CHINESE)]
        assert "'english' does not know 100%" in str(both.explain(CHINESE))
        assert len(HybridRetriever.over(docs, "FineChunk")(CHINESE)) == len(TEXTS)


def test_the_share_of_unknown_letters():
    """Unknown tokens, bytes, and words of an alphabet that are spelled; never letters of ASCII."""
    letters = {
        letter: number for number, letter in enumerate("[UNK] п р и в е т м 茶 e tea ##s".split())
    }
    pieces = {**letters, **{f"##{one}": len(letters) + at for at, one in enumerate("приветмe")}}
    pieces_model = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))  # noqa: S106
    pieces_model.normalizer, pieces_model.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    for text, share in {
        "tea teas zzz": 0.0,
        "tea 茶": 0.0,
        "tea 茶水": 0.2,
        "привет": 1.0,
        "мир": 0.0,  # too short to say
        "tea: 42 ☂!": 0.0,
        "茶\ud800水": 0.5,
    }.items():
        assert unknown_share(pieces_model, text) == pytest.approx(share), text

    in_bytes = Tokenizer(
        models.BPE(
            {one: at for at, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []
        )
    )
    in_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert unknown_share(in_bytes, "te茶水") == 0.5

    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("茶", -1.0), ("t", -1.0)], 0))
    assert unknown_share(unigram, "茶水") == 0.5
