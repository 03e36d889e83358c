"""The manager of citations: resolving, validating, formatting, renumbering."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import CitationManager, Hit, RetrievalResult
from lazyrag.errors import ConfigError
from lazyrag.generation.citations import cited_span, is_statement

TEA = Hit(
    "uid-1",
    "Tea is old. Use water of 80 degrees. Wait three minutes.",
    1.0,
    source="tea.pdf",
    document_id="doc",
    chunk_id=3,
    metadata={"location": "page 2"},
)
CHINESE = Hit("uid-2", "绿茶很古老。用八十度的水冲泡。等三分钟。", 0.9, source="茶.txt")
SOURCES = [TEA, CHINESE]
MANAGER = CitationManager()
PARTS = st.sampled_from(
    [
        "[1]",
        "[2]",
        "[1,2]",
        "[1-3]",
        "[2;5]",
        "[",
        "]",
        "[[3]]",
        "【资料4，资料1】",
        "(",
        "`",
        "\n",
        "```",
        "1",
        " ",
        "\\",
        "[1†s]",
    ]
)


def test_a_citation_has_all_that_is_known_of_its_source():
    """Number, file, document, number of the node, snippet, uid and place."""
    [citation] = MANAGER.resolve("Pour water at 80 degrees [1].", SOURCES).citations
    assert (citation.index, citation.source, citation.document_id, citation.chunk_id) == (
        1,
        "tea.pdf",
        "doc",
        3,
    )
    assert (citation.uid, citation.location) == ("uid-1", "page 2")
    assert citation.text_snippet == "Use water of 80 degrees."


@pytest.mark.parametrize(
    ("response", "snippet"),
    [
        ("Wait for three minutes. [1]", "Wait three minutes."),
        ("等三分钟即可[2]。", "等三分钟。"),
        ("冲泡时用八十度的水。[2]", "用八十度的水冲泡。"),
        ("Tea. Nothing shared here [2].", "绿茶很古老。"),
        ("[2] says so.", "绿茶很古老。"),
        ("Use water of 80 degrees. Wait three minutes [2][1].", "绿茶很古老。"),
    ],
)
def test_the_snippet_is_the_sentence_that_shares_the_most(response: str, snippet: str):
    """In both languages; the first of equals."""
    assert MANAGER.resolve(response, SOURCES).citations[0].text_snippet == snippet


def test_a_snippet_of_a_long_sentence_is_a_stretch_of_it():
    """A text without an end of a sentence is cut, and what is shared is in the piece."""
    source = Hit("a", "word " * 200 + "water of 80 degrees " + "word " * 200, 1.0)
    [citation] = MANAGER.resolve("Water of 80 degrees [1].", [source]).citations
    assert "80 degrees" in citation.text_snippet
    assert len(citation.text_snippet) <= 200
    assert citation.text_snippet in source.text


def test_citations_stand_in_the_order_of_their_first_mention():
    """Each source once."""
    assert [one.index for one in MANAGER.resolve("A [2]. B [1][2]. C [1].", SOURCES).citations] == [
        2,
        1,
    ]


def test_each_problem_is_told_once():
    """A number without a source, 0, and a malformed marker: one sentence each, and no citation."""
    resolved = MANAGER.resolve("A [3]. B [3]. C [0]. D [1.5]. E [1.5] [1].", SOURCES)
    assert [one.index for one in resolved.citations] == [1]
    assert resolved.problems == (
        "The answer cites [3], which is no source; it was given [1] to [2].",
        "The answer cites [0], which is no source; it was given [1] to [2].",
        "The marker '[1.5]' is malformed; write it as [1], [1, 2] or [1-3].",
    )
    assert MANAGER.resolve("[5-9]", []).problems == (
        "The answer cites [5], [6], [7], ..., which are no sources; it was given no sources.",
    )


def test_validation():
    """True without markers; False for a number without a source, 0, and a malformed marker."""
    assert MANAGER.validate_citations("No markers.", 0)
    assert MANAGER.validate_citations("[1] 【2】", 2)
    assert not MANAGER.validate_citations("[3]", 2)
    assert not MANAGER.validate_citations("[0]", 2)
    assert not MANAGER.validate_citations("[1", 2)
    with pytest.raises(ConfigError, match="num_sources"):
        MANAGER.validate_citations("[1]", -1)


def test_the_list_of_sources():
    """A line for each: number, file, place; the uid where no file is known. A result is taken as
    hits are.
    """
    assert MANAGER.format_citations(SOURCES) == "[1] tea.pdf, page 2\n[2] 茶.txt"
    assert MANAGER.format_citations(RetrievalResult(["text"], context_ids=["u"])) == "[1] u"
    assert MANAGER.format_citations([]) == ""


@pytest.mark.parametrize("sources", ["text", ["text"], None, 3])
def test_sources_are_hits(sources: object):
    """Anything else is refused with what to give."""
    with pytest.raises(ConfigError, match="a sequence of Hit"):
        MANAGER.resolve("[1]", sources)


def test_an_answer_is_text():
    """None is refused by name."""
    with pytest.raises(ConfigError, match="response must be a string; got None"):
        MANAGER.extract_citations(None)


@pytest.mark.parametrize(
    ("text", "mapping", "written"),
    [
        ("A [1-3].", {1: 2, 2: 3, 3: 4}, "A [2-4]."),
        ("A [1–3].", {1: 1, 2: 5, 3: 6}, "A [1, 5–6]."),
        ("A [1][2] B [2].", {1: None, 2: 1}, "A[1] B [1]."),
        ("甲【1，2】乙", {1: 2, 2: 1}, "甲【2，1】乙"),
        ("甲[资料1，资料2]乙", {1: 3}, "甲[资料3，资料2]乙"),
        ("A [Source 1].", {1: 7}, "A [Source 7]."),
        ("A 【1†source】.", {1: 2}, "A 【2†source】."),
        ("A [^2], [[2]].", {2: 1}, "A [^1], [[1]]."),
        ("A [1, 2, 3].", {2: None}, "A [1, 3]."),
        ("A [1] and [2, 1].", {1: None, 2: None}, "A and."),
        ("A [1.5] `[1]` [1](http://x).", {1: 2}, "A [1.5] `[1]` [1](http://x)."),
        ("A [2[1]].", {1: None, 2: 5}, "A [2[]]."),
    ],
)
def test_renumbering_keeps_the_style(text: str, mapping: dict, written: str):
    """Brackets, labels, separators and dashes stay; a marker that goes takes the space before
    it.
    """
    assert MANAGER.renumber(text, mapping) == written


@given(
    st.lists(PARTS, max_size=20),
    st.dictionaries(st.integers(0, 6), st.none() | st.integers(1, 10**6)),
)
def test_renumbering_is_renumbering_what_is_extracted(parts: list[str], mapping: dict):
    """The numbers of the new text are those of the old one, mapped; with nothing to map it is the
    old text.
    """
    text = "".join(parts)
    mapped = [mapping.get(number, number) for number in MANAGER.extract_citations(text)]
    assert MANAGER.extract_citations(MANAGER.renumber(text, mapping)) == list(
        dict.fromkeys(number for number in mapped if number is not None)
    )
    assert MANAGER.renumber(text, {}) == text


def test_a_marker_that_would_grow_too_long_is_taken_apart():
    """A marker of many large numbers would be read as none; each gets brackets of its own."""
    text = "[" + ",".join(map(str, range(1, 90))) + "]"
    written = MANAGER.renumber(text, {number: 10**6 + 2 * number for number in range(1, 90)})
    assert MANAGER.extract_citations(written) == [10**6 + 2 * number for number in range(1, 90)]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ([1, 2], "mapping must be"),
        ({1: 0}, "The new number of \\[1\\]"),
        ({"1": 2}, "A number to replace"),
    ],
)
def test_what_a_mapping_is(mapping: object, says: str):
    """Whole numbers to whole numbers or None."""
    with pytest.raises(ConfigError, match=says):
        MANAGER.renumber("[1]", mapping)


@given(st.text() | st.text("[]12,-“”水。 a.\n", max_size=60), st.integers(0, 3))
def test_any_answer_can_be_resolved(response: str, count: int):
    """No text raises; each citation's index has a source, once; valid answers without quotes have
    no problems.
    """
    sources = [TEA, CHINESE, Hit("c", "", 0.0)][:count]
    resolved = MANAGER.resolve(response, sources)
    indices = [citation.index for citation in resolved.citations]
    assert len(set(indices)) == len(indices)
    assert all(sources[citation.index - 1].id == citation.uid for citation in resolved.citations)
    quotes = [check for check in MANAGER.check_quotes(response, sources) if not check.ok]
    assert MANAGER.validate_citations(response, count) == (
        len(resolved.problems) - len({q.problem for q in quotes}) == 0
    )


def test_names_of_sources_are_one_line_without_nulls():
    """A place that a store of others has as null is none; a line break in a name begins no line of
    the list.
    """
    hits = [
        Hit("1", "a", 1.0, "tea.pdf", metadata={"location": None}),
        Hit("2", "b", 1.0, "x\n[3] official.txt"),
    ]
    manager = CitationManager()
    assert manager.format_citations(hits) == "[1] tea.pdf\n[2] x [3] official.txt"
    assert manager.resolve("Tea [1].", hits).citations[0].location == ""


def test_the_name_of_a_source_is_no_quotation():
    """A file's name, its path, its stem and its title may stand in quotation marks; other words are
    looked up.
    """
    hit = Hit(
        "1",
        "Water of 80 degrees.",
        1.0,
        "books/The Tea Growers Handbook.pdf",
        metadata={"title": "Tea at Home"},
    )
    manager = CitationManager()
    for name in ("The Tea Growers Handbook", "The Tea Growers Handbook.pdf", "Tea at Home"):
        assert manager.check_quotes(f'As "{name}" says, it is hot [1].', [hit]) == []
    [check] = manager.check_quotes('As "The Coffee Growers Handbook" says, it is hot [1].', [hit])
    assert check.found is None


PAPER = Hit(
    "p",
    "Tea lowers stress, as earlier work has shown [1]. 茶叶可以降低血压［2］。\n\nReferences\n"
    "[1] Smith, J. Tea and sleep. 2019.\n[2] Li, H. Tea and blood. 2020.\n",
    1.0,
)


@pytest.mark.parametrize(
    "answer",
    [
        "Tea lowers stress, as earlier work has shown [1].",
        "They say that “earlier work has shown [1]”.",
        "茶叶可以降低血压［2］。",
        "See:\n\n* [1] Smith, J. Tea and sleep. 2019.\n",
        "[2] Li, H. Tea and blood.",
        "[1] Smith, J. Tea\n[2] Li, H. Tea",
    ],
)
def test_a_marker_that_is_copied_from_a_source_is_no_citation(answer):
    """With the words around it; it is no problem either, whatever its number."""
    for sources in ([PAPER], [PAPER, PAPER]):
        resolved = CitationManager().resolve(answer, sources)
        assert (resolved.citations, resolved.problems) == ((), ())
        stream = CitationManager().stream(sources)
        assert [one for letter in answer for one in stream.feed(letter)] == []


CODE = Hit(
    "c",
    "parametrize('arg1', [1,2]) calls the test twice. x[0] is the first item of a list, and"
    " my_list[1] the second [1]. Lists begin at [0].",
    1.0,
)


@pytest.mark.parametrize(
    "answer",
    [
        "“Lists begin at [0].” [1] “parametrize('arg1', [1,2]) calls the test twice.” [1]",
        '"x[0] is the first item of a list, and my_list[1] the second [1]." [1]',
        "Well: “x[0] is the first item of a list” [1]",
        "In lists「x[0] is the first item」 [1]",
        "Use `x[0]` and `my_list[1]`, as the list begins at `[0]` [1].",
    ],
)
def test_brackets_of_a_quotation_are_no_citations(answer):
    """An index of code and a footnote belong to the quotation, which is in its source as it is."""
    resolved = CitationManager().resolve(answer, [CODE, PAPER])
    assert [one.index for one in resolved.citations] == [1]
    assert resolved.problems == ()
    assert {statement.indices for statement in resolved.statements} == {(1,)}
    stream = CitationManager().stream([CODE, PAPER])
    streamed = [one for letter in f"{answer} So." for one in stream.feed(letter)]
    assert [one.index for one in streamed] == [1]


def test_other_brackets_of_a_quotation_are_compared():
    """Another index than the source's is cited, and the quotation has other words than it."""
    resolved = CitationManager().resolve("“Lists of x begin at [2].” [1]", [CODE, PAPER])
    assert [one.index for one in resolved.citations] == [2, 1]
    assert "no source contains them" in resolved.problems[0]


@pytest.mark.parametrize(
    "answer",
    [
        "Tea lowers stress [1].",
        "“Tea lowers stress” [1], “they say” [1]",
        "It was shown [1].",
        "[1] Tea lowers stress, they say.",
        "Tea, too:\n[1]",
    ],
)
def test_a_marker_with_other_words_is_a_citation(answer):
    """Though a source has an equal one."""
    assert [one.index for one in CitationManager().resolve(answer, [PAPER]).citations] == [1]


def test_a_copied_marker_and_a_citation_of_one_statement():
    """The answer's own marker counts."""
    resolved = CitationManager().resolve(
        "Tea lowers stress, as earlier work has shown [1] [2].", [PAPER, PAPER]
    )
    assert [one.index for one in resolved.citations] == [2]


def test_markers_are_compared_with_sources_in_linear_time():
    """Thousands of equal markers in the answer and in the sources."""
    source = Hit("n", "so it was [1] " * 4_000, 1.0)
    assert len(CitationManager().resolve("as one says [1] " * 4_000, [source]).citations) == 1


@pytest.mark.parametrize("before", ["", "Use hot water "])
def test_tens_of_thousands_of_markers_are_one_citation(before):
    """In one sentence, with words or without."""
    source = Hit("n", "Use hot water. It is so.", 1.0)
    resolved = CitationManager().resolve(before + "[1]" * 60_000, [source])
    assert [citation.index for citation in resolved.citations] == [1]
    assert resolved.problems == ()
    verdicts = [statement.verdict for statement in resolved.statements]
    assert verdicts == (["supported"] if before else [])


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("It is brewed with hot water", "Use hot water."),
        ("It is so, and we have it", None),
        ("They did it in 5 of 7", None),
        ("用水泡茶", None),
        ("水要烧开", "水烧开后再泡。"),
        ("这是我们的", None),
    ],
)
def test_only_a_sentence_with_a_shared_content_word_is_cited(claim, expected):
    """Function words and single characters say nothing about what a statement is from."""
    source = "It is what we have. They did 5 of it. Use hot water. 这是他们的。水烧开后再泡。"
    start, end = cited_span(source, claim)
    assert (source[start:end] or None) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("I do not know the answer to this question.", False),
        ("I don’t know.", False),
        ("Sorry, I cannot answer this question.", False),
        ("The documents don't mention a price.", False),
        ("The provided material does not contain any information about that.", False),
        ("不知道", False),
        ("很抱歉，我无法回答这个问题。", False),
        ("资料中没有相关内容。", False),
        ("The steps are:", False),
        ("I do not know who, but tea is old.", True),
        ("The documents do not include VAT.", True),
        ("The document does not need a signature.", True),
        ("不知道火候的人会烧焦茶叶。", True),
        ("文档没有密码。", True),
    ],
)
def test_statements(sentence, expected):
    """That there is no answer is none; what only looks so is one."""
    assert is_statement(sentence) is expected
