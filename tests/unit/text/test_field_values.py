"""What questions name of the dictionary of field values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document
from lazyrag.read.field_values import infer_values
from lazyrag.text.field_values import Inference

OTHERS = [f"Other House {year}.pdf" for year in range(2001, 2006)]


def dictionary(*names: str, others: list[str] = OTHERS) -> Document:
    """A Document of some names, and of as many others as make them selective."""
    docs = Document()
    docs.add_texts(dict.fromkeys((*names, *others), "Tea."))
    return docs


def infer(docs: Document, question: str) -> Inference | None:
    """What a question names of a Document's field values."""
    return infer_values(docs.reader, question)


def preferred(docs: Document, question: str) -> list[str]:
    """The names of files that match a question best."""
    inference = infer(docs, question)
    return [] if inference is None else sorted(inference.levels[max(inference.levels)])


@pytest.mark.parametrize(
    "question",
    [
        "What did Best Buy earn in FY18?",
        "BestBuy revenue 2018",
        "bestbuy revenue 2018",
        "Bestbuuy revenue 2018",
        "Bstbuy revenue 2018",
        "Does BEST pay dividends in fiscal 2018?",
    ],
)
def test_a_company_and_a_year_name_a_file(question):
    """Names match joined, in small letters, in part and with a letter wrong."""
    docs = dictionary("BESTBUY_2018_10K.pdf", "BESTBUY_2019_10K.pdf")
    assert preferred(docs, question) == ["BESTBUY_2018_10K.pdf"]


@pytest.mark.parametrize("name", ["JnJ", "J&J", "Johnson", "Johnson & Johnson", "Jonhson Johnson"])
def test_initials_and_parts_name_a_file(name):
    """Names match by initials, one of their words, or a beginning in capitals."""
    docs = dictionary("JOHNSON_JOHNSON_2022_10K.pdf", "MGMRESORTS_2022_10K.pdf")
    assert preferred(docs, f"Did {name} grow in 2022?") == ["JOHNSON_JOHNSON_2022_10K.pdf"]
    assert preferred(docs, "Did MGM grow in 2022?") == ["MGMRESORTS_2022_10K.pdf"]


def test_a_chinese_name_and_a_quarter_name_a_file():
    """Chinese names match whole or by their beginning, quarters in both languages."""
    names = ("红叶茶业2018年二季度报告.pdf", "红叶茶业2018年三季度报告.pdf")
    docs = dictionary(*names, others=[*OTHERS, "青山咖啡2018年二季度报告.pdf"])
    assert preferred(docs, "红叶茶业2018年第二季度的收入是多少？") == [names[0]]
    assert preferred(docs, "红叶2018年Q3收入") == [names[1]]
    assert str(infer(docs, "红叶茶业二季度")) == "name: 红叶茶业, quarter: Q2"


def test_the_part_of_the_year_that_is_asked_comes_first():
    """The very period is before the year's end, its other parts, and the year beside it."""
    docs = dictionary("Acme 2022.pdf", "Acme 2022Q2.pdf", "Acme 2022Q4.pdf", "Acme 2023.pdf")
    levels = infer(docs, "Sales of Acme in 2022").levels
    assert levels == {
        1.0: {"Acme 2022.pdf"},
        0.9: {"Acme 2022Q4.pdf"},
        0.5: {"Acme 2022Q2.pdf"},
        0.25: {"Acme 2023.pdf"},
    }
    assert preferred(docs, "Sales of Acme in Q2 2022") == ["Acme 2022Q2.pdf"]


def test_a_report_follows_its_event():
    """Of dated reports the one soon after the day in question matches."""
    docs = dictionary("Acme_dated-2023-05-05.pdf", "Acme_dated-2023-08-30.pdf")
    assert preferred(docs, "Who spoke for Acme on May 3, 2023?") == ["Acme_dated-2023-05-05.pdf"]


def test_two_files_that_tie_are_both_preferred():
    """Files of one name and period have one level."""
    docs = dictionary("Acme 2022 10K.pdf", "Acme 2022 Letter.pdf")
    assert preferred(docs, "Acme in 2022") == ["Acme 2022 10K.pdf", "Acme 2022 Letter.pdf"]


@pytest.mark.parametrize(
    "question",
    [
        "",
        "What was the revenue?",
        "other houses sell tea",  # small letters without a date: any word
        "What happened in 1950?",
        "Other House",  # most of the files
    ],
)
def test_what_tells_no_files_apart_is_not_inferred(question):
    """Blank and general questions, unknown years and what most files share infer nothing."""
    assert infer(dictionary("Acme 2018.pdf"), question) is None


def test_words_of_undated_names_are_left_to_keyword_search():
    """Words of paths without a period infer nothing."""
    docs = dictionary("tutorial/Warsaw.md", "howto/upgrading.md", others=["a", "b", "c"])
    assert infer(docs, "How do I go to Warsaw after Upgrading in 2020?") is None


def test_files_of_one_name_are_told_apart_by_no_filter(tmp_path):
    """A file name that another document has, too, is not preferred."""
    for folder in ("Acme 2018", "Bond 2019", *OTHERS):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "report.txt").write_text("Tea.", "utf-8")
    docs = Document(tmp_path)
    assert docs.search("tea")
    assert infer(docs, "Acme in 2018") is None


def test_declared_fields_name_undated_files():
    """Values of declared fields match without a period in the name."""
    fields = {"company": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}
    companies = ["3M", "Green Tea", "Best Buy", "Bond"]
    metadata = {
        f"{number}.pdf": {"company": company, "year": 2018 + number % 2}
        for number, company in enumerate(companies)
    }
    docs = Document(doc_fields=fields)
    docs.add_texts(dict.fromkeys(metadata, "Tea."), metadata)
    assert str(infer(docs, "What did 3M earn in FY2018?")) == "company: 3M, year: 2018"
    assert preferred(docs, "How does Green Tea do?") == ["1.pdf"]
    assert docs.field_values("company") == dict.fromkeys(sorted(companies), 1)
    assert docs.field_values("year") == {2018: 2, 2019: 2}


NAMES = st.builds(
    "{} {}.pdf".format, st.sampled_from("Acme Bond Cole Dorn".split()), st.integers(2001, 2004)
)


@settings(max_examples=20)
@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=12), NAMES)
def test_changes_lead_to_the_dictionary_of_what_is_left(changes, question):
    """After any additions and deletions the dictionary is that of what is left."""
    changed = dictionary()
    left = set(OTHERS)
    for name, is_added in changes:
        if is_added:
            changed.add_texts({name: "Tea."})
        elif name in left:
            changed.delete_files([name])
        left = left | {name} if is_added else left - {name}
    fresh = dictionary(others=sorted(left))
    assert changed.field_values("year") == fresh.field_values("year")
    assert infer(changed, question) == infer(fresh, question)
    assert not changed.maintenance.verify()


@pytest.fixture(scope="module")
def two_languages() -> Document:
    """A Document of English and Chinese names."""
    return dictionary("BESTBUY_2018_10K.pdf", "红叶茶业2018年报.pdf")


@given(question=st.text(max_size=80))
def test_any_question_is_read(two_languages, question):
    """No question fails, and levels are above 0 and at most 1."""
    inference = infer(two_languages, question)
    assert inference is None or all(0 < level <= 1 for level in inference.levels)


def test_a_name_with_a_capital_inside_is_shown_as_written():
    """A single small letter before a capital begins no name of its own."""
    inference = infer(dictionary("iPhone_15_2023.pdf", "Galaxy_2023.pdf"), "iPhone 15 camera?")
    assert str(inference) == "name: iPhone 15"


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("May I install it in 2018?", ""),
        ("Show me what they gave us in 2018", ""),
        ("what do they do in the us in 2018", ""),
        ("What was sold in the US in 2018?", "US"),
        ("Did May Ltd sell tea in 2018?", "May Ltd"),
    ],
)
def test_words_that_begin_questions_are_no_names(question, name):
    """Unless they are written in capitals, or with the rest of the name."""
    docs = dictionary("May_Ltd_2018.pdf", "Show_2018.pdf", "US_2018.pdf")
    inferred = dict(infer(docs, question).values) if infer(docs, question) else {}
    assert inferred.get("name", "") == name
