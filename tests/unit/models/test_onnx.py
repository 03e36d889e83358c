"""Embedding models in a folder: tiny ones that are computed by hand beside, and a real one."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tokenizers import Tokenizer

from lazyrag import OnnxEmbedder
from lazyrag.errors import ConfigError, EmbeddingError, MissingDependencyError, UnknownKeywordError
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.onnx.hub import find_model
from lazyrag.models.onnx.session import PADDED_TOKENS, TextModel, batches, windows
from lazyrag.models.protocols import BatchEmbedder, usage_of_calls
from tests.interpreter import python
from tests.shared import read_squad, shared
from tests.tiny_models import (
    CLS,
    SEP,
    TABLE,
    UNKNOWN,
    VOCABULARY,
    WORDS,
    ids_of,
    write_embedder,
    write_graph,
    write_json,
    write_steps,
    write_tokenizer,
)

MEAN = {"pooling_mode_mean_tokens": True}
TEXTS = ["a b c", "tea", "late frost early harvest green tea", "d e", "f f f f f f f f f"]

_texts = st.lists(
    st.lists(st.sampled_from([*WORDS, "unheard"]), min_size=1, max_size=30).map(" ".join),
    max_size=8,
)


def hidden(*words: str) -> np.ndarray:
    """The vectors of a text's tokens, special ones included."""
    return TABLE[[CLS, *itertools.chain.from_iterable(map(ids_of, words)), SEP]]


def unit(vector: np.ndarray) -> np.ndarray:
    """Brought to length 1."""
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> OnnxEmbedder:
    """A model with mean pooling that reads 16 tokens, 14 of a text."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return OnnxEmbedder(write_embedder(folder, pooling=MEAN, max_tokens=16))


@pytest.fixture(scope="module")
def real() -> OnnxEmbedder:
    """all-MiniLM-L6-v2 with int8 weights."""
    return OnnxEmbedder(shared("models", "all-minilm-l6-v2"))


POOLINGS = {
    "cls": lambda tokens: tokens[0],
    "max": lambda tokens: tokens.max(0),
    "mean": lambda tokens: tokens.mean(0),
    "mean_sqrt_len_tokens": lambda tokens: tokens.sum(0) / np.sqrt(len(tokens)),
    "weightedmean": lambda tokens: np.average(tokens, axis=0, weights=range(1, len(tokens) + 1)),
    "lasttoken": lambda tokens: tokens[-1],
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_each_pooling_does_what_its_formula_says(tmp_path, pooling):
    """On texts of several lengths in one batch, whose padding is huge: it must not count."""
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": pooling}, normalise=False)
    embedder = OnnxEmbedder(folder)
    expected = [POOLINGS[pooling](hidden(text)) for text in TEXTS]
    np.testing.assert_allclose(embedder.embed(TEXTS), expected, rtol=1e-5)
    assert not embedder.normalised


def test_several_poolings_are_concatenated(tmp_path):
    """In the order that the configuration gives, and normalised together."""
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": ["max", "cls"]})
    embedder = OnnxEmbedder(folder)
    expected = [unit(np.concatenate([hidden(text).max(0), hidden(text)[0]])) for text in TEXTS]
    np.testing.assert_allclose(embedder.embed(TEXTS), expected, rtol=1e-5)
    assert (embedder.dimension, embedder.normalised) == (12, True)


def test_it_is_a_batch_embedder(tiny):
    """With everything that the Protocol names."""
    assert isinstance(tiny, BatchEmbedder)
    assert (tiny.dimension, tiny.max_tokens, tiny.normalised) == (6, 16, True)
    assert repr(tiny) == "OnnxEmbedder('tiny', dimension=6, max_tokens=16)"
    matrix = CheckedEmbedder(tiny).embed(TEXTS)
    np.testing.assert_array_equal(matrix, tiny.embed(TEXTS))


def test_no_texts_give_no_rows(tiny):
    """But the right number of columns."""
    assert tiny.embed([]).shape == (0, 6)
    assert list(tiny.embed_batches([])) == []
    assert tiny.token_embeddings([]) == []


def test_one_text_is_no_list_of_texts(tiny):
    """Its letters are not embedded one by one."""
    with pytest.raises(ConfigError, match=r"texts must be a list of strings; got 'tea'"):
        tiny.embed("tea")


@given(_texts)
def test_a_vector_depends_on_its_text_alone(tiny, texts):
    """To the last bit, whatever stands beside it and wherever; float32."""
    matrix = tiny.embed(texts)
    assert matrix.dtype == np.float32
    assert matrix.shape == (len(texts), 6)
    for text, row in zip(texts, matrix, strict=True):
        np.testing.assert_array_equal(tiny.embed([text])[0], row)


@given(_texts)
def test_every_text_comes_once(tiny, texts):
    """In some batch, with its own vector."""
    positions = []
    for batch in tiny.embed_batches(texts):
        positions += batch.positions
        np.testing.assert_array_equal(
            np.array(batch.results), tiny.embed([texts[position] for position in batch.positions])
        )
    assert sorted(positions) == list(range(len(texts)))


def test_long_lists_are_sorted_by_parts(tiny):
    """2,500 texts come back in their order."""
    texts = [WORDS[number % len(WORDS)] + " a" * (number % 7) for number in range(2500)]
    matrix = tiny.embed(texts)
    assert matrix.shape == (2500, 6)
    for number in (0, 1023, 1024, 2048, 2499):
        np.testing.assert_array_equal(matrix[number], tiny.embed([texts[number]])[0])


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 9), st.integers(1, 200))
def test_batches_are_bounded_and_of_one_length(lengths, rows, tokens):
    """Every line in one of them, longest first; at most so many rows, and tokens once padded,
    unless it is one line.
    """
    found = list(batches(lengths, rows, tokens))
    assert sorted(itertools.chain.from_iterable(found)) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) <= rows
        assert len(batch) * max(lengths[number] for number in batch) <= tokens or len(batch) == 1
    in_order = [lengths[number] for batch in found for number in batch]
    assert in_order == sorted(lengths, reverse=True)


@given(st.integers(0, 50), st.integers(1, 9), st.booleans())
def test_windows_cover_a_text(count, room, full_last):
    """None longer than the room; one after the other, but for a last one that begins earlier to be
    full.
    """
    ids = np.arange(count)
    found = [window.tolist() for window in windows(ids, room, full_last=full_last)]
    assert {token for window in found for token in window} == set(range(count))
    assert len(found) == max(1, -(-count // room))
    assert all(len(window) <= room for window in found)
    if full_last:
        assert all(len(window) == min(room, count) for window in found)
    else:
        assert list(itertools.chain.from_iterable(found)) == list(range(count))


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60))
def test_a_long_text_is_the_average_of_its_windows(tiny, words):
    """Each of 14 tokens, the last one of the rest, normalised, weighted by their tokens, normalised
    again.
    """
    parts = [words[at : at + 14] for at in range(0, len(words), 14)]
    vectors = [unit(hidden(*part).mean(0)) for part in parts]
    expected = unit(np.average(vectors, axis=0, weights=[len(part) for part in parts]))
    np.testing.assert_allclose(tiny.embed([" ".join(words)])[0], expected, rtol=1e-4, atol=1e-6)


def test_a_long_text_may_be_refused(tmp_path):
    """It fails alone; the message says how long it is and what may be done."""
    embedder = OnnxEmbedder(
        write_embedder(tmp_path / "m", pooling=MEAN, max_tokens=6), too_long="raise"
    )
    found = CheckedEmbedder(embedder).embed_each(["a b c d", "a b c d e", "tea"])
    assert [isinstance(one, EmbeddingError) for one in found] == [False, True, False]
    with pytest.raises(
        EmbeddingError, match=r"'a b c d e' \(str\) has 5 tokens and 'm' reads 4 at once.*'split'"
    ):
        embedder.embed(["a b c d e"])


def test_a_long_text_may_be_cut(tmp_path):
    """By choice: then its end counts for nothing."""
    embedder = OnnxEmbedder(
        write_embedder(tmp_path / "m", pooling=MEAN, max_tokens=6), too_long="cut"
    )
    matrix = embedder.embed(["a b c d", "a b c d tea tea tea"])
    np.testing.assert_array_equal(matrix[0], matrix[1])


@pytest.mark.parametrize("bad", ["", "  \n", None, 7, ["a"]])
def test_what_is_no_text_fails_alone(tiny, bad):
    """Its neighbours keep their vectors, and `embed` raises its error."""
    found = CheckedEmbedder(tiny).embed_each([bad, "tea"]) if not isinstance(bad, list) else None
    if found:
        assert isinstance(found[0], EmbeddingError)
        np.testing.assert_array_equal(found[1], tiny.embed(["tea"])[0])
    with pytest.raises(EmbeddingError, match="not blank"):
        tiny.embed(["tea", bad])


def test_a_text_without_tokens_fails_alone(tmp_path):
    """What the tokenizer takes for nothing has no vector, rather than that of the special
    tokens.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    write_tokenizer(
        folder, normalizer={"type": "Replace", "pattern": {"String": "#"}, "content": ""}
    )
    embedder = OnnxEmbedder(folder)
    found = CheckedEmbedder(embedder).embed_each(["##", "#tea"])
    assert "has nothing in it that 'm' reads" in str(found[0])
    np.testing.assert_array_equal(found[1], embedder.embed(["tea"])[0])


def test_a_broken_character_does_not_fail_a_text(tiny):
    """Half a surrogate pair, as damaged files have it, is an unknown character."""
    np.testing.assert_array_equal(tiny.embed(["tea \ud800"]), tiny.embed(["tea \ufffd"]))


def test_a_text_that_breaks_the_graph_fails_alone(tmp_path):
    """Tokens beyond the table, as of a tokenizer that is not the model's: those in its batch are
    asked for again.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN, table=TABLE[: VOCABULARY["harvest"]])
    embedder = OnnxEmbedder(folder)
    found = CheckedEmbedder(embedder).embed_each(["tea", "harvest", "green tea"])
    assert "OnnxEmbedder('m', dimension=6, max_tokens=64) failed" in str(found[1])
    np.testing.assert_array_equal(
        np.array([found[0], found[2]]), embedder.embed(["tea", "green tea"])
    )


def test_a_pooled_output_is_not_pooled_again(tmp_path):
    """It is used as it is, unless a pooling is asked for."""
    folder = write_embedder(
        tmp_path / "m", pooling={"pooling_mode": "max"}, normalise=False, pooled=True
    )
    expected = [hidden(text).mean(0) for text in TEXTS]
    np.testing.assert_allclose(OnnxEmbedder(folder).embed(TEXTS), expected, rtol=1e-5)
    expected = [hidden(text)[0] for text in TEXTS]
    np.testing.assert_allclose(
        OnnxEmbedder(folder, pooling="cls").embed(TEXTS), expected, rtol=1e-5
    )


def test_a_graph_may_give_one_pooled_output_only(tmp_path):
    """Whatever its name; it needs no modules.json, and has no vectors of tokens."""
    folder = write_embedder(tmp_path / "m")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMax", ["rows"], ["vector"], axes=[1], keepdims=0),
    ]
    write_graph(
        folder / "model.onnx", nodes, {"vector": ("batch", 6)}, {"table": TABLE}, ("input_ids",)
    )
    embedder = OnnxEmbedder(folder, batch_size=1)
    np.testing.assert_allclose(embedder.embed(["tea"])[0], unit(hidden("tea").max(0)), rtol=1e-5)
    with pytest.raises(ConfigError, match="one vector for each text and none for its tokens"):
        embedder.token_embeddings(["tea"])


def test_a_graph_without_vectors_is_refused(tmp_path):
    """Its outputs are listed; a cross-encoder or a generator is likely."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMax", ["rows"], ["logits"], axes=[1], keepdims=0),
        helper.make_node("ReduceMax", ["rows"], ["largest"], axes=[1, 2], keepdims=0),
    ]
    write_graph(
        folder / "model.onnx",
        nodes,
        {"logits": ("b", 6), "largest": ("b",)},
        {"table": TABLE},
        ("input_ids",),
    )
    with pytest.raises(
        ConfigError, match=r"gives logits with 2 axes, largest with 1 axes.*Is it a cross-encoder"
    ):
        OnnxEmbedder(folder)


def test_an_unknown_input_type_is_refused(tiny):
    """Rather than embedded as something else."""
    with pytest.raises(ConfigError, match=r"input_type 'passage'\. Known: document, query"):
        tiny.embed(["tea"], "passage")


def test_what_is_not_declared_is_not_fed(tmp_path):
    """A graph gets types and positions if it asks for them, in the numbers that it asks for."""
    inputs = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    folder = write_embedder(
        tmp_path / "m",
        inputs=inputs,
        kind=TensorProto.INT32,
        pooling={"pooling_mode": "lasttoken"},
        normalise=False,
    )
    expected = [hidden(text)[-1] + len(hidden(text)) - 1 for text in TEXTS]
    np.testing.assert_allclose(OnnxEmbedder(folder).embed(TEXTS), expected, rtol=1e-5)
    folder = write_embedder(tmp_path / "n", inputs=("input_ids",), pooling=MEAN, normalise=False)
    np.testing.assert_allclose(
        OnnxEmbedder(folder).embed(["tea"])[0], hidden("tea").mean(0), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inputs": ("input_ids", "past_key_values")},
            "wants 'past_key_values'.*takes attention_mask, input_ids",
        ),
        ({"kind": TensorProto.INT16}, r"wants 'input_ids' as tensor\(int16\)"),
        (
            {"shape": (1, 128)},
            r"wants 'input_ids' of shape \[1, 128\].*free batch and sequence axes",
        ),
        ({"table": TABLE[:2]}, "fails on its first texts"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(tmp_path, changes, message):
    """When it is loaded, and by name."""
    if "kind" in changes:  # a gather takes 32 or 64 bits
        folder = write_embedder(tmp_path / "m", pooling=MEAN)
        nodes = [
            helper.make_node("Cast", ["input_ids"], ["last_hidden_state"], to=TensorProto.FLOAT)
        ]
        write_graph(
            folder / "model.onnx",
            nodes,
            {"last_hidden_state": ("b", "t")},
            {},
            ("input_ids",),
            **changes,
        )
    else:
        folder = write_embedder(tmp_path / "m", pooling=MEAN, **changes)
    with pytest.raises(ConfigError, match=message):
        OnnxEmbedder(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.onnx", b"no graph", r"model\.onnx cannot be loaded.*Fetch or export"),
        ("model.onnx", None, "has no ONNX file"),
        ("tokenizer.json", b"{}", r"tokenizer\.json cannot be used as a tokenizer"),
        ("tokenizer.json", None, r"has no tokenizer\.json"),
        ("config.json", b"{", r"config\.json cannot be used"),
        ("sentence_bert_config.json", b"{", r"sentence_bert_config\.json cannot be used"),
        ("modules.json", b"{", r"modules\.json cannot be used"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content, message):
    """Missing, or with something else in it."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        OnnxEmbedder(folder)


def test_a_tokenizer_must_read_letters(tmp_path):
    """One that makes nothing of a letter belongs to something else."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    write_tokenizer(
        folder, normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": ""}
    )
    with pytest.raises(ConfigError, match="no token for the letter 'a'"):
        OnnxEmbedder(folder)


def test_pooling_is_not_guessed(tmp_path):
    """Without modules.json it must be given; vectors are normalised then, unless that is refused
    too.
    """
    folder = write_embedder(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"no modules\.json.*pass pooling=.*cls, max, mean"):
        OnnxEmbedder(folder)
    np.testing.assert_allclose(
        OnnxEmbedder(folder, pooling="mean").embed(["tea"])[0], unit(hidden("tea").mean(0))
    )
    raw = OnnxEmbedder(folder, pooling="mean", normalise=False)
    np.testing.assert_allclose(raw.embed(["tea"])[0], hidden("tea").mean(0), rtol=1e-6)
    assert not raw.normalised
    with pytest.raises(ConfigError, match=r"pooling 'median'\. Known: cls"):
        OnnxEmbedder(folder, pooling="median")


def test_steps_that_the_graph_lacks_are_refused(tmp_path):
    """A Dense layer is named; a graph that holds it, as its pooled output says, is fine."""
    folder = write_embedder(tmp_path / "m", pooled=True)
    write_steps(folder, MEAN, more=["Dense"])
    assert OnnxEmbedder(folder).embed(["tea"]).shape == (1, 6)
    with pytest.raises(ConfigError, match="has the steps Dense, which the graph does not take"):
        OnnxEmbedder(folder, pooling="mean")


def test_a_model_without_a_known_length_asks_for_it(tmp_path):
    """No limit at all would fail somewhere inside of the graph."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN, max_tokens=None)
    write_json(folder / "config.json", {})
    with pytest.raises(ConfigError, match=r"does not say how many tokens.*Pass max_tokens"):
        OnnxEmbedder(folder)
    assert OnnxEmbedder(folder, max_tokens=9).max_tokens == 9


@pytest.mark.parametrize("wrong", [0, -1, 513, 2.5, True, "64"])
def test_a_length_lies_within_the_models_positions(tmp_path, wrong):
    """1 to 512 here."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    with pytest.raises(ConfigError, match=r"max_tokens"):
        OnnxEmbedder(folder, max_tokens=wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"threads": 0}, "threads"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 7}, "dimension is 7; 'm' gives vectors of 6 numbers"),
        ({"too_long": "truncate"}, "too_long 'truncate'. Known: cut, raise, split"),
        ({"pooling": []}, "one or several of"),
        ({"providers": "CPUExecutionProvider"}, "providers must be names of execution providers"),
        ({"providers": ["CUDAExecutionProvider"]}, r"has \[.*'CPUExecutionProvider'"),
        ({"query_prefix": 7}, "query_prefix must be a string or None"),
        ({"query_prefix": "a " * 62}, "the query_prefix 'a a a.*leave no room for a text"),
    ],
)
def test_a_value_out_of_its_range_is_refused(tmp_path, wrong, message):
    """With what is allowed."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    with pytest.raises(ConfigError, match=message):
        OnnxEmbedder(folder, **wrong)


def test_an_execution_provider_does_not_change_the_identity(tmp_path):
    """An index that was built on a GPU is searched on a CPU."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    embedder = OnnxEmbedder(folder)
    same = OnnxEmbedder(folder, providers=["CPUExecutionProvider"])
    assert same.identity == embedder.identity
    np.testing.assert_array_equal(same.embed(["tea"]), embedder.embed(["tea"]))


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_an_execution_provider_that_does_not_start_is_an_error(tmp_path, monkeypatch):
    """The runtime alone would use the CPU, many times slower, and say nothing."""
    runtime = pytest.importorskip("onnxruntime")
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(runtime, "get_available_providers", lambda: names)
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    with pytest.raises(ConfigError, match=r"started \['CPUExecutionProvider'\] of providers="):
        OnnxEmbedder(folder, providers=names)


def test_an_unknown_keyword_names_the_nearest(tmp_path):
    """As everywhere in this package."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'normalise'"):
        OnnxEmbedder(tmp_path, normalize=True)


def test_prompts_are_put_before_texts(tmp_path):
    """The folder's own, unless others are given; "" puts none."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "query: ", "passage": "passage: "}},
    )
    embedder = OnnxEmbedder(folder)
    np.testing.assert_allclose(
        embedder.embed(["tea"], "query")[0], unit(hidden("query: tea").mean(0)), rtol=1e-5
    )
    np.testing.assert_allclose(
        embedder.embed(["tea"])[0], unit(hidden("passage: tea").mean(0)), rtol=1e-5
    )
    own = OnnxEmbedder(folder, query_prefix="green ", document_prefix="")
    np.testing.assert_allclose(
        own.embed(["tea"], "query")[0], unit(hidden("green tea").mean(0)), rtol=1e-5
    )
    np.testing.assert_allclose(own.embed(["tea"])[0], unit(hidden("tea").mean(0)), rtol=1e-5)


def test_every_window_has_the_prompt(tmp_path):
    """A model that wants it wants it always; it takes room in each of them."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN, max_tokens=7)
    embedder = OnnxEmbedder(folder, document_prefix="passage: ")
    vectors = [unit(hidden("passage: a b c d").mean(0)), unit(hidden("passage: e").mean(0))]
    expected = unit(4 * vectors[0] + vectors[1])
    np.testing.assert_allclose(embedder.embed(["a b c d e"])[0], expected, rtol=1e-5)


def test_a_prompt_may_stay_out_of_the_pooling(tmp_path):
    """With include_prompt false, as INSTRUCTOR models have it, the prompt is read and not
    averaged.
    """
    folder = write_embedder(
        tmp_path / "m", pooling={**MEAN, "include_prompt": False}, normalise=False
    )
    embedder = OnnxEmbedder(folder, query_prefix="query: ")
    np.testing.assert_allclose(
        embedder.embed(["tea a"], "query")[0], hidden("tea a")[1:].mean(0), rtol=1e-5
    )
    np.testing.assert_allclose(embedder.embed(["tea a"])[0], hidden("tea a").mean(0), rtol=1e-5)


def test_texts_are_put_in_lower_case_where_the_model_says_so(tmp_path):
    """sentence_bert_config.json, not the tokenizer, says it for some."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    embedder = OnnxEmbedder(folder)
    np.testing.assert_array_equal(embedder.embed(["Green TEA"]), embedder.embed(["green tea"]))


def test_first_numbers_of_a_vector(tmp_path):
    """As many as asked for or as the model says, of length 1 again."""
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    whole = OnnxEmbedder(folder).embed(TEXTS)
    embedder = OnnxEmbedder(folder, dimension=4)
    assert embedder.dimension == 4
    np.testing.assert_allclose(embedder.embed(TEXTS), [unit(row[:4]) for row in whole], rtol=1e-5)
    write_json(folder / "config_sentence_transformers.json", {"truncate_dim": 2})
    assert OnnxEmbedder(folder).embed(TEXTS).shape == (len(TEXTS), 2)
    assert OnnxEmbedder(folder, dimension=6).dimension == 6


def test_texts_that_sway_each_other_are_embedded_one_by_one(tmp_path):
    """A graph that quantises by the largest number of a batch: by default neighbours change
    nothing.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN, quantised=True)
    alone = OnnxEmbedder(folder)
    for text, row in zip(TEXTS, alone.embed(TEXTS), strict=True):
        np.testing.assert_array_equal(alone.embed([text])[0], row)
    together = OnnxEmbedder(folder, batch_size=8)
    texts = [TEXTS[0], TEXTS[3]]  # a batch of all of them quantises one to zeros, which is an error
    assert np.abs(together.embed(texts) - alone.embed(texts)).max() > 1e-3
    assert together.identity != alone.identity


def test_equal_content_has_an_equal_identity(tmp_path):
    """Wherever it lies, and whatever does not change a vector; it begins with what people call the
    model.
    """
    folder = write_embedder(tmp_path / "here" / "tiny", pooling=MEAN)
    shutil.copytree(folder, tmp_path / "there" / "tiny")
    identity = OnnxEmbedder(folder).identity
    assert identity.startswith("onnx:tiny:")
    assert str(tmp_path) not in identity
    assert (
        OnnxEmbedder(
            tmp_path / "there" / "tiny", batch_size=2, threads=1, file="model.onnx"
        ).identity
        == identity
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "settings",
    [
        {"pooling": "cls"},
        {"normalise": False},
        {"dimension": 4},
        {"query_prefix": "query: "},
        {"document_prefix": "query: "},
        {"max_tokens": 32},
        {"too_long": "cut"},
    ],
    ids=str,
)
def test_what_changes_vectors_changes_the_identity(tmp_path, settings):
    """Each setting on its own."""
    folder = write_embedder(tmp_path / "tiny", pooling=MEAN)
    assert OnnxEmbedder(folder, **settings).identity != OnnxEmbedder(folder).identity


def test_another_model_has_another_identity(tmp_path):
    """Other weights, another tokenizer; and of a file that was changed after it was loaded there is
    none.
    """
    folder = write_embedder(tmp_path / "tiny", pooling=MEAN)
    embedder, first = OnnxEmbedder(folder), OnnxEmbedder(folder).identity
    write_embedder(folder, pooling=MEAN, table=TABLE + np.float32(0.5))
    second = OnnxEmbedder(folder).identity
    write_tokenizer(folder, normalizer={"type": "Lowercase"})
    assert len({first, second, OnnxEmbedder(folder).identity}) == 3
    with pytest.raises(ConfigError, match=r"model\.onnx has changed since the model was loaded"):
        embedder.identity  # noqa: B018  it is computed when it is asked for


def test_token_vectors_stand_for_the_text_alone(tmp_path):
    """A row for each of its tokens, of length 1: not the special ones, not a prompt's; windows one
    after the other.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN, max_tokens=5)
    embedder = OnnxEmbedder(folder, query_prefix="query: ")
    [short, long] = embedder.token_embeddings(["tea", "a b c d e f"], "query")
    np.testing.assert_allclose(short, [unit(TABLE[VOCABULARY["tea"]])], rtol=1e-6)
    np.testing.assert_allclose(
        long, [unit(TABLE[token]) for token in ids_of("a b c d e f")], rtol=1e-6
    )
    with pytest.raises(EmbeddingError, match="not blank"):
        embedder.token_embeddings(["tea", " "])


def test_tokens_are_counted(tiny):
    """Of the text alone, beyond any limit."""
    assert [tiny.count_tokens(text) for text in ("", "tea", "green tea", "a " * 100)] == [
        0,
        1,
        2,
        100,
    ]


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch, package):
    """Before anything is said about the folder."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingDependencyError, match=rf"^OnnxEmbedder needs.*'{package}'.*\.\[onnx\]"
    ):
        OnnxEmbedder(tmp_path)


@pytest.mark.slow
def test_several_threads_may_share_an_embedder(tiny):
    """Eight at a time get what one gets."""
    lists = [[f"{word} {other}" for word in WORDS] for other in WORDS]
    expected = [tiny.embed(texts) for texts in lists]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(tiny.embed, lists * 4))
    for number, matrix in enumerate(found):
        np.testing.assert_array_equal(matrix, expected[number % len(lists)])


@pytest.mark.slow
def test_the_runtime_reports_to_nobody(tmp_path, monkeypatch):
    """onnxruntime from 1.29 on leaves an id in the user's folder and sends reports; not here,
    unless it is wanted.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    script = f"from lazyrag.models.onnx import OnnxEmbedder; print(OnnxEmbedder({str(folder)!r}).embed(['tea']).shape)"
    done = python("-c", script)
    assert done.stdout == "(1, 6)\n", done.stderr
    assert done.stderr == ""
    assert list(home.rglob("*")) == []


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_models_settings(real):
    """384 numbers of length 1, 256 tokens."""
    assert (real.dimension, real.max_tokens, real.normalised) == (384, 256, True)
    matrix = real.embed(["The weather is lovely today.", "今天天气很好"])
    assert matrix.shape == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-6)


PUBLISHED = {
    ("The weather is lovely today.", "It's so sunny outside!"): 0.6660,
    ("The weather is lovely today.", "He drove to the stadium."): 0.1046,
    ("It's so sunny outside!", "He drove to the stadium."): 0.1411,
    ("The new movie is awesome", "The dog plays in the garden"): 0.0543,
    ("The new movie is awesome", "The new movie is so great"): 0.8939,
    ("The new movie is awesome", "A woman watches TV"): -0.0502,
    ("The cat sits outside", "The dog plays in the garden"): 0.2838,
    ("The cat sits outside", "The new movie is so great"): -0.0029,
    ("The cat sits outside", "A woman watches TV"): 0.1310,
    ("A man is playing guitar", "The dog plays in the garden"): 0.2277,
    ("A man is playing guitar", "The new movie is so great"): -0.0136,
    ("A man is playing guitar", "A woman watches TV"): -0.0327,
}
"""Cosines of the float32 model in sentence-transformers' documentation: its quickstart, Semantic
Textual Similarity."""


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_model_gives_the_published_cosines(real):
    """Within what 8 bits cost: seen were a root mean square of .028 and at most .058.

    The same 8-bit weights computed in float32 give .022 and .043.
    """
    errors = [
        float(vectors[0] @ vectors[1]) - PUBLISHED[pair]
        for pair in PUBLISHED
        if len(vectors := real.embed(pair))
    ]
    assert np.sqrt(np.mean(np.square(errors))) < 0.035
    assert np.abs(errors).max() < 0.07


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_model_gives_the_published_vector(real):
    """Of "hello world" fastembed checks five numbers; 8 bits have moved them by .017 at most."""
    published = np.array([-0.034478, 0.03102, 0.00673, 0.02611, -0.039362])
    found = real.embed(["hello world"])[0, :5]
    np.testing.assert_allclose(found, published, atol=0.02)
    assert unit(found) @ unit(published) > 0.93


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_model_is_run_as_its_card_says(real):
    """The mean over all tokens, normalised: to the last digits what the runtime alone gives."""
    folder = shared("models", "all-minilm-l6-v2")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    for text in ("hello world", "Fig trees need no frost; 无花果怕冷。"):
        ids = np.array([tokenizer.encode(text).ids])
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        [[tokens]] = session.run(["last_hidden_state"], feeds)
        np.testing.assert_allclose(real.embed([text])[0], unit(tokens.mean(axis=0)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_model_reads_all_its_tokens(real):
    """Not the 128 that its tokenizer.json cuts off at: what stands behind them changes the
    vector.
    """
    [paragraph] = sorted(
        read_squad(shared("data", "retrieval", "xquad", "xquad.en.json"))[0], key=len
    )[-40:-39]
    words = paragraph.split()
    shorter = " ".join(words[:110])
    assert 128 < real.count_tokens(paragraph) < 254
    first, second = real.embed([paragraph, shorter])
    assert first @ second < 0.999


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_model_gives_one_vector_for_one_text(real):
    """To the last bit, alone and among others; its activations are quantised batch by batch, so it
    matters.
    """
    paragraphs, questions = read_squad(shared("data", "retrieval", "xquad", "xquad.en.json"))
    texts = [*paragraphs[:6], *(question for question, _ in questions[:6])]
    together = real.embed(texts)
    np.testing.assert_array_equal(together, np.concatenate([real.embed([text]) for text in texts]))
    np.testing.assert_array_equal(together[::-1], real.embed(texts[::-1]))


@pytest.mark.slow
@pytest.mark.shared
def test_what_batches_cost_the_real_model(real):
    """With a batch size, vectors move by what quantising costs: a cosine of .98 at least, on real
    texts.
    """
    batched = OnnxEmbedder(shared("models", "all-minilm-l6-v2"), batch_size=32)
    _, questions = read_squad(shared("data", "retrieval", "xquad", "xquad.en.json"))
    texts = [question for question, _ in questions[:64]]
    cosines = (batched.embed(texts) * real.embed(texts)).sum(axis=1)
    assert 0.97 < cosines.min() < 0.9999
    assert batched.identity != real.identity


@pytest.mark.slow
@pytest.mark.shared
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_rows_are_what_the_tokenizer_makes(real, texts):
    """Its own special tokens around one text and around two, for any texts."""
    folder = shared("models", "all-minilm-l6-v2")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    model = real._model
    for text, ids in zip(texts, model.ids(texts), strict=True):
        expected = tokenizer.encode(text)
        row = model.one.row(ids)
        assert (row.ids.tolist(), row.types.tolist()) == (expected.ids, expected.type_ids)
        expected = tokenizer.encode(texts[0], text)
        row = model.two.row(model.ids(texts[:1])[0], ids)
        assert (row.ids.tolist(), row.types.tolist()) == (expected.ids, expected.type_ids)


@pytest.mark.parametrize(
    "processor",
    [
        {"type": "RobertaProcessing", "sep": ["[SEP]", SEP], "cls": ["[CLS]", CLS], "trim_offsets": True,
         "add_prefix_space": False},
        {"type": "BertProcessing", "sep": ["[SEP]", SEP], "cls": ["[CLS]", CLS]},
        None,
    ],
    ids=["roberta", "bert", "none"],
)  # fmt: skip
def test_other_frames_are_read_off_too(tmp_path, processor):
    """Two separators between texts, types, or no special tokens at all: as the tokenizer itself
    sets them.
    """
    folder = write_embedder(tmp_path / "m", pooling=MEAN)
    write_tokenizer(folder, post_processor=processor)
    model = TextModel("The test", find_model(folder))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    a, b = model.ids(["green tea", "late frost early"])
    for row, expected in (
        (model.one.row(a), tokenizer.encode("green tea")),
        (model.two.row(a, b), tokenizer.encode("green tea", "late frost early")),
    ):
        assert (row.ids.tolist(), row.types.tolist()) == (expected.ids, expected.type_ids)
    assert model.two.size == len(tokenizer.encode("a", "a").ids) - 2


def test_unknown_words_are_one_token(tiny):
    """The oracle of these tests reads as the tokenizer does."""
    described = json.loads((tiny._model.path.parent / "tokenizer.json").read_text())
    assert described["truncation"]["max_length"] == 4
    assert (
        tiny._model.ids(["tea unheard"])[0].tolist()
        == [VOCABULARY["tea"], UNKNOWN]
        == ids_of("tea unheard")
    )
    assert PADDED_TOKENS > 16


def test_a_vector_that_is_not_finite_fails_its_text(tmp_path):
    """A damaged model's nan is an error of that text, and no vector of any."""
    table = TABLE.copy()
    table[VOCABULARY["f"]] = np.nan
    embedder = OnnxEmbedder(
        write_embedder(tmp_path / "m", pooling={"pooling_mode_mean_tokens": True}, table=table)
    )
    with pytest.raises(EmbeddingError, match="finite"):
        embedder.embed(["a b", "f"])
    assert np.isfinite(embedder.embed(["a b"])).all()


def test_the_tokens_that_a_model_reads_are_its_usage(tiny):
    """The special ones are read, too; padding is not."""
    calls = []
    token = usage_of_calls.set(calls)
    try:
        tiny.embed(["green tea", "tea"])
    finally:
        usage_of_calls.reset(token)
    one = [len(tiny._model.ids([text])[0]) + tiny._model.one.size for text in ("green tea", "tea")]
    assert sum(call.prompt_tokens for call in calls) == sum(one)
