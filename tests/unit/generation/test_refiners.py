"""Refiners: texts shortened within a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.errors import ConfigError, GenerationError
from lazyrag.generation.refiners import (
    Refiner,
    TextPart,
    TreeRefiner,
    part_of_node,
    part_of_text,
    register_refiner,
)
from lazyrag.text.tokens import token_counters

UTF8 = token_counters["utf8"]
PIECES = st.sampled_from(
    [
        "# 标题\n",
        "## Tea\n",
        "绿茶。",
        "Hot water. ",
        "\n\n",
        "👩‍👩‍👧",
        "它在山上。",
        "e\u0301x ",
        "{a}",
    ]
)
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=4)


def below(part: TextPart) -> list[TextPart]:
    """All parts that a part is made of."""
    return [one for child in part.parts for one in (child, *below(child))]


@pytest.mark.parametrize("name", ["tree", "extractive", "best_first"])
@given(texts=TEXTS, budget=st.integers(1, 40))
def test_what_is_left_fits_and_keeps_its_order(name, texts, budget):
    """The counter's tokens of all texts are at most the budget; every line stands in its source, in
    its order.
    """
    refined = Refiner(name, budget=budget)("hot tea 绿茶", texts)
    assert sum(UTF8.count(one.text) for one in refined) <= budget
    assert [one.index for one in refined] == sorted({one.index for one in refined})
    for one in refined:
        assert one.original_length == UTF8.count(texts[one.index])
        assert one.refined_length == UTF8.count(one.text) <= one.original_length
        at = 0
        for line in filter(str.strip, one.text.splitlines()):
            at = texts[one.index].index(line.strip(), at) + len(line.strip())


@given(texts=TEXTS, budget=st.integers(1, 60))
def test_no_part_is_taken_with_one_that_contains_it(texts, budget):
    """Of what is chosen, nothing lies in something else that is chosen."""
    chosen = TreeRefiner().choose(
        "tea", [part_of_text(one) for one in texts], budget=budget, counter=UTF8
    )
    for parts in chosen:
        inner = {id(one) for part in parts for one in below(part)}
        assert not inner & {id(part) for part in parts}


def test_a_section_takes_the_place_of_its_sentences():
    """Where the whole section fits, it is given with its heading; elsewhere the best sentence
    is.
    """
    text = (
        "# Brewing\n\nHot water of 80 degrees. Wait a minute.\n\n"
        "# Hills\n\nThey are far and steep. Nobody goes there."
    )
    [large] = Refiner("tree", budget=20)("brewing: how hot is the water?", [text])
    [small] = Refiner("tree", budget=10)("brewing: how hot is the water?", [text])
    assert large.text == "# Brewing\n\nHot water of 80 degrees. Wait a minute."
    assert small.text == "Hot water of 80 degrees."


def test_underlined_headings_are_headings():
    """The line under a heading is no text: it is never taken for a sentence."""
    text = "Brewing\n=======\n\nHot water of 80 degrees. Wait a minute.\n\nHills\n-----\n\nThey are far and steep."
    [kept] = Refiner("tree", budget=9)("how hot is the water?", [text])
    assert kept.text == "Hot water of 80 degrees."
    assert not [part for part in below(part_of_text(text)) if set(part.text) <= set("=-")]


def test_the_extractive_refiner_takes_the_sentences_that_share_words():
    """Of a Chinese text, the sentence about the question is left."""
    [kept] = Refiner("extractive", budget=12)(
        "绿茶用多少度的水？", ["茶园在山上。绿茶用80度的水。山很高，路很远。"]
    )
    assert kept.text == "绿茶用80度的水。"
    assert kept.compression_ratio == kept.refined_length / kept.original_length < 1


@pytest.mark.parametrize("name", ["tree", "extractive"])
def test_the_best_sentence_is_cut_rather_than_replaced(name):
    """Where the best sentence exceeds the budget, its passage about the query is left, in whole
    words.
    """
    best = "Although the hills are far away and the road is long, green tea needs water of eighty degrees, says Mei."
    texts = ["The hills have water. Dogs sleep.", f"Cats are here. {best}"]
    [kept] = Refiner(name, budget=12)("How much water does green tea need?", texts)
    assert kept.index == 1
    assert {"green", "tea", "needs", "water"} <= set(kept.text.split())
    assert f" {kept.text}" in best
    [short] = Refiner(name, budget=3)("水", ["水" * 9])
    assert short.text == "水" * 3


@pytest.mark.parametrize("name", ["tree", "extractive"])
def test_a_neighbour_is_left_only_beside_its_sentence(name):
    """A sentence without a term of the query explains a relevant one; it is dropped where that one
    was skipped.
    """
    relevant = "Hot water of eighty degrees suits green tea leaves best, whatever the books that you have read say"
    text = f"Tea is hot. {relevant}. It is so. Cats purr at night and dogs do not."
    scores = {"Tea is hot.": 1.0, f"{relevant}.": 0.9}

    def model(query, documents, top_n):
        return [(at, scores.get(one, 0.0)) for at, one in enumerate(documents)]

    [small] = Refiner(name, budget=6, model=model)("hot tea", [text])
    [large] = Refiner("extractive", budget=60, model=model)("hot tea", [text])
    assert "It is so." not in small.text
    assert large.text == f"Tea is hot. {relevant}. It is so."


@pytest.mark.parametrize("name", ["tree", "extractive"])
def test_what_is_irrelevant_is_dropped_below_the_budget(name):
    """Texts that fit lose the sentences, and the texts, that have nothing of the query."""
    texts = [
        "Hot water of 80 degrees. Wait for two minutes. Hills are far. Roads are long.",
        "Cats purr. Dogs bark.",
    ]
    [kept] = Refiner(name)("How hot must the water be?", texts)
    assert kept.text.startswith("Hot water of 80 degrees.")
    assert "Roads" not in kept.text
    assert kept.compression_ratio < 1


def test_texts_that_fit_stay_as_they_are():
    """Nothing is asked and nothing lost below the budget."""
    [kept] = Refiner("chat", budget=99, model=lambda text: 1 / 0)("tea?", ["Green  tea. "])
    assert (kept.text, kept.compression_ratio) == ("Green  tea. ", 1.0)


def test_the_chat_refiner_keeps_what_the_model_copies():
    """Each text is a question; NONE leaves nothing of it; what is too long is cut; thoughts are no
    copy.
    """
    seen = []

    def model(text):
        seen.append(text)
        return (
            "<think>Hm.</think>Water of {80} degrees. And so on, and so on."
            if "{80}" in text
            else "NONE"
        )

    texts = ["Water of {80} degrees. " + "Hills. " * 9, "Cars. " * 12]
    [kept] = Refiner("chat", budget=18, model=model)("How hot?", texts)
    assert (kept.index, kept.text) == (0, "Water of {80} degrees.")
    assert all("How hot?" in text for text in seen)


def test_another_score_may_be_given():
    """A callable rerank model decides over the words."""
    longest = lambda query, documents, top_n: [(i, len(d)) for i, d in enumerate(documents)]  # noqa: E731
    [kept] = Refiner("tree", budget=7, model=longest)("tea", ["Tea. Tea. Hills are very steep."])
    assert kept.text == "Hills are very steep."


def test_a_node_is_refined_by_its_children(tmp_path):
    """The tree of node groups is the structure: of a document, the chunks that answer are left."""
    (tmp_path / "a.txt").write_text(
        "Hills are far.\n\nHot water of 80 degrees.\n\nRoads are long.", encoding="utf-8"
    )
    with Document(tmp_path) as docs:
        docs.create_node_group("lines", transform=lambda text: text.split("\n\n"))
        docs.activate_group("lines")
        [root] = docs.get_nodes(group="lazyllm_root")
        tree = part_of_node(root, "lines")
        with pytest.raises(ConfigError, match=r"has no child group 'line'.*Did you mean 'lines'"):
            part_of_node(root, "line")
    assert len(tree.parts) == 3
    assert TreeRefiner().refine("How hot?", [tree], budget=9, counter=UTF8) == [
        "Hot water of 80 degrees."
    ]


def test_a_refiner_that_breaks_its_word_is_named():
    """Too many tokens, another number of texts and an exception are errors with the refiner's
    name.
    """
    register_refiner(lambda query, texts, **_: list(texts), name="all")
    register_refiner(lambda query, texts, **_: [], name="none")
    register_refiner(lambda query, texts, **_: 1 / 0, name="raises")
    for name in ("all", "none", "raises"):
        with pytest.raises(GenerationError, match=name):
            Refiner(name, budget=1)("tea?", ["Green tea and water."])


def test_bad_arguments_are_refused():
    """A budget below 1, a keyword nobody takes, a counter that is none, a blank question."""
    for make in (
        lambda: Refiner(budget=0),
        lambda: Refiner("extractive", modle=len),
        lambda: Refiner("chat"),
        lambda: Refiner(counter=3),
        lambda: Refiner()(" ", ["a"]),
        lambda: TreeRefiner().refine("a", ["a"], budget=1, counter="utf8"),
        lambda: TreeRefiner().refine("a", [], budget=0, counter="utf8"),
        lambda: Refiner()("a", "a"),
    ):
        with pytest.raises(ConfigError):
            make()
