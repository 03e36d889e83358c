"""Another embedding model behind the same function is noticed when a store is opened again."""

from __future__ import annotations

import functools
import sqlite3
import types
import warnings
import zlib

import numpy as np
import pytest

from lazyrag import Document, HttpEmbedder, Retriever
from lazyrag.errors import IngestionWarning, ReadOnlyError
from lazyrag.groups.node_group import embed_identity
from lazyrag.ingest.model_identity import PROBE
from tests.model_server import failed

SIZE = 8
TEXTS = {name: f"{name} is about tea" for name in ("word0", "word1", "word2", "word3", "word4")}


def vector(text, model):
    """The vector of a bag of words; those of model B are reversed."""
    numbers = [0.01] * SIZE
    for word in text.lower().split():
        numbers[zlib.crc32(word.encode()) % SIZE] += 1
    return numbers if model == "A" else numbers[::-1]


asked = []
MODEL = "A"
SETTINGS = types.SimpleNamespace()


def ask(model, text):
    """Call a model."""
    asked.append((model, text))
    return vector(text, model)


class Client:
    """A model behind an object, with state that its calls change."""

    texts = 0

    def __init__(self, model, api_key="k"):
        self.model, self.api_key = model, api_key
        self.calls, self.seen = 0, []

    def __call__(self, text):
        """Embed a text."""
        self.calls += 1
        self.seen.append(text)
        type(self).texts += 1
        return ask(self.model, text)

    def embed_text(self, text):
        """Embed a text."""
        return self(text)


def by_closure(model):
    calls = 0

    def embed(text):
        nonlocal calls
        calls += 1
        return ask(model, text)

    return embed


def by_global(model):
    globals()["MODEL"] = model

    def embed(text):
        return ask(MODEL, text)

    return embed


def by_default(model):
    def embed(text, model=model):
        return ask(model, text)

    return embed


def by_keyword(model):
    def embed(text, *, model=model):
        return ask(model, text)

    return embed


def by_class(model):
    return type(
        "Embedding", (), {"model": model, "__call__": lambda self, text: ask(self.model, text)}
    )()


FORMS = {
    "closure": by_closure,
    "object": Client,
    "bound method": lambda model: Client(model).embed_text,
    "partial": lambda model: functools.partial(ask, model),
    "global": by_global,
    "default argument": by_default,
    "keyword default": by_keyword,
    "class attribute": by_class,
}


def opened(tmp_path, embed, **options):
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "store.db"}}}
    return Document(embed=embed, store_conf=conf, workers=1, **options)


def filled(tmp_path, embed):
    """A store with vectors of an embed function."""
    with opened(tmp_path, embed) as docs:
        docs.add_texts(TEXTS)
        docs.activate_group("FineChunk", embed_keys=["default"])


def best(docs):
    return Retriever(docs, "FineChunk", topk=1)("word3 tea")[0].path


@pytest.mark.parametrize("form", FORMS)
def test_another_model_is_embedded_again(tmp_path, form):
    """All texts, once; and neither by the same model nor by one that has only been called
    meanwhile.
    """
    filled(tmp_path, FORMS[form]("A"))
    asked.clear()
    with opened(tmp_path, FORMS[form]("A")) as docs:
        assert best(docs) == "word3"
    assert [text for _, text in asked] == [PROBE, "word3 tea"]
    asked.clear()
    with opened(tmp_path, FORMS[form]("B")) as docs:
        assert best(docs) == "word3"
    assert {text for model, text in asked if model == "B"} >= {*TEXTS.values()}


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_with_another_model_is_refused(tmp_path, form):
    """Its vector searches; keyword search goes on."""
    filled(tmp_path, FORMS[form]("A"))
    with opened(tmp_path, FORMS[form]("A"), read_only=True) as docs:
        assert best(docs) == "word3"
    with (
        opened(tmp_path, FORMS[form]("B"), read_only=True) as docs,
        pytest.raises(ReadOnlyError, match=r"another definition.*embed_keys=\['default'\]"),
    ):
        best(docs)


def test_calls_and_keys_make_no_other_model():
    """Counters, lists of texts, and a new API key."""
    client = Client("A")
    before = embed_identity(client, "")
    client("tea")
    assert embed_identity(client, "") == before == embed_identity(Client("A", api_key="other"), "")
    function = by_closure("A")
    before = embed_identity(function, "")
    function("tea")
    function.probe = False
    assert embed_identity(function, "") == before


class Opaque:
    """A model whose name no fingerprint sees: it is behind a function of an extension."""

    identity = "opaque"

    def __init__(self, model):
        self.model = np.array([model == "B"])

    def __call__(self, text):
        """Embed a text, as a quantised model does."""
        asked.append(text)
        return (
            np.array(vector(text, "B" if self.model[0] else "A")) * (1 + 1e-4 * len(asked))
        ).tolist()


def test_another_vector_of_the_probe_warns_and_embeds_nothing(tmp_path):
    """The warning has both names and the call that embeds again; after that call there is none."""
    filled(tmp_path, Opaque("A"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(tmp_path, Opaque("A")).close()
    asked.clear()
    with pytest.warns(
        IngestionWarning, match=r"'opaque'.*'opaque'.*repair\(embed_keys=\['default'\]\)"
    ):
        docs = opened(tmp_path, Opaque("B"))
    assert asked == [PROBE]
    with docs:
        docs.maintenance.repair(embed_keys=["default"])
        assert best(docs) == "word3"
    assert {*asked} >= {*TEXTS.values()}
    asked.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path, Opaque("B")) as docs:
            assert best(docs) == "word3"
    assert asked == [PROBE, "word3 tea"]


def test_no_probe_where_it_is_turned_off_or_nothing_is_stored(tmp_path):
    """Opening calls no model then."""
    asked.clear()
    opened(tmp_path, Opaque("A")).close()
    model = Opaque("A")
    model.probe = False
    filled(tmp_path, model)
    opened(tmp_path, model).close()
    assert PROBE not in asked
    with Document(embed=Opaque("A")) as docs:
        docs.add_texts(TEXTS)
        best(docs)
    assert PROBE not in asked


def test_a_model_that_does_not_answer_warns(tmp_path):
    """The Document opens, and keyword search works."""
    model = Opaque("A")
    filled(tmp_path, model)

    def down(text):
        raise OSError("connection refused")

    down.identity = "opaque"
    with pytest.warns(IngestionWarning, match="Could not check.*connection refused"):
        docs = opened(tmp_path, down)
    with docs:
        assert Retriever(docs, "FineChunk", similarity="bm25", topk=1)("word3")[0].path == "word3"


def test_a_store_of_before_opens_as_before(tmp_path):
    """Without a fingerprint and a probe its vectors count as those of the function; the next write
    stores both.
    """
    filled(tmp_path, by_closure("A"))
    name = embed_identity(by_closure("A"), "").partition("/")[0]
    with sqlite3.connect(tmp_path / "store.db") as store:
        store.execute(
            "UPDATE space SET identity = replace(identity, ?, ?)",
            (embed_identity(by_closure("A"), ""), name),
        )
        store.execute("ALTER TABLE space DROP COLUMN model")
    store.close()
    asked.clear()
    with opened(tmp_path, by_closure("A")) as docs:
        assert best(docs) == "word3"
        assert [text for _, text in asked] == ["word3 tea"]
        docs.add_texts({"word5": "word5 is about tea"})
    assert [text for _, text in asked] == ["word3 tea", "word5 is about tea", PROBE]
    asked.clear()
    with opened(tmp_path, by_closure("A")) as docs:
        assert best(docs) == "word3"
    assert len(asked) == 2
    with opened(tmp_path, by_closure("B")) as docs:
        assert best(docs) == "word3"
    assert {text for model, text in asked if model == "B"} >= {*TEXTS.values()}


@pytest.mark.parametrize(
    ("wrong", "reason"), [([0.0] * SIZE, "zeros"), (["0.5"] * SIZE, "strings")]
)
def test_a_vector_that_says_nothing_is_an_error_of_its_text(tmp_path, wrong, reason):
    """The other texts have their vectors."""

    def embed(text):
        return wrong if "word2" in text else vector(text, "A")

    with opened(tmp_path, embed) as docs:
        docs.add_texts(TEXTS)
        with pytest.warns(IngestionWarning, match=reason):
            docs.activate_group("FineChunk", embed_keys=["default"])
        [failure] = docs.last_report.failed
        assert failure.path == "word2"
        assert best(docs) == "word3"


@pytest.mark.usefixtures("quick_endpoints")
def test_an_endpoint_that_is_down_is_tried_once(tmp_path, model):
    """Opening does not wait for retries."""
    with HttpEmbedder(model.url, "m") as embedder:
        filled(tmp_path, embedder)
        before = len(model.requests)
        model.faults = [failed(503)] * 9
        with pytest.warns(IngestionWarning, match="Could not check.*503"):
            opened(tmp_path, embedder).close()
    assert len(model.requests) == before + 1
