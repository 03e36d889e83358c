"""Near-duplicates in Documents and results, held against the definition on all pairs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, RetrievalChain, Retriever
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.read import near_duplicates
from lazyrag.retrieval import Distinct
from lazyrag.text.near_duplicates import similarity
from tests.judged import judged_set

RULES = "Let the kettle cool before you refill it. Boil the water once only. Water for green tea has 80 degrees."


def runs_of_eight(text):
    """The definition of a shingle, in Python."""
    data = " ".join(text.casefold().split()).encode().ljust(8, b"\0")
    return {data[at : at + 8] for at in range(len(data) - 7)}


def paths(clusters):
    """Of the nodes of clusters."""
    return [[node.path for node in own] for own in clusters]


@given(st.text("ab 茶é", max_size=30), st.text("ab 茶é", max_size=30))
def test_similarity_is_jaccard_of_runs_of_eight_bytes(one, other):
    """Of any two texts, short ones and Chinese included."""
    first, second = runs_of_eight(one), runs_of_eight(other)
    assert similarity(one, other) == len(first & second) / len(first | second)


def test_copies_revisions_and_others(tmp_path):
    """Case and white space do not count; clusters are in the order of paths."""
    texts = {
        "z": RULES,
        "m": RULES.upper().replace(" ", "\n"),
        "b": "Coffee.",
        "a": "coffee.",
        "x": "Salt.",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(text)
    with Document(tmp_path) as docs:
        expected = [["a.md", "b.md"], ["m.md", "z.md"]]
        assert paths(near_duplicates(docs)) == paths(near_duplicates(docs, "FineChunk")) == expected
        assert (
            paths(near_duplicates(docs, filters={"file_name": ["a.md", "m.md", "z.md"]}))
            == expected[1:]
        )
        assert near_duplicates(docs, "CoarseChunk")[0][0].group == "CoarseChunk"


def test_nothing_is_found_in_nothing():
    """An empty Document, and one with a single text."""
    with Document() as docs:
        assert near_duplicates(docs) == []
        docs.add_texts({"a": RULES})
        assert near_duplicates(docs) == []


@pytest.mark.shared
@pytest.mark.parametrize("name", ["xquad-en", "xquad-zh"])
def test_every_similar_pair_of_edited_texts_is_found(name):
    """On real texts with seeded edits, held against all pairs: none is missed, none is added."""
    rng, texts = random.Random(0), {}
    for number, text in enumerate(list(judged_set(name).texts.values())[:40]):
        letters = list(text)
        for at in rng.sample(
            range(len(letters)), len(letters) // rng.choice([10, 30, 60, 120, 1000])
        ):
            letters[at] = rng.choice(text)
        texts |= {f"{number:02}": text, f"{number:02} edited": "".join(letters)}
    for threshold in (0.7, 0.9):
        sets = {name: runs_of_eight(text) for name, text in texts.items()}
        due = [
            [one, other]
            for one, other in itertools.combinations(sorted(texts), 2)
            if len(sets[one] & sets[other]) >= threshold * len(sets[one] | sets[other])
        ]
        assert 3 < len(due) < 38
        with Document() as docs:
            docs.add_texts(texts)
            assert paths(near_duplicates(docs, threshold=threshold)) == due


def test_many_copies_are_one_cluster():
    """Also of more than a text is compared with in each band."""
    with Document() as docs:
        docs.add_texts(
            {f"{at:03}": f"{RULES} {at % 2}" for at in range(100)} | {"tea": "Green tea."}
        )
        [cluster] = near_duplicates(docs)
        assert len(cluster) == 100


def test_of_near_duplicates_the_best_stays_in_a_result():
    """In the order and with the scores of the retriever; explanations show it as a stage."""
    with Document() as docs:
        docs.add_texts(
            {
                "a": RULES,
                "b": f"{RULES} Boil the water.",
                "c": RULES.replace("kettle", "Kettle"),
                "d": "Water.",
            }
        )
        by_keyword = Retriever(docs, "FineChunk", "bm25")
        found = by_keyword("boil the water")
        chain = RetrievalChain(by_keyword, Distinct(), topk=3)
        best = next(node for node in found if node.path in "abc")
        assert [(node.path, node.score) for node in chain("boil the water")] == [
            (node.path, node.score) for node in found if node.path == "d" or node is best
        ]
        assert "Distinct" in [stage.name for stage in chain.explain("boil the water").stages]
        every = RetrievalChain(by_keyword, Distinct(threshold=1), topk=4)("boil the water")
        assert {node.path for node in every} in ({"a", "b", "d"}, {"b", "c", "d"})


def test_nodes_of_no_document():
    """Nodes need no Document, and blank ones are alike."""
    nodes = [DocNode(text=text) for text in ("tea", "", " TEA", " ", "salt")]
    assert [node.text for node in Distinct()(nodes)] == ["tea", "", "salt"]
    assert Distinct()([]) == []


@pytest.mark.parametrize("threshold", [0.2, 1.1, "0.8", True, float("nan")])
def test_a_threshold_out_of_range(threshold):
    """It is refused where it is passed."""
    with pytest.raises(ConfigError, match=r"threshold must be a number from 0\.5 to 1; got"):
        Distinct(threshold)
    with Document() as docs, pytest.raises(ConfigError, match="threshold must be"):
        near_duplicates(docs, threshold=threshold)


def test_an_unknown_group():
    """It is refused, with what there is."""
    with Document() as docs, pytest.raises(NotRegisteredError):
        near_duplicates(docs, "chunk")
