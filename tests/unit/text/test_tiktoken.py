"""`TiktokenCounter`: counts with a vocabulary that is on the machine, and never fetches one."""

from __future__ import annotations

import base64
import hashlib

import pytest
import tiktoken
import tiktoken.registry
from tiktoken.load import load_tiktoken_bpe

from lazyrag import ContextBuilder, DocNode, SentenceSplitter
from lazyrag.errors import ConfigError
from lazyrag.text import tokens as module
from lazyrag.text.tokens import TiktokenCounter, counter_for_model
from tests.interpreter import python

ENCODING = tiktoken.Encoding(
    "made_here",
    pat_str=r"\s+|\S+",
    mergeable_ranks={bytes([byte]): byte for byte in range(256)} | {b"te": 256, b"tea": 257},
    special_tokens={"<|endoftext|>": 258},
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder as tiktoken's own."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_counts_with_an_encoding():
    """The merged word is one token, a special token's text is ordinary text, and nothing is 0."""
    counter = TiktokenCounter(ENCODING)
    assert (counter.count("tea"), counter.count("teas"), counter.count("")) == (1, 2, 0)
    assert counter.count("<|endoftext|>") == 12
    assert counter.name == "tiktoken-made_here"
    assert repr(counter) == "TiktokenCounter('made_here')"


def test_lone_surrogates_are_counted():
    """A text that is no valid Unicode, as broken files give, has tokens and no error."""
    assert TiktokenCounter(ENCODING).count("\ud800") > 0


def test_a_splitter_takes_it():
    """Any part that counts tokens takes the counter."""
    chunks = list(
        SentenceSplitter(4, 0, counter=TiktokenCounter(ENCODING))(DocNode(text="Tea. Tea. Tea."))
    )
    assert len(chunks) == 3


@pytest.mark.parametrize("asked", ["cl100k_base", "gpt-4o", "gpt-3.5-turbo"])
def test_a_missing_vocabulary_is_not_fetched(folder, asked):
    """The error says which file belongs where, and nothing is written or downloaded."""
    with pytest.raises(ConfigError, match="nothing is downloaded") as refused:
        TiktokenCounter(asked)
    assert str(folder) in str(refused.value)
    assert "https://" in str(refused.value)
    assert list(folder.iterdir()) == []


def test_a_broken_vocabulary_is_not_fetched_either(folder):
    """tiktoken would remove and fetch a file with another digest: it counts as missing, and
    stays.
    """
    name = _file_name("cl100k_base.tiktoken")
    (folder / name).write_bytes(b"torn")
    with pytest.raises(ConfigError, match=name):
        TiktokenCounter("cl100k_base")
    assert (folder / name).read_bytes() == b"torn"


def test_a_vocabulary_on_this_machine_is_used(folder, monkeypatch):
    """With the file in its place, name and model give a counter, and a builder counts with it."""
    file, _ = module._VOCABULARIES["cl100k_base"]
    data = b"".join(_line(token, rank) for token, rank in ENCODING._mergeable_ranks.items())
    (folder / _file_name(file)).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    # The real vocabulary is 1.7 MB: a small one stands in its place, in our list and in tiktoken's.
    monkeypatch.setitem(module._VOCABULARIES, "cl100k_base", (file, digest))

    def small():
        ranks = load_tiktoken_bpe(module._URL.format(file=file), expected_hash=digest)
        return {
            "name": "cl100k_base",
            "pat_str": r"\s+|\S+",
            "mergeable_ranks": ranks,
            "special_tokens": {},
        }

    tiktoken.registry.list_encoding_names()
    monkeypatch.setitem(tiktoken.registry.ENCODING_CONSTRUCTORS, "cl100k_base", small)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    assert TiktokenCounter("cl100k_base").count("tea") == 1
    assert ContextBuilder("gpt-4").counter.name == "tiktoken-cl100k_base"
    assert counter_for_model("gpt-4").name == "tiktoken-cl100k_base"


def _file_name(file):
    address = f"https://openaipublic.blob.core.windows.net/encodings/{file}"
    return hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()


def _line(token, rank):
    return base64.b64encode(token) + b" " + str(rank).encode() + b"\n"


def test_a_folder_that_is_switched_off_has_nothing(monkeypatch):
    """An empty TIKTOKEN_CACHE_DIR tells tiktoken to fetch each time: so the vocabulary counts as
    missing.
    """
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert counter_for_model("gpt-4") is None
    with pytest.raises(ConfigError, match="not on this machine"):
        TiktokenCounter("gpt-4")


@pytest.mark.parametrize("asked", ["cl100k", "", "a model of ours"])
def test_unknown_names_are_refused(asked):
    """The message lists the encodings."""
    with pytest.raises(ConfigError, match="cl100k_base, o200k_base"):
        TiktokenCounter(asked)
    with pytest.raises(ConfigError, match="Encoding"):
        TiktokenCounter(3)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("model", ["gpt-3.5-turbo", "gpt-4o", "qwen-max", "gpt2"])
def test_a_builder_falls_back_and_says_so(model):
    """Without vocabulary, or for a model that tiktoken does not know, "estimate" counts, and the
    metadata say it.
    """
    builder = ContextBuilder(model)
    assert builder.counter.name == "estimate"
    assert builder.build("q", []).metadata["counter"] == "estimate"


@pytest.mark.slow
def test_without_the_package():
    """A builder works without tiktoken; the counter itself names the extra."""
    done = python(
        "-c",
        """
import sys
sys.modules["tiktoken"] = None
from lazyrag import ContextBuilder
from lazyrag.text import TiktokenCounter
print(ContextBuilder().counter.name)
try:
    TiktokenCounter("cl100k_base")
except ImportError as exc:
    print(exc)
""",
    )
    assert done.stdout.splitlines()[0] == "estimate"
    assert 'pip install -e ".[tiktoken]"' in done.stdout
