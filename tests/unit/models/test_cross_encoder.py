"""Cross-encoders in a folder. None is among the shared models: these are tiny, and each score is
computed by hand.
"""

from __future__ import annotations

import math
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Reranker
from lazyrag.errors import ConfigError, MissingDependencyError, RetrievalError
from lazyrag.models import OnnxCrossEncoder, RerankModel
from tests.tiny_models import (
    VOCABULARY,
    WEIGHTS,
    WORDS,
    shared_weight,
    write_cross_encoder,
    write_embedder,
    write_json,
)

QUERY = "green tea"
DOCUMENTS = [
    "tea",
    "a cup of green tea tea",
    "late frost",
    "",
    "early harvest of green tea a b c d e f",
]

_words = st.lists(st.sampled_from([*WORDS, "unheard"]), max_size=40)


def sigmoid(logit: float) -> float:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + math.exp(-logit))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> OnnxCrossEncoder:
    """A model that adds up the weights of shared words, and reads 64 tokens."""
    return OnnxCrossEncoder(
        write_cross_encoder(tmp_path_factory.mktemp("models") / "tiny"), activation="identity"
    )


def test_scores_are_the_models(tiny):
    """Each as computed by hand, best first, ties by index; padding, which weighs 1000 in this
    model, counts nowhere.
    """
    expected = sorted(
        ((index, shared_weight(QUERY, document)) for index, document in enumerate(DOCUMENTS)),
        key=lambda pair: (-pair[1], pair[0]),
    )
    assert [index for index, _ in expected] == [1, 4, 0, 2, 3]
    assert tiny(QUERY, DOCUMENTS) == expected


def test_it_is_a_rerank_model(tiny):
    """It goes where the Protocol is asked for, a Reranker for one."""
    assert isinstance(tiny, RerankModel)
    assert repr(tiny) == "OnnxCrossEncoder('tiny', max_tokens=64)"
    nodes = [DocNode(text=text) for text in DOCUMENTS]
    ranked = Reranker("ModuleReranker", model=tiny, topk=2)(nodes, query=QUERY)
    assert [node.text for node in ranked] == [DOCUMENTS[1], DOCUMENTS[4]]


def test_scores_are_probabilities_by_default(tmp_path):
    """The sigmoid of the one logit, as sentence-transformers has it; large ones do not overflow."""
    model = OnnxCrossEncoder(write_cross_encoder(tmp_path / "m"))
    found = dict(model(QUERY, DOCUMENTS))
    assert found == pytest.approx(
        {at: sigmoid(shared_weight(QUERY, text)) for at, text in enumerate(DOCUMENTS)}
    )
    many = "harvest " * 40
    [(_, score)] = model("harvest", [many])
    assert score == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("file", "described", "activation"),
    [
        (
            "config.json",
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            None,
        ),
        (
            "config.json",
            {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            None,
        ),
        (
            "config_sentence_transformers.json",
            {"activation_fn": "torch.nn.modules.linear.Identity"},
            None,
        ),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.Sigmoid"}, "identity"),
    ],
)
def test_the_activation_is_the_models_own(tmp_path, file, described, activation):
    """Where releases of sentence-transformers have written it; an argument comes first."""
    folder = write_cross_encoder(tmp_path / "m")
    write_json(folder / file, {"max_position_embeddings": 64, **described})
    [(_, score)] = OnnxCrossEncoder(folder, activation=activation)(QUERY, ["tea"])
    assert score == shared_weight(QUERY, "tea")


def test_an_unknown_activation_is_refused(tmp_path):
    """Named by the folder or by the user; softmax of one label would be 1 for all."""
    folder = write_cross_encoder(
        tmp_path / "m", config={"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}
    )
    with pytest.raises(
        ConfigError, match=r"unknown activation 'torch\.nn\.Tanh'.*activation='identity'"
    ):
        OnnxCrossEncoder(folder)
    for wrong in ("tanh", "softmax"):
        with pytest.raises(
            ConfigError, match=f"activation for 1 labels '{wrong}'. Known: identity, sigmoid"
        ):
            OnnxCrossEncoder(folder, activation=wrong)


def test_of_several_labels_one_is_chosen(tmp_path):
    """By its number, with its probability among all of them; without a choice the error lists
    them.
    """
    folder = write_cross_encoder(
        tmp_path / "m", labels=3, config={"id2label": {"0": "yes", "1": "no", "2": "other"}}
    )
    with pytest.raises(ConfigError, match=r"3 labels: .*'yes'.*Pass label="):
        OnnxCrossEncoder(folder)
    logits = shared_weight(QUERY, "tea") * np.array([1.0, -1.0, -2.0])
    [(_, score)] = OnnxCrossEncoder(folder, label=1)(QUERY, ["tea"])
    assert score == pytest.approx(np.exp(logits[1]) / np.exp(logits).sum())
    assert OnnxCrossEncoder(folder, label=2, activation="identity")(QUERY, ["tea"]) == [
        (0, logits[2])
    ]
    with pytest.raises(ConfigError, match="label"):
        OnnxCrossEncoder(folder, label=3)


@given(_words.map(" ".join), st.lists(_words.map(" ".join), max_size=6))
def test_documents_do_not_sway_each_other(tiny, query, documents):
    """Any list: each document's score is the one that it gets alone, equal ones tie by index."""
    if not query.strip():
        return
    ranked = tiny(query, documents)
    assert ranked == sorted(ranked, key=lambda pair: (-pair[1], pair[0]))
    assert sorted(index for index, _ in ranked) == list(range(len(documents)))
    for index, score in ranked:
        assert tiny(query, [documents[index]]) == [(0, score)]


@given(_words)
def test_of_a_long_document_the_best_window_counts(tiny, words):
    """59 tokens at a time beside a query of 2; the last window begins earlier, so that it is full
    too.
    """
    words = words * 5
    room = 64 - 3 - 2
    starts = [min(start, max(0, len(words) - room)) for start in range(0, max(1, len(words)), room)]
    expected = max(shared_weight(QUERY, " ".join(words[start : start + room])) for start in starts)
    [(_, score)] = tiny(QUERY, [" ".join(words)])
    assert score == pytest.approx(expected)


def test_what_stands_behind_the_limit_counts(tiny):
    """A long document's end is read as well as its beginning."""
    end = "a " * 200 + QUERY
    assert dict(tiny(QUERY, [end, QUERY + " a" * 200, QUERY])) == dict.fromkeys(
        range(3), shared_weight(QUERY, QUERY)
    )


def test_a_query_is_never_cut(tiny):
    """One that leaves no room for a document is refused, with its length."""
    assert len(tiny("a " * 60, ["tea"])) == 1
    with pytest.raises(ConfigError, match="The query has 61 tokens, and 'tiny' reads 64 at once"):
        tiny("a " * 61, ["tea"])


def test_only_the_best_are_given_where_asked_for(tiny):
    """At most so many; without documents there is nothing to say."""
    assert tiny(QUERY, DOCUMENTS, top_n=2) == tiny(QUERY, DOCUMENTS)[:2]
    assert len(tiny(QUERY, DOCUMENTS, top_n=99)) == len(DOCUMENTS)
    assert tiny(QUERY, []) == []


@pytest.mark.parametrize(
    ("query", "documents", "top_n", "message"),
    [
        (" ", ["tea"], None, "query .*not blank"),
        (None, ["tea"], None, "query must be"),
        (QUERY, "tea", None, "documents must be"),
        (QUERY, ["tea", None], None, "must be a list of strings"),
        (QUERY, ["tea"], 0, "top_n"),
    ],
)
def test_what_cannot_be_ranked_is_refused(tiny, query, documents, top_n, message):
    """With what is allowed."""
    with pytest.raises(ConfigError, match=message):
        tiny(query, documents, top_n)


def test_pairs_that_sway_each_other_are_scored_one_by_one(tmp_path):
    """A graph that quantises by the largest number of a batch: by default neighbours change
    nothing.
    """
    folder = write_cross_encoder(tmp_path / "m", quantised=True)
    alone, together = (
        OnnxCrossEncoder(folder, activation="identity", batch_size=size) for size in (None, 8)
    )
    scores = dict(alone(QUERY, DOCUMENTS))
    assert scores == {at: alone(QUERY, [text])[0][1] for at, text in enumerate(DOCUMENTS)}
    assert dict(together(QUERY, DOCUMENTS)) != scores
    assert together.identity != alone.identity


def test_a_failing_model_is_a_retrieval_error(tmp_path):
    """As the Protocol says; the cause is kept."""
    model = OnnxCrossEncoder(
        write_cross_encoder(tmp_path / "m", weights=WEIGHTS[: VOCABULARY["harvest"]])
    )
    assert len(model(QUERY, ["tea"])) == 1
    with pytest.raises(
        RetrievalError, match=r"OnnxCrossEncoder\('m', max_tokens=64\) failed"
    ) as caught:
        model(QUERY, ["harvest"])
    assert caught.value.__cause__ is not None


def test_an_embedding_model_is_no_cross_encoder(tmp_path):
    """Its output says so, or its steps do."""
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": "mean"})
    with pytest.raises(ConfigError, match="Is it an embedding model"):
        OnnxCrossEncoder(folder)
    folder = write_cross_encoder(tmp_path / "n")
    write_json(folder / "modules.json", [{"type": "x.Transformer"}, {"type": "x.LogitScore"}])
    with pytest.raises(ConfigError, match="has the steps LogitScore"):
        OnnxCrossEncoder(folder)


def test_types_are_told_where_the_tokenizer_tells_them(tmp_path):
    """Some do not, as their own list of inputs says; this model then takes all for the query, and
    gives 0.
    """
    folder = write_cross_encoder(tmp_path / "m")
    model = OnnxCrossEncoder(folder, activation="identity")
    write_json(
        folder / "tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]}
    )
    other = OnnxCrossEncoder(folder, activation="identity")
    assert model(QUERY, ["tea"]) == [(0, shared_weight(QUERY, "tea"))]
    assert other(QUERY, ["tea"]) == [(0, 0.0)]
    assert other.identity != model.identity


def test_an_identity_tells_models_and_settings_apart(tmp_path):
    """The same content elsewhere has the same; each setting that changes scores changes it."""
    folder = write_cross_encoder(tmp_path / "here" / "tiny", labels=2)
    shutil.copytree(folder, tmp_path / "there" / "tiny")
    identity = OnnxCrossEncoder(folder, label=0).identity
    assert identity.startswith("onnx:tiny:")
    assert OnnxCrossEncoder(tmp_path / "there" / "tiny", label=0, batch_size=3).identity == identity
    others = [{"label": 1}, {"label": 0, "activation": "identity"}, {"label": 0, "max_tokens": 32}]
    assert (
        len({identity, *(OnnxCrossEncoder(folder, **settings).identity for settings in others)})
        == 4
    )


def test_several_threads_may_share_a_model(tiny):
    """Eight at a time get what one gets."""
    expected = {word: tiny(word, DOCUMENTS) for word in WORDS}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda word: (word, tiny(word, DOCUMENTS)), WORDS * 4))
    assert all(ranked == expected[word] for word, ranked in found)


def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch):
    """Before anything is said about the folder."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"^OnnxCrossEncoder needs.*\.\[onnx\]"):
        OnnxCrossEncoder(tmp_path)


@pytest.mark.parametrize("document", ["f a a a a a a a a a a a", "tea a a a a a a a a a a f"])
def test_a_score_that_is_not_finite_is_told(tmp_path, document):
    """In whichever window of a document it stands; it is not passed over for a better window."""
    weights = WEIGHTS.copy()
    weights[VOCABULARY["f"]] = np.nan
    folder = tmp_path / "c"
    write_cross_encoder(folder, weights=weights, max_tokens=10)
    with pytest.raises(RetrievalError, match="not finite"):
        OnnxCrossEncoder(folder)("tea f", ["green cup", document])
