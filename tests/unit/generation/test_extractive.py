"""Quotations that answer a question without a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import CitationManager, Hit, RAGContext, RetrievalResult
from lazyrag.generation.extractive import (
    MAX_CHARACTERS,
    choose_excerpts,
    choose_quotes,
    quote_answer,
    rank_units,
)

TEA = "# Tea\n\nTea is old. Green tea wants water of 80 degrees. It keeps for two years.\n"
TABLE = "| tea | water |\n|---|---|\n| green | 80 degrees |\n| black | 95 degrees |\n"


PLOTS = """\
| Plot | Area (mu) | pH | Cultivar |
| --- | --- | --- | --- |
| Lower Pond | 54 | 5.2 | Baiye |
| Stone Ridge | 96 | 4.6 | Longjing |
| North Terrace | 84 | 4.4 | seedlings |

Tea likes a pH between 4.5 and 5.5.
"""
PLAIN = "Minutes.\n\nName | House | Votes\nLu Ailian | 14 | 36\nFan Zhigang | 29 | 31\n"


def context(question: str, *texts: str, **metadata: object) -> RAGContext:
    """A context of some texts."""
    hits = [Hit(str(number), text, 1.0, f"{number}.md") for number, text in enumerate(texts)]
    return RAGContext(question, "", RetrievalResult.from_hits(hits), 0, metadata)


def test_an_excerpt_has_parts_of_code_and_only_what_fits():
    """Code is chosen by its parts between blank lines; the best unit is there, however long."""
    text = "Make tea:\n\n```py\nheat(water)\n\nsteep(oolong)\n\nserve()\n```\nDone.\n"
    question = "how to steep oolong"

    def chosen(most: int) -> list[str]:
        [units] = choose_excerpts(question, [text], lambda _, units: len(units) <= most)
        return [text[unit.start : unit.end] for unit in units]

    assert chosen(0) == chosen(1) == ["steep(oolong)"]
    assert chosen(2) == ["steep(oolong)", "serve()\n```"]


def test_quoted_code_has_both_fences():
    """Also where the passage begins or ends in it."""
    for text in ("steep(oolong)\n```\nDone.", "Tea:\n\n```py\nsteep(oolong)"):
        answer = quote_answer(context("steep oolong", text)).response
        assert answer.count("```") == 2, answer


@given(
    st.lists(st.text(alphabet="tea green 80.。\n|`茶水", max_size=900), max_size=4),
    st.sampled_from(["How hot is green tea?", "茶水多热？", ""]),
)
def test_quotations_are_complete_units_within_the_limit(texts, question):
    """And their spans are those of the units."""
    quotes = choose_quotes(question, context(question, *texts).sources)
    assert sum(quote.size for quote in quotes) <= MAX_CHARACTERS
    assert sum(len(quote.units) for quote in quotes) <= 2 * 3
    ranked = {(unit.source, unit.unit) for unit in rank_units(question, texts)}
    for quote in quotes:
        assert {(quote.source, unit) for unit in quote.units} <= ranked


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        (
            "When was the mill built?",
            "The mill was built of brick. The mill was built in 1869.",
            "1869",
        ),
        ("Who built the mill?", "The mill was built twice. The mill was built by Li.", "Li"),
        ("磨坊是什么时候建成的？", "磨坊用砖建成。磨坊于1869年建成。", "1869"),
    ],
)
def test_what_the_question_asks_for_decides(question, text, words):
    """A number, or a name that the question has not."""
    best = rank_units(question, [text])[0]
    assert words in text[best.unit.start : best.unit.end]


def test_a_row_comes_with_the_header_of_its_table():
    """Written as a table; its span is that of the row."""
    result = quote_answer(context("How hot is the water for black tea?", TABLE))
    assert "| tea | water |\n| - | - |\n| black | 95 degrees |\n\n[1]" in result.response
    [quote] = [quote for quote in result.metadata["quotes"] if "black" in quote["text"]]
    assert TABLE[slice(*quote["span"])] == "| black | 95 degrees |"


@pytest.mark.parametrize(
    ("question", "text", "row"),
    [
        ("What is the pH of Stone Ridge?", PLOTS, "| Stone Ridge | 96 | 4.6 | Longjing |"),
        (
            "Which cultivar grows on North Terrace?",
            PLOTS,
            "| North Terrace | 84 | 4.4 | seedlings |",
        ),
        ("How many votes has Fan Zhigang?", PLAIN, "| Fan Zhigang | 29 | 31 |"),
    ],
)
def test_the_row_that_answers_is_quoted_never_a_header_alone(question, text, row):
    """The words of the header count for its rows."""
    response = quote_answer(context(question, text)).response
    [table] = [block for block in response.split("\n\n") if block.startswith("|")]
    assert table.splitlines()[1] == "|" + " - |" * (row.count("|") - 1)
    assert table.splitlines()[2:] == [row]


def test_the_file_that_a_question_names_is_quoted():
    """Its name stands above its text: another file with the same words is not quoted."""
    meyer = Hit("1", "Total due: 300 euros, payable in ten days.", 1.0, "invoice-2021-meyer.txt")
    smith = Hit("2", "Total due: 100 euros.", 1.0, "invoice-2022-smith.txt")
    for hits in ([meyer, smith], [smith, meyer]):
        quotes = choose_quotes("How much is due of the Meyer invoice of 2021?", hits)
        assert [hits[quote.source] for quote in quotes][:1] == [meyer]
    assert len(choose_quotes("How much is due of the Meyer invoice of 2021?", [meyer, smith])) == 1


def test_in_few_texts_the_words_of_the_question_decide():
    """Words that no text has are no part of its weights, and those in every text are rare there."""
    texts = [
        f"# 标的\n采购绿茶{weight}公斤。\n# 交付\n应于{year}年4月送货。逾期支付违约金。\n# 付款\n30日内付款。"
        for year, weight in ((2023, 500), (2024, 800))
    ]
    hits = [Hit(str(number), text, 1.0, f"{number}.md") for number, text in enumerate(texts)]
    [quote] = choose_quotes("违约金是多少", hits)
    assert texts[quote.source][quote.start : quote.end] == "逾期支付违约金。"


def test_a_heading_is_no_reason_to_quote_what_is_above_it():
    """In a list of questions the answer is below each, and not that of the one before."""
    faq = "# FAQ\n\n## How do I reset it?\n\nOpen the page and enter a number.\n\n"
    text = f"{faq}## Where is the printer on floor 5?\n\nNext to the kitchen, PRN-05.\n"
    answer = quote_answer(context("Where is the printer on floor 5?", text))
    assert answer.response == "“Next to the kitchen, PRN-05.” [1]"


def test_the_record_of_a_loaded_table_is_quoted_alone():
    """CSV files and workbooks are loaded as a line for each row: one row answers, and no other."""
    staff = "\n".join(f"Name: Person {number}; Phone: 70{number}" for number in range(20, 40))
    answer = quote_answer(context("What is the phone of person 31?", f"Name | Phone\n{staff}"))
    assert answer.response == "“Name: Person 31; Phone: 7031” [1]"


def test_a_text_without_sentences_is_quoted_in_part():
    """A transcript without full stops is longer than any quotation: the part that answers."""
    text = f"{'so and then ' * 100}the code is 73519 {'you know ' * 100}"
    answer = quote_answer(context("What is the code?", text))
    assert "the code is 73519" in answer.response
    assert len(answer.response) < 400


@pytest.mark.parametrize("is_retrieved", [True, False])
def test_a_row_that_a_passage_begins_with_is_no_header(is_retrieved):
    """Its header is that of the passage before it, if that was found too."""
    begin, end = PLOTS.split("| Stone")
    hits = [Hit("b", "| Stone" + end, 1.0, document_id="d", chunk_id=2)]
    hits += [Hit("a", begin, 0.9, document_id="d", chunk_id=1)] * is_retrieved
    rag_context = RAGContext("pH of Stone Ridge?", "", RetrievalResult.from_hits(hits), 0)
    response = quote_answer(rag_context).response
    header = "| Plot | Area (mu) | pH | Cultivar |\n| - | - | - | - |\n" * is_retrieved
    assert response.startswith(header + "| Stone Ridge | 96 | 4.6 | Longjing |\n\n[1]")


CODE = "```ini\n[lower_pond]\nminutes = 150\n\n[stone_ridge]\nminutes = 105\n```"


@pytest.mark.parametrize("ends_at", ["[lower_pond]", "[stone_ridge]", "minutes = 105", "```\n"])
def test_code_is_quoted_in_whole_lines_between_fences(ends_at):
    """Wherever the passage ends or begins, it has its lines and both fences."""
    text = f"The controller of Stone Ridge waters as here:\n\n{CODE}\n\nIt stands in the shed.\n"
    at = text.rindex(ends_at) + len(ends_at)
    for part in (text[:at], text[text.rindex("\n", 0, at) + 1 :]):
        response = quote_answer(context("controller of stone_ridge minutes?", part)).response
        fences = [line for line in response.splitlines() if line.startswith("```")]
        assert fences in ([], ["```ini", "```"], ["```", "```"])
        assert "``` " not in response


def test_code_that_a_passage_cuts_is_quoted_from_the_one_that_has_all_of_it():
    """After the sentence that announces it in the passage before."""
    before = f"Tea is old. The controller waters as here:\n\n{CODE[:40]}"
    hits = [
        Hit("a", before, 1.0, document_id="d", chunk_id=1),
        Hit("b", CODE, 0.9, document_id="d", chunk_id=2),
    ]
    rag_context = RAGContext("How is the controller set?", "", RetrievalResult.from_hits(hits), 0)
    response = quote_answer(rag_context).response
    assert "“The controller waters as here:” [1]" in response
    assert response.endswith(f"{CODE}\n\n[2]")


def test_a_sentence_with_a_colon_comes_with_the_code_that_it_announces():
    """Code keeps its lines."""
    text = "Make green tea with this command:\n\n```sh\nbrew --green \\\n  --hot\n```\n"
    response = quote_answer(context("Which command makes green tea?", text)).response
    assert response.startswith(
        "“Make green tea with this command:” [1]\n\n```sh\nbrew --green \\\n"
    )
    assert response.endswith("```\n\n[1]")


def test_a_clause_before_a_semicolon_comes_with_the_rest_of_its_sentence():
    """Half of a rule would mislead."""
    text = (
        "第五条 交货由乙方负责。第六条 争议由双方协商解决；协商不成的，提交仲裁。本合同一式两份。"
    )
    [quote] = choose_quotes("发生争议怎么办？", [Hit("a", text, 1.0)])
    assert text[quote.start : quote.end] == "第六条 争议由双方协商解决；协商不成的，提交仲裁。"


def test_a_clause_before_quoted_ones_is_quoted_too():
    """It may answer best what the ones after it answer as well."""
    text = "鲜叶分三等。特级只采单芽，每公斤90元；一级采一芽一叶，每公斤52元；二级每公斤28元。"
    response = quote_answer(context("采一公斤单芽能拿多少钱？", text)).response
    assert "特级只采单芽，每公斤90元" in response


@pytest.mark.parametrize(
    "text",
    [
        TEA,
        "Water for “green tea” has 80 degrees.",
        "「茶」 is “tea”.",
        "Tea of [1, 2]: hot.",
        "- Green tea came in 1908. In 2. May it was hot.",
    ],
)
def test_every_quotation_is_verified_by_the_citations(text):
    """Each in marks that it does not have itself, with the number of its source."""
    rag_context = context("How hot is the water for green tea?", text)
    response = quote_answer(rag_context).response
    checks = CitationManager().check_quotes(response, list(rag_context.sources))
    assert checks
    assert all(check.ok for check in checks)
    assert CitationManager().resolve(response, list(rag_context.sources)).problems == ()


def test_the_end_of_a_sentence_is_not_quoted_where_another_passage_has_all_of_it():
    """Overlapping passages begin within a sentence, and neighbours have the rank of their hit."""
    hits = [
        Hit("b", "of 80 degrees. Black tea is hotter.", 1.0, document_id="d", chunk_id=2),
        Hit("c", "Coffee has a hundred degrees of water.", 0.9, document_id="e", chunk_id=1),
        Hit("a", "Green tea wants water of 80 degrees.", 0.9, document_id="d", chunk_id=1),
    ]
    rag_context = RAGContext("Green tea of 80 degrees?", "", RetrievalResult.from_hits(hits), 0)
    assert quote_answer(rag_context).response.startswith(
        "“Green tea wants water of 80 degrees.” [3]"
    )


def test_overlapping_passages_are_quoted_once():
    """The same sentence of two passages."""
    result = quote_answer(context("How hot is the water for green tea?", TEA, TEA))
    assert result.response.count("80 degrees") == 1


@pytest.mark.parametrize(
    ("question", "begins"), [("Is it hot?", "No answer found"), ("热吗？", "没有找到答案")]
)
def test_a_weak_context_says_so_and_quotes_what_is_closest(question, begins):
    """In the language of the question."""
    response = quote_answer(context(question, TEA, weak=True)).response
    assert response.startswith(begins)
    assert "[1]" in response


@pytest.mark.parametrize("text", ["# Only a heading", "x" * 700, "——"])
def test_nothing_that_can_be_quoted_is_no_answer(text):
    """A quotation is never cut: the source is named."""
    result = quote_answer(context("How hot?", text))
    assert result.response == "No answer found; the closest passages:\n\n[1]"
    assert result.metadata["quotes"] == []


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            "How often is the fire drill held in the hall and how high is the rent?",
            {"The fire drill is held monthly.", "The rent is 4,000 euros."},
        ),
        ("消防演习多久一次，租金是多少？", {"消防演习每月一次。", "租金是四千元。"}),
    ],
)
def test_each_part_of_a_question_is_quoted(question, words):
    """Also where one of them has more words of the question."""
    texts = [
        "The fire drill is held monthly. The fire drill in the hall is held by the fire brigade.",
        "The rent is 4,000 euros. The hall has two doors.",
        "消防演习每月一次。租金是四千元。仓库有两个门。",
    ]
    quotes = choose_quotes(question, context(question, *texts).sources)
    quoted = " ".join(texts[quote.source][quote.start : quote.end] for quote in quotes)
    assert all(word in quoted for word in words)
