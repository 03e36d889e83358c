"""Ingestion: what fails is reported file by file, what is built is built once, and nothing is lost
on the way.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import warnings
from collections import Counter

import numpy as np
import pytest

from lazyrag import (
    DocNode,
    Document,
    IngestionWarning,
    Retriever,
    SentenceSplitter,
    register_loader,
)
from lazyrag.errors import (
    ConfigError,
    EmbeddingError,
    IngestionError,
    LazyRAGError,
    LoadError,
    NotRegisteredError,
    RetrievalError,
    StoreError,
    TransformError,
)
from lazyrag.retrieval import similarities
from lazyrag.retrieval.similarity import TermSearch
from lazyrag.stores.memory import MapSegmentStore
from lazyrag.text.analyzers import Analyser, analysers

FILES = {"a.txt": "green tea\nblack tea", "b.txt": "coffee\nmilk", "c.txt": "water\nwine"}


def letters(text: str) -> list[float]:
    """A vector for a text: how often it has each of three letters, and its length."""
    return [float(text.count(one)) for one in "aei"] + [float(len(text))]


class Embed:
    """An embed callable that remembers what it was called with, and fails for texts that hold given
    words.
    """

    def __init__(self, *bad: str):
        """Fail for texts with these words."""
        self.bad = list(bad)
        self.calls: list = []

    def __call__(self, text):
        """The vector of one text."""
        self.calls.append(text)
        if any(word in text for word in self.bad):
            msg = f"no vector for {text}"
            raise RuntimeError(msg)
        return letters(text)


class Batches(Embed):
    """An embed callable that takes up to three texts at a time."""

    batch_size = 3

    def __call__(self, texts):
        """The vectors of several texts."""
        self.calls.append(texts)
        return [letters(text) for text in texts]


class Lines:
    """A transform into lines that counts its calls by text, and fails for texts that hold given
    words.
    """

    identity = "lines"

    def __init__(self, *bad: str):
        """Fail for texts with these words."""
        self.bad = list(bad)
        self.calls = Counter()

    def __call__(self, text):
        """The lines of a text."""
        self.calls[text] += 1
        if any(word in text for word in self.bad):
            msg = "cannot be split"
            raise ValueError(msg)
        return text.splitlines()


def in_lines(root, transform=str.splitlines, **arguments) -> Document:
    """A Document with a group of lines."""
    docs = Document(root, **arguments)
    docs.create_node_group("line", transform=transform)
    return docs


def failures(docs: Document) -> list[tuple[str, str, type]]:
    """Path, stage and type of each failure."""
    return [(one.path, one.stage, type(one.error)) for one in docs.last_report.failed]


def test_a_transform_that_fails_for_one_file(folder):
    """A file whose transform fails is left out of that group, named with stage and error; all else
    is there.
    """
    docs = in_lines(folder(FILES), Lines("coffee"))
    with pytest.warns(
        IngestionWarning, match=r"1 of 3 files failed to transform line.*b\.txt.*cannot be split"
    ) as caught:
        nodes = docs.get_nodes("line")
    assert len(caught) == 1
    assert [node.text for node in nodes] == ["green tea", "black tea", "water", "wine"]
    assert failures(docs) == [("b.txt", "transform line", TransformError)]
    assert docs.last_report.added == ("a.txt", "b.txt", "c.txt")
    assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("wine coffee")] == [
        "wine"
    ]
    assert len(docs.get_nodes("FineChunk")) == 3


@pytest.mark.slow
def test_a_transform_that_fails_in_the_middle_of_a_file(folder):
    """A file whose transform fails at a later node has no node of that group at all."""
    docs = in_lines(folder({"a.txt": "one\ntwo\nbad\nfour", "b.txt": "one"}))
    docs.create_node_group(
        "checked", transform=lambda line: {"one": 1, "two": 2}[line], parent="line"
    )
    with pytest.warns(IngestionWarning):
        assert [node.path for node in docs.get_nodes("checked")] == ["b.txt"]
    assert docs.get_nodes("line")[0].children["checked"] == []


def test_a_generator_that_fails_in_the_middle(folder):
    """What a generator yielded before it failed is no node."""

    def half(text):
        yield "first half"
        if "coffee" in text:
            msg = "second half is missing"
            raise ValueError(msg)

    docs = in_lines(folder(FILES), half)
    with pytest.warns(IngestionWarning, match="second half is missing"):
        assert [node.path for node in docs.get_nodes("line")] == ["a.txt", "c.txt"]


def test_groups_beneath_a_failed_file(folder):
    """A file that failed in a group is missing beneath it, without a failure or a warning of its
    own there.
    """
    docs = in_lines(folder(FILES), Lines("coffee"))
    docs.create_node_group("word", transform=str.split, parent="line")
    with pytest.warns(IngestionWarning) as caught:
        assert {node.path for node in docs.get_nodes("word")} == {"a.txt", "c.txt"}
    assert len(caught) == 1
    assert failures(docs) == [("b.txt", "transform line", TransformError)]


def test_an_embed_that_fails_for_one_file(folder):
    """A file whose embedding fails is left out of searches by embedding and reported; all else is
    there.
    """
    embed = Embed("milk")
    docs = in_lines(folder(FILES), embed={"dense": embed})
    with pytest.warns(
        IngestionWarning, match="1 of 3 files failed to embed line with dense.*no vector for milk"
    ) as caught:
        hits = Retriever(docs, "line", topk=10)("tea")
    assert len(caught) == 1
    assert {hit.path for hit in hits} == {"a.txt", "c.txt"}
    assert failures(docs) == [("b.txt", "embed line with dense", EmbeddingError)]
    assert len(docs.get_nodes("line")) == 6
    assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("coffee")] == ["coffee"]


class Odd(Embed):
    """An embed callable that returns something odd for texts with coffee in them."""

    def __init__(self, returned):
        """Return this for some texts."""
        super().__init__()
        self.returned = returned

    def __call__(self, text):
        """The vector of one text, or something odd."""
        return self.returned if "coffee" in text else letters(text)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "returned",
    [
        None,
        [],
        [1.0, 2.0],
        "1 2 3 4",
        [[1.0, 2.0, 3.0, 4.0]],
        [1.0, math.nan, 0.0, 1.0],
        [1.0, math.inf, 0.0, 1.0],
        5.0,
    ],
    ids=repr,
)
def test_an_embed_that_returns_no_vector_for_one_file(folder, returned):
    """Nothing, an empty, nested or shorter vector, text or nan fails that file's embedding; the
    others are found.
    """
    docs = in_lines(folder(FILES), embed=Odd(returned))
    with pytest.warns(IngestionWarning, match=r"b\.txt \(embed line with default\)"):
        hits = Retriever(docs, "line", topk=10)("tea")
    assert {hit.path for hit in hits} == {"a.txt", "c.txt"}
    assert failures(docs) == [("b.txt", "embed line with default", EmbeddingError)]


@pytest.mark.parametrize(
    "returned", [None, [], 5.0, [[1.0, 2.0, 3.0, 4.0]] * 7, "junk", {"a": 1}], ids=repr
)
def test_a_batch_embed_that_returns_no_vectors_for_one_file(folder, returned):
    """A batch whose result is no list of as many vectors fails that file's embedding; the others
    are found.
    """

    class OddBatches(Batches):
        """Returns something odd for batches with coffee in them."""

        def __call__(self, texts):
            """The vectors of several texts, or something odd."""
            return returned if any("coffee" in text for text in texts) else super().__call__(texts)

    docs = in_lines(folder(FILES), embed=OddBatches())
    with pytest.warns(IngestionWarning, match=r"b\.txt \(embed line with default\)"):
        hits = Retriever(docs, "line", topk=10)("tea")
    assert {hit.path for hit in hits} == {"a.txt", "c.txt"}


def test_an_embed_whose_vectors_are_of_another_length_for_one_file(folder):
    """A file all of whose vectors are shorter than the other files' fails in its embedding; the
    others are found.
    """
    docs = in_lines(
        folder(FILES), embed=lambda text: letters(text)[: 2 if text in {"coffee", "milk"} else 4]
    )
    with pytest.warns(IngestionWarning, match=r"b\.txt \(embed line with default\)"):
        hits = Retriever(docs, "line", topk=10)("tea")
    assert {hit.path for hit in hits} == {"a.txt", "c.txt"}
    assert failures(docs) == [("b.txt", "embed line with default", EmbeddingError)]


@pytest.mark.parametrize("mostly", ["sparse", "dense"])
def test_an_embed_that_gives_a_vector_of_the_other_kind_for_one_text(folder, mostly):
    """The file of that text fails in its embedding, with an error that names both kinds; the others
    are found.
    """

    def embed(text):
        return {len(text): 0.5} if (text == "milk") != (mostly == "sparse") else letters(text)

    docs = in_lines(folder(FILES), embed=embed)
    with pytest.warns(IngestionWarning, match=r"b\.txt \(embed line with default\)"):
        hits = Retriever(docs, "line", topk=10)("green tea")
    assert "a.txt" in {hit.path for hit in hits} <= {"a.txt", "c.txt"}
    assert failures(docs) == [("b.txt", "embed line with default", EmbeddingError)]
    [failure] = docs.last_report.failed
    assert f"where the others are {mostly}" in str(failure)


def test_a_file_without_nodes_in_a_group(folder):
    """A file of which a transform makes nothing is no failure: searches by text and by embedding
    find the others.
    """
    docs = in_lines(
        folder(FILES),
        lambda text: [line for line in text.splitlines() if "tea" in line],
        embed=Embed(),
    )
    assert {hit.path for hit in Retriever(docs, "line", similarity="bm25")("tea")} == {"a.txt"}
    assert {hit.path for hit in Retriever(docs, "line")("tea")} == {"a.txt"}
    assert docs.last_report.failed == ()


def test_a_group_without_any_node(folder):
    """A group of which no file has a node is empty, and every search in it finds nothing."""
    docs = in_lines(folder(FILES), lambda text: None, embed=Embed())
    assert docs.get_nodes("line") == []
    assert Retriever(docs, "line", similarity="bm25")("tea") == []
    assert Retriever(docs, "line")("tea") == []


def test_failures_of_several_stages(folder):
    """A file may fail in several stages; the report names each, in order of path and stage."""
    embed = Embed("wine")
    docs = in_lines(folder({**FILES, "d.json": b"{"}), Lines("coffee"), embed=embed)
    with pytest.warns(IngestionWarning) as caught:
        Retriever(docs, "line")("tea")
    assert len(caught) == 3
    assert failures(docs) == [
        ("b.txt", "transform line", TransformError),
        ("c.txt", "embed line with default", EmbeddingError),
        ("d.json", "load", LoadError),
    ]
    assert str(docs.last_report).splitlines()[0] == "3 added, 3 failed, 0 skipped"
    assert [
        line.split("(")[1].split(")")[0] for line in str(docs.last_report).splitlines()[1:]
    ] == [
        "transform line",
        "embed line with default",
        "load",
    ]


def test_what_failed_is_not_tried_or_told_again(folder):
    """Later questions neither try a failed file again nor warn again, until sync() is
    called.
    """
    transform, embed = Lines("coffee"), Embed("wine")
    docs = in_lines(folder({**FILES, "d.json": b"{"}), transform, embed=embed)
    with pytest.warns(IngestionWarning):
        Retriever(docs, "line")("tea")
    before = (dict(transform.calls), len(embed.calls))
    docs.get_nodes("line")
    docs.get_nodes()
    Retriever(docs, "line")("tea")
    assert dict(transform.calls) == before[0]
    assert len(embed.calls) == before[1] + 1  # the query
    assert len(docs.last_report.failed) == 3


def test_warnings_that_are_errors_break_nothing(folder):
    """Where warnings are errors the first call raises the warning, and the next ones answer from
    what is in.
    """
    docs = in_lines(folder({**FILES, "d.json": b"{"}), Lines("coffee"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IngestionWarning, match="failed to load"):
            docs.get_nodes("line")
        with pytest.raises(IngestionWarning, match="failed to transform line"):
            docs.get_nodes("line")
        assert [node.text for node in docs.get_nodes("line")] == [
            "green tea",
            "black tea",
            "water",
            "wine",
        ]


def test_all_files_fail_to_load(folder):
    """If no file can be loaded every call says so, with the number, the first cause and what to
    do.
    """
    docs = in_lines(folder({"a.json": b"{", "b.json": b"{"}))
    for ask in (
        docs.get_nodes,
        lambda: docs.get_nodes("line"),
        lambda: Retriever(docs, "line", similarity="bm25")("x"),
    ):
        with pytest.raises(
            IngestionError,
            match=r"All 2 files failed to load.*a\.json.*The JSON breaks.*sync\(\)",
        ) as caught:
            ask()
        assert isinstance(caught.value.__cause__, LoadError)
    assert docs.last_report.added == ()
    assert len(docs.last_report.failed) == 2


def test_the_only_file_fails_to_load(folder):
    """A folder of one file names that file, without a count."""
    with pytest.raises(
        IngestionError,
        match=r"^The only file failed to load: a\.json \(load\): The JSON breaks.*sync",
    ):
        Document(str(folder({"a.json": b"{"}))).search("x")


def test_all_files_fail_in_a_transform(folder):
    """If a transform fails for every file each call for its group says so; other groups answer."""
    transform = Lines("e")
    docs = in_lines(folder(FILES), transform)
    docs.create_node_group("word", transform=str.split, parent="line")
    for group in ("line", "word", "line"):
        with pytest.raises(
            IngestionError, match=r"All 3 files failed to transform line.*cannot be split"
        ):
            docs.get_nodes(group)
    assert sum(transform.calls.values()) == 3
    assert len(docs.get_nodes("FineChunk")) == 3
    assert [one.stage for one in docs.last_report.failed] == ["transform line"] * 3


def test_all_files_fail_to_embed(folder):
    """If embedding fails for every file each search by embedding says so; searches by text
    answer.
    """
    embed = Embed("e", "i")
    docs = in_lines(folder(FILES), embed=embed)
    retriever = Retriever(docs, "line")
    for _ in range(2):
        with pytest.raises(
            IngestionError, match=r"All 3 files failed to embed line with default.*no vector for"
        ):
            retriever("coffy")
    assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("coffee")] == ["coffee"]


def test_an_index_that_never_was_is_no_group(folder):
    """Asking for a group that is not defined is no ingestion error but names the known ones."""
    docs = in_lines(folder(FILES))
    with pytest.raises(NotRegisteredError, match="Did you mean 'line'"):
        docs.activate_group("lin")


def test_a_file_that_comes_back(folder):
    """A file that was gone when it was to be loaded is in every group and index after
    sync(), in its order.
    """
    root = folder({"a.first": "one\ntwo", "m.txt": "gone\nmiddle", "z.txt": "last"})

    @register_loader(".first")
    class Removing:
        """Removes another file while it loads its own."""

        def load(self, path):
            """Remove the file that comes later."""
            (root / "m.txt").unlink(missing_ok=True)
            return path.read_text(encoding="utf-8")

    transform, embed = Lines(), Embed()
    docs = in_lines(root, transform, embed=embed, workers=1)
    with pytest.warns(IngestionWarning, match=r"m\.txt"):
        Retriever(docs, "line")("gone")
    Retriever(docs, "line", similarity="bm25")("gone")
    before = (sum(transform.calls.values()), len(embed.calls))
    (root / "m.txt").write_text("gone\nmiddle", encoding="utf-8")
    report = docs.sync()
    assert (report.added, report.failed) == (("m.txt",), ())
    assert sum(transform.calls.values()) == before[0] + 1
    assert embed.calls[before[1] :] == ["gone", "middle"]
    assert [node.text for node in docs.get_nodes("line")] == [
        "one",
        "two",
        "gone",
        "middle",
        "last",
    ]
    for similarity in ("bm25", "cosine"):
        assert Retriever(docs, "line", similarity=similarity)("gone")[0].text == "gone"


def test_a_transform_that_recovers(folder):
    """After sync() the file is in the group and in those beneath; only what was missing was
    built.
    """
    transform, words = Lines("coffee"), Counter()

    def split(line):
        words[line] += 1
        return line.split()

    docs = in_lines(folder(FILES), transform)
    docs.create_node_group("word", transform=split, parent="line")
    with pytest.warns(IngestionWarning):
        Retriever(docs, "word", similarity="bm25")("tea")
    transform.bad.clear()
    assert docs.sync().failed == ()
    assert transform.calls == Counter({FILES["a.txt"]: 1, FILES["b.txt"]: 2, FILES["c.txt"]: 1})
    assert set(words.values()) == {1}
    assert [node.text for node in docs.get_nodes("word")] == " ".join(FILES.values()).split()
    assert [hit.text for hit in Retriever(docs, "word", similarity="bm25")("coffee")] == ["coffee"]


def test_an_embed_that_recovers(folder):
    """After sync() the file is found by embedding; only its texts were embedded again."""
    embed = Embed("milk")
    docs = in_lines(folder(FILES), embed=embed)
    retriever = Retriever(docs, "line", topk=10)
    with pytest.warns(IngestionWarning):
        assert len(retriever("tea")) == 4
    embed.bad.clear()
    embed.calls.clear()
    assert docs.sync().failed == ()
    assert embed.calls == ["coffee", "milk"]
    assert {hit.text for hit in retriever("tea")} == {
        line for text in FILES.values() for line in text.splitlines()
    }


def test_all_files_recover(folder):
    """After a step in which all files failed, sync() heals it once the cause is gone."""
    transform = Lines("e")
    docs = in_lines(folder(FILES), transform)
    with pytest.raises(IngestionError):
        docs.get_nodes("line")
    assert {one.path for one in docs.sync().failed} == set(FILES)
    with pytest.raises(IngestionError):
        docs.get_nodes("line")
    transform.bad.clear()
    assert docs.sync().failed == ()
    assert len(docs.get_nodes("line")) == 6


def test_a_retry_that_fails_again(folder):
    """A retry that fails again reports and warns again, and the rest stays as it was."""
    transform = Lines("coffee")
    docs = in_lines(folder(FILES), transform)
    with pytest.warns(IngestionWarning):
        docs.get_nodes("line")
    with pytest.warns(IngestionWarning, match="failed to transform line"):
        report = docs.sync()
    assert [one.path for one in report.failed] == ["b.txt"]
    assert len(docs.get_nodes("line")) == 4


def test_a_retry_of_one_group_goes_on_to_the_others(folder):
    """A group in which everything still fails does not keep a retry from healing another."""
    first, second = Lines("e"), Lines("coffee")
    docs = in_lines(folder(FILES), first)
    docs.create_node_group("other", transform=second, version="other")
    with pytest.raises(IngestionError):
        docs.get_nodes("line")
    with pytest.warns(IngestionWarning):
        docs.get_nodes("other")
    second.bad.clear()
    assert {one.stage for one in docs.sync().failed} == {"transform line"}
    assert len(docs.get_nodes("other")) == 6
    assert {one.stage for one in docs.last_report.failed} == {"transform line"}


def test_a_retry_without_failures(folder):
    """Where nothing failed, or nothing was asked yet, a sync builds nothing."""
    transform = Lines()
    docs = in_lines(folder(FILES), transform)
    assert docs.sync().failed == ()
    assert not transform.calls
    docs.get_nodes("line")
    assert docs.sync().added == ()
    assert set(transform.calls.values()) == {1}


def test_retried_nodes_have_the_uids_they_would_have_had(folder):
    """Nodes that were built by a retry have the uids, numbers and order of an uninterrupted
    build.
    """
    root = folder(FILES)
    transform = Lines("green")
    docs = in_lines(root, transform)
    with pytest.warns(IngestionWarning):
        docs.get_nodes("line")
    transform.bad.clear()
    docs.sync()
    whole = in_lines(root).get_nodes("line")
    assert [(node.uid, node.number) for node in docs.get_nodes("line")] == [
        (node.uid, node.number) for node in whole
    ]


def test_each_group_is_built_once_and_only_when_asked(folder):
    """A group is built at the first question that needs it, and not again for further ones or other
    groups.
    """
    transform = Lines()
    docs = in_lines(folder(FILES), transform)
    docs.get_nodes("FineChunk")
    assert not transform.calls
    for _ in range(2):
        docs.get_nodes("line")
        Retriever(docs, "line", similarity="bm25")("tea")
        Retriever(docs, "line", similarity="bm25_chinese")("茶")
        docs.create_node_group("word", transform=str.split, parent="line")
        docs.get_nodes("word")
    assert dict(transform.calls) == dict.fromkeys(FILES.values(), 1)


@pytest.mark.parametrize("similarity", [None, "bm25"])
def test_two_threads_that_ask_first_build_once(folder, similarity):
    """Two threads whose first questions come at the same time get the same answer, and everything
    is built once.
    """
    second_is_asking = threading.Event()
    calls: Counter[str] = Counter()

    class Slow(Lines):
        """Waits until another thread is asking."""

        def __call__(self, text):
            """The lines of a text."""
            second_is_asking.wait(60)
            return super().__call__(text)

    def load(path):
        calls[path.name] += 1
        return path.read_text(encoding="utf-8")

    register_loader(".own")(type("Loader", (), {"load": lambda self, path: load(path)}))
    transform, embed = Slow(), Embed()
    docs = in_lines(
        folder({path.replace("txt", "own"): text for path, text in FILES.items()}),
        transform,
        embed=embed,
    )
    answers: dict[int, list] = {}

    def ask(number: int) -> None:
        if number:
            second_is_asking.set()
        hits = Retriever(docs, "line", similarity=similarity, topk=10)("tea water")
        answers[number] = [(hit.uid, hit.score) for hit in hits]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 4
    assert answers[0]
    assert all(answer == answers[0] for answer in answers.values())
    assert set(calls.values()) == set(transform.calls.values()) == {1}
    texts = Counter(embed.calls)
    assert texts.pop("tea water", 4) == 4
    assert set(texts.values()) <= {1}


def test_threads_that_ask_for_different_groups(folder):
    """Threads that ask for different groups over one parent at once all get theirs; the parent is
    built once.
    """
    transform = Lines()
    docs = in_lines(folder(FILES), transform)
    start = threading.Barrier(6)
    found: dict[int, int] = {}
    for number in range(6):
        docs.create_node_group(f"g{number}", transform=str.split, parent="line")

    def ask(number: int) -> None:
        start.wait(60)
        found[number] = len(docs.get_nodes(f"g{number}"))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == dict.fromkeys(range(6), 8)
    assert dict(transform.calls) == dict.fromkeys(FILES.values(), 1)


@pytest.mark.parametrize("at", ["load", "transform", "embed"])
def test_an_interruption_loses_nothing(folder, at):
    """A KeyboardInterrupt in loading, a transform or embedding comes out, and the next call
    finishes the rest.
    """
    calls: list[tuple[str, str]] = []

    def work(stage, text):
        calls.append((stage, text))
        if stage == at and "coffee" in text and calls.count((stage, text)) == 1:
            raise KeyboardInterrupt

    @register_loader(".own")
    class Loader:
        """May interrupt."""

        def load(self, path):
            """The file's text."""
            work("load", path.read_text(encoding="utf-8"))
            return path.read_text(encoding="utf-8")

    def split(text):
        for line in text.splitlines():
            work("transform", line)
            yield line

    def embed(text):
        work("embed", text)
        return letters(text)

    docs = in_lines(
        folder({path.replace("txt", "own"): text for path, text in FILES.items()}),
        split,
        embed=embed,
    )
    with pytest.raises(KeyboardInterrupt):
        Retriever(docs, "line")("tea")
    hits = Retriever(docs, "line", topk=10)("tea")
    assert len(hits) == 6
    assert docs.last_report.failed == ()
    assert [node.text for node in docs.get_nodes("line")] == "\n".join(FILES.values()).splitlines()
    repeated = {(stage, text) for stage, text in calls if calls.count((stage, text)) > 1} - {
        ("embed", "tea")
    }
    assert all(stage == at and text in FILES["b.txt"] for stage, text in repeated)
    assert len(repeated) == 1


def test_a_bare_callable_gets_one_text_at_a_time(folder):
    """An embed callable without batch_size is called with one text each time, for nodes and for the
    query.
    """
    embed = Embed()
    docs = in_lines(folder(FILES), embed=embed)
    Retriever(docs, "line")("tea")
    assert sorted(embed.calls) == sorted([*"\n".join(FILES.values()).splitlines(), "tea"])


@pytest.mark.parametrize("batch_size", [1, 0, -1, None, True, "3"])
def test_a_batch_size_that_is_none(folder, batch_size):
    """A batch_size that is not a whole number above 1 means one text at a time."""
    embed = Embed()
    embed.batch_size = batch_size
    Retriever(in_lines(folder(FILES), embed=embed), "line")("tea")
    assert embed.calls
    assert all(isinstance(one, str) for one in embed.calls)


def test_a_callable_with_a_batch_size_gets_lists(folder):
    """An embed callable with batch_size above 1 gets lists of at most so many texts, for the query,
    too.
    """
    embed = Batches()
    docs = in_lines(
        folder({"a.txt": "\n".join(f"line {number}" for number in range(8))}), embed=embed
    )
    [best] = Retriever(docs, "line", topk=1)("line 5")
    assert best.score == pytest.approx(1.0)
    assert all(isinstance(one, list) and 1 <= len(one) <= 3 for one in embed.calls)
    assert [len(one) for one in embed.calls if one != ["line 5"]] == [3, 3, 2]
    assert embed.calls.count(["line 5"]) == 1


def test_blank_text_is_never_embedded(folder):
    """Neither blank lines nor a blank query are embedded."""
    embed = Embed()
    docs = in_lines(
        folder({"a.txt": "one\n\n  \n\u3000\ntwo"}),
        lambda text: [*text.split("\n"), None, DocNode(text=" ")],
        embed=embed,
    )
    assert Retriever(docs, "line")(" \n") == []
    Retriever(docs, "line")("one")
    assert sorted(set(embed.calls)) == ["one", "two"]


def test_equal_texts_are_embedded_once(folder):
    """Texts that stand several times in a document are embedded once, and each of their nodes is
    found.
    """
    embed = Embed()
    docs = in_lines(folder({"a.txt": "tea\ntea\nmilk\ntea"}), embed=embed)
    hits = Retriever(docs, "line", topk=3)("tea")
    assert [hit.text for hit in hits] == ["tea", "tea", "tea"]
    # once for the nodes, once for the query
    assert Counter(embed.calls) == Counter({"tea": 2, "milk": 1})


def test_numbers_and_mappings_are_embedded_as_text(folder):
    """Nodes that hold numbers or mappings are embedded by their text."""
    embed = Embed()
    docs = in_lines(folder({"a.txt": "tea"}), lambda text: [0, False, {"a": "茶"}], embed=embed)
    Retriever(docs, "line")("tea")
    assert sorted(embed.calls) == sorted(["0", "False", '{"a": "茶"}', "tea"])


def test_nothing_is_embedded_before_a_search_asks_for_it(folder):
    """Loading, groups and searches by text embed nothing; a search embeds the group and the keys it
    asks for.
    """
    one, two = Embed(), Embed()
    docs = in_lines(folder(FILES), embed={"one": one, "two": two})
    docs.get_nodes("line")
    Retriever(docs, "line", similarity="bm25")("tea")
    assert one.calls == two.calls == []
    Retriever(docs, "line", embed_keys=["two"])("tea")
    assert one.calls == []
    assert len(two.calls) == 7
    assert set(docs.get_nodes("line")[0].embeddings) == {"two"}


def test_vectors_are_kept_as_the_callable_gave_them(folder):
    """A node's embedding is its text's vector, float32, not scaled; it is there once a search has
    asked for it.
    """
    docs = in_lines(folder(FILES), embed=Embed())
    Retriever(docs, "line")("tea")
    for node in docs.get_nodes("line"):
        assert node.embedding.dtype == np.float32
        assert node.embedding.tolist() == letters(node.text)


def test_an_embed_for_two_groups(folder):
    """Each group is embedded by its own texts."""
    docs = in_lines(folder(FILES), embed=Embed())
    docs.create_node_group("word", transform=str.split, parent="line")
    assert Retriever(docs, "word", topk=1)("wine")[0].text == "wine"
    assert Retriever(docs, "line", topk=1)("green tea")[0].text == "green tea"


def test_the_report_of_a_clean_run(folder):
    """Where all goes well the report names all files, in order, and nothing else; no warning
    comes.
    """
    docs = in_lines(folder({**FILES, ".hidden": "x"}))
    assert docs.last_report is None
    docs.activate_group("line")
    assert docs.last_report.added == ("a.txt", "b.txt", "c.txt")
    assert docs.last_report.failed == ()
    assert docs.last_report.skipped == ((".hidden", "hidden"),)
    assert str(docs.last_report) == "3 added, 0 failed, 1 skipped"


def test_activate_group_builds_vectors_and_terms_ahead(folder, tmp_path):
    """A sync keeps them, and a read-only Document of another program answers from them at once."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    dataset = folder({"a.txt": "green tea", "b.txt": "coffee"})
    calls = []

    def embed(text):
        calls.append(text)
        return [float(len(text)), 1.0]

    embed.probe = False
    with Document(dataset, embed={"length": embed}, store_conf=conf) as docs:
        docs.activate_group(["FineChunk"], embed_keys=["length"], analysers=["en"])
        assert len(calls) == 2
        (dataset / "c.txt").write_text("black tea")
        docs.sync()
        assert len(calls) == 3
        with Document(dataset, embed={"length": embed}, store_conf=conf, read_only=True) as other:
            assert len(Retriever(other, "FineChunk", similarity="bm25")("tea")) == 2
            assert len(Retriever(other, "FineChunk")("tea")) == 3
            with pytest.raises(
                StoreError, match=r"activate_group\('FineChunk', analysers=\['zh'\]\)"
            ):
                Retriever(other, "FineChunk", similarity="bm25_chinese")("tea")
        for wrong, named in [
            ({"embed_keys": ["lenght"]}, "length"),
            ({"analysers": ["eng"]}, "en"),
            ({"embed": 1}, "embed_keys"),
        ]:
            with pytest.raises(LazyRAGError, match=named):
                docs.activate_group("FineChunk", **wrong)


def test_activate_group_builds_several(folder):
    """activate_group builds all groups that it is given, and those above them."""
    first, second = Lines(), Lines()
    docs = in_lines(folder(FILES), first)
    docs.create_node_group("other", transform=second, parent="line")
    docs.create_node_group("third", transform=str.upper)
    docs.activate_group("other", "third")
    assert sum(first.calls.values()) == 3
    assert sum(second.calls.values()) == 6
    assert set(docs.get_nodes()[0].children) == {"line", "third"}


def six_groups(docs, names, bad):
    """Define six groups of lines, each of which fails for the files that hold one of its words."""

    def of(number):
        def lines(text):
            if any(word in text for word in bad[number]):
                msg = f"cannot split with {number}"
                raise ValueError(msg)
            return [f"{number} {line}" for line in text.splitlines()]

        return lines

    for number, name in enumerate(names):
        docs.create_node_group(name, transform=of(number), version=str(number))


@pytest.mark.sample(3)
@pytest.mark.parametrize("salt", ["a", "b", "c", "d", "e", "组"])
def test_every_group_is_tried_again_in_whatever_order(folder, salt):
    """Six groups that fail for one file each are all healed by one retry, whatever their names hash
    to.
    """
    docs = Document(folder(FILES))
    names = [f"{salt}{number}" for number in range(6)]
    bad = [["coffee"] for _ in names]
    six_groups(docs, names, bad)
    with pytest.warns(IngestionWarning) as caught:
        docs.activate_group(*names)
    assert len(caught) == len(docs.last_report.failed) == 6
    for words in bad:
        words.clear()
    assert docs.sync().failed == ()
    assert [len(docs.get_nodes(name)) for name in names] == [6] * 6


@pytest.mark.sample(3)
@pytest.mark.parametrize("salt", ["a", "b", "c", "d", "e", "组"])
def test_a_hopeless_group_costs_the_others_nothing(folder, salt):
    """A group that fails for every file keeps no other from being tried again, and no failure is
    forgotten.
    """
    docs = Document(folder(FILES))
    names = [f"{salt}{number}" for number in range(6)]
    bad = [["e"] if number == 2 else ["coffee"] for number in range(6)]
    six_groups(docs, names, bad)
    with pytest.raises(IngestionError):
        docs.activate_group(names[2])
    with pytest.warns(IngestionWarning):
        docs.activate_group(*(name for name in names if name != names[2]))
    before = failures(docs)
    assert len(before) == 3 + 5
    with pytest.warns(IngestionWarning):
        docs.sync()
    assert failures(docs) == before
    for number in (0, 1, 3, 4):
        bad[number].clear()
    with pytest.warns(IngestionWarning, match=f"transform {names[5]}"):
        docs.sync()
    assert {stage for _, stage, _ in failures(docs)} == {
        f"transform {names[2]}",
        f"transform {names[5]}",
    }
    assert [len(docs.get_nodes(names[number])) for number in (0, 1, 3, 4, 5)] == [6, 6, 6, 6, 4]


def test_a_misnamed_metadata_key_is_not_the_cause(folder):
    """Where every file fails, the error names the first file's own cause, not a key that names no
    file.
    """
    docs = Document(
        folder({"b.txt": b"\x00\x01\x02\xff\x00", "c.docx": b"no"}),
        file_metadata={"a.txt": {"year": 1}},
    )
    with (
        pytest.warns(IngestionWarning, match=r"a\.txt"),
        pytest.raises(IngestionError, match=r"The first: b\.txt \(load\)") as caught,
    ):
        docs.get_nodes()
    assert "a.txt" not in str(caught.value)
    assert isinstance(caught.value.__cause__, LoadError)
    assert [one.path for one in docs.last_report.failed] == ["a.txt", "b.txt", "c.docx"]


def test_warnings_point_at_the_user_s_own_line(folder):
    """A warning stands at the line of the question, not inside the package, by whatever way one
    asks.
    """
    root = folder(FILES)

    def failing():
        return in_lines(root, Lines("coffee"), embed=Embed("milk"))

    ways = [
        lambda: failing().get_nodes("line"),
        lambda: failing().activate_group("line"),
        lambda: Retriever(failing(), "line", similarity="bm25")("tea"),
        lambda: failing().restricted({"file_type": ".txt"}).get_nodes("line"),
        lambda: Document(root, file_metadata={"no.txt": {}}).get_nodes(),
        lambda: (
            failing().find("line")(Document(root).get_nodes()[:0])
            or failing().get_nodes("line", limit=1)
        ),
    ]
    for way in ways:
        with pytest.warns(IngestionWarning) as caught:
            way()
        assert [warning.filename for warning in caught] == [__file__]


def test_two_documents_over_one_folder_warn_twice(folder):
    """Under Python's usual filter, which tells a place once, each of two questions has its
    warning.
    """
    root = folder(FILES)
    first, second = in_lines(root, Lines("coffee")), in_lines(root, Lines("coffee"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        first.get_nodes("line")
        second.get_nodes("line")
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert caught[0].lineno + 1 == caught[1].lineno


@pytest.fixture
def own_analyser():
    """A function that registers an analyser and a similarity "own" that ranks by it."""
    with analysers.isolated():

        def enter(analyser):
            analysers.register("own", analyser, replace=True)
            search = functools.partial(TermSearch, analyser="own")
            similarities.register(
                "own",
                dataclasses.replace(similarities["bm25"], name="own", search=search),
                replace=True,
            )

        yield enter


def words_but(bad):
    """Words of a text; for a text with the bad word an error, or None where the word says so."""

    def words(text):
        if bad in text:
            return None if bad == "nothing" else text.no_such
        return text.split()

    return words


def test_an_analyser_that_raises_on_one_file(folder, own_analyser):
    """The warning and the report name the file and the analyser; the other files are found."""
    own_analyser(Analyser("own", words_but("coffee")))
    docs = in_lines(folder({**FILES, "b.txt": "coffee tea"}))
    with pytest.warns(
        IngestionWarning, match=r"index line with own.*b\.txt.*analyser 'own' raised AttributeError"
    ):
        hits = Retriever(docs, "line", similarity="own")("tea")
    assert {hit.path for hit in hits} == {"a.txt"}
    assert failures(docs) == [("b.txt", "index line with own", TransformError)]
    assert "'own'" in str(docs.last_report.failed[0].error)
    assert len(docs.get_nodes("line")) == 5


def test_an_analyser_that_returns_nothing_for_one_file(folder, own_analyser):
    """None in the place of terms is a failure of that file, not a file without terms."""
    own_analyser(Analyser("own", words_but("nothing")))
    docs = Document(folder({"a.txt": "green tea", "b.txt": "nothing tea"}))
    with pytest.warns(IngestionWarning, match=r"b\.txt.*analyser 'own'.*None"):
        assert [hit.path for hit in Retriever(docs, "FineChunk", similarity="own")("tea")] == [
            "a.txt"
        ]


@pytest.mark.parametrize("bad", ["coffee", "nothing"])
def test_an_analyser_that_fails_on_the_query(folder, own_analyser, bad):
    """A query without terms for want of an analyser is an error, not an empty result."""
    own_analyser(Analyser("own", words_but(bad)))
    retriever = Retriever(Document(folder({"a.txt": "green tea"})), "FineChunk", similarity="own")
    assert len(retriever("tea")) == 1
    with pytest.raises(RetrievalError, match="The analyser 'own'"):
        retriever(f"tea {bad}")


def test_a_bare_function_is_no_analyser(folder, own_analyser):
    """A function registered without its Analyser is refused when it is used, with what to
    register.
    """
    own_analyser(str.split)
    with pytest.raises(ConfigError, match=r"Analyser"):
        Retriever(Document(folder(FILES)), "FineChunk", similarity="own")("tea")


def test_the_terms_of_a_large_document_in_parts(tmp_path, monkeypatch):
    """Parts of a document's terms rank as its terms at once, beside small documents, whose text is
    read again where it was released.
    """
    teas = "\n".join(f"Tea {number} of Uji costs {number % 7} EUR." for number in range(400))
    texts = {"large.txt": teas, "small.txt": "Tea of Uji.", "other.txt": teas[:2_000]}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def ranking():
        with Document(tmp_path) as docs:
            docs.create_node_group("line", transform=SentenceSplitter(20, 0))
            retriever = Retriever(docs, "line", "bm25", topk=9)
            hits = map(retriever, ("tea of uji", "costs 5 eur", "tea 217"))
            return [[(hit.path, hit.text, hit.score) for hit in some] for some in hits]

    at_once = ranking()
    monkeypatch.setattr("lazyrag.ingest.term_index._PART_CHARACTERS", 1_000)
    monkeypatch.setattr("lazyrag.ingest.pending.MUCH_TEXT", 500)
    monkeypatch.setattr("lazyrag.ingest.engine.MUCH_TEXT", 500)
    assert ranking() == at_once
    assert all(at_once)


@pytest.mark.parametrize(("much", "first"), [(20, {"large.txt"}), (1_000, set())])
def test_a_large_root_is_written_before_its_nodes_are_made(tmp_path, monkeypatch, much, first):
    """Writing it takes much memory, as the nodes do; small documents are written with their
    nodes.
    """
    monkeypatch.setattr("lazyrag.ingest.engine.MUCH_TEXT", much)
    written = []
    upsert = MapSegmentStore.upsert

    def noted(self, collection, rows):
        written.extend(row.path for row in rows)
        return upsert(self, collection, rows)

    monkeypatch.setattr(MapSegmentStore, "upsert", noted)
    before = []

    def lines(text):
        before.extend(written)
        return text.splitlines()

    with Document(tmp_path) as docs:
        docs.create_node_group("line", transform=lines)
        docs.activate_group("line")
        (tmp_path / "large.txt").write_text("Tea of Uji.\n" * 9, encoding="utf-8")
        docs.sync()
    assert set(before) == first
    assert len(written) == 10
