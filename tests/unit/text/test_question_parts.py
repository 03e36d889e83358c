"""Questions are split where their parts are certain, and only there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.text.question_parts import (
    MOST_PARTS,
    find_coverage,
    find_list_words,
    split_question,
)

PARTS = {
    "How do I install lazyrag and how do I configure a store?": [
        "How do I install lazyrag",
        "how do I configure a store?",
    ],
    "What is a lease? And how long does a lock last?": [
        "What is a lease?",
        "And how long does a lock last?",
    ],
    "Compare 3M's and Boeing's revenue in 2018": [
        "3M's revenue in 2018",
        "Boeing's revenue in 2018",
    ],
    "net revenue of Boeing in 2020, and of Netflix in 2021": [
        "net revenue of Boeing in 2020",
        "net revenue of Netflix in 2021",
    ],
    "Compare the price of tea and of milk": ["the price of tea", "the price of milk"],
    "Netflix vs JPMorgan operating income 2018": [
        "Netflix operating income 2018",
        "JPMorgan operating income 2018",
    ],
    "对比波音和网飞2020年的收入": ["波音2020年的收入", "网飞2020年的收入"],
    "What is the difference between black tea and green tea?": ["black tea", "green tea"],
    "How do the margins of Acme in 2018 and Bond in 2019 differ?": [
        "the margins of Acme in 2018",
        "the margins of Bond in 2019",
    ],
    "Compare the price of tea with the price of milk": ["the price of tea", "the price of milk"],
    "dividends in 2022: Acme versus Bond House": [
        "dividends in 2022 Acme",
        "dividends in 2022 Bond House",
    ],
    "What did Acme earn in 2018, 2019 and 2020?": [
        "What did Acme earn in 2018?",
        "What did Acme earn in 2019?",
        "What did Acme earn in 2020?",
    ],
    "Which settings do tox.ini and setup.cfg have?": [
        "Which settings do tox.ini have?",
        "Which settings do setup.cfg have?",
    ],
    "What changed in Python 3.11 and 3.12?": [
        "What changed in Python 3.11?",
        "What changed in Python 3.12?",
    ],
    "怎么安装 passlib，怎么安装 python-jose？": ["怎么安装 passlib", "怎么安装 python-jose"],
    "2017、2018 年的营收分别是多少": ["2017 年的营收", "2018 年的营收"],
    "A 和 B 有什么区别": ["A", "B"],
    "比较苹果和香蕉的营养": ["苹果的营养", "香蕉的营养"],
    "红茶、绿茶和白茶的水温各是多少？": ["红茶的水温", "绿茶的水温", "白茶的水温"],
}

WHOLE = [
    "",
    "tea",
    "salt and pepper",
    "research and development",
    "black and white",
    "Where are salt and pepper?",
    "How is research and development funded?",
    "What is PKCE and which version added it?",  # "it" needs the first part
    "How and why does the build fail?",
    "When and where do I sign?",
    "What grew between 2017 and 2018?",
    "growth from 2017 to 2018",
    "How do both client.py and server.py start?",
    "As of August 30, 2023, what is the gain?",
    "Who founded Procter and Gamble?",
    "What did Marks and Spencer sell?",
    "What is the range of 3, 4 and 5?",
    "参与文档翻译和运行测试",
    "中华人民共和国的首都是哪里？",
    "如果证书过期，怎样换新的？",
    "数据库是什么，有什么用？",  # the second clause has no subject
    "Compare " + "tea and milk " * 50,
]


@pytest.mark.parametrize("question", PARTS)
def test_parts_are_queries_of_their_own(question):
    """Each has the words that the question has for all of them."""
    assert split_question(question) == PARTS[question]


@pytest.mark.parametrize("question", WHOLE)
def test_a_question_without_certain_parts_stays_as_it_is(question):
    """Not even its white space changes."""
    assert split_question(question) == [question]
    assert split_question(f" {question}\n") == [f" {question}\n"]


def test_parts_do_not_depend_on_white_space():
    """Lines may be broken anywhere."""
    assert split_question("Compare\ttea\n with  milk ") == ["tea", "milk"]


WORDS = st.sampled_from(
    "how what is are do the a tea milk and or , ; : ? . vs versus compare between of in for with to"
    " differ difference 's 2017 2018 FY2019 tox.ini a_b --x-y 和 与 、 ， ？ 怎么 什么 分别 区别 比较 的 茶 \\".split()
)
QUESTIONS = st.lists(WORDS, max_size=30).map(" ".join) | st.lists(WORDS).map("".join) | st.text()


@given(QUESTIONS)
def test_any_text_has_a_few_parts(question):
    """No text raises; parts are distinct and none is blank."""
    parts = split_question(question)
    assert 1 <= len(parts) <= MOST_PARTS
    assert len(set(parts)) == len(parts)
    assert parts == [question] or all(map(str.strip, parts))


@given(st.lists(st.sampled_from("the tea is hot of in milk 3 cold water 茶 热 水温".split())))
def test_without_a_sign_of_parts_nothing_is_split(words):
    """Neither "and" nor a comma nor a comparison: one part."""
    question = " ".join(words)
    assert split_question(question) == [question]


@given(st.lists(QUESTIONS, max_size=5, unique=True), st.lists(st.text(), max_size=4))
def test_coverage_names_texts_that_exist(parts, texts):
    """Each part has the numbers of some texts, in order."""
    coverage = find_coverage(parts, texts)
    assert list(coverage) == parts
    for numbers in coverage.values():
        assert list(numbers) == sorted(set(numbers) & set(range(1, len(texts) + 1)))


def test_coverage_compares_the_words_that_differ():
    """What all parts have says nothing about any of them."""
    parts = ["sales of tea in 2018", "sales of milk in 2018"]
    texts = ["Sales grew in 2018.", "Tea was sold well."]
    assert find_coverage(parts, texts) == {parts[0]: (2,), parts[1]: ()}
    assert find_coverage(parts, []) == dict.fromkeys(parts, ())
    assert find_coverage([], texts) == {}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which suppliers deliver green tea?", "suppliers deliver green tea"),
        ("List all invoices from 2023 over $5,000", "invoices 2023 5,000"),
        ("有多少份报告涉及水分含量？", "报告 水分 含量"),
        ("列出所有关于 PostgreSQL 的文档", "PostgreSQL"),
        ("Where is the kiln?", ""),
        ("谁负责设备？", ""),
        ("How many?", ""),
    ],
)
def test_words_of_a_list_are_those_that_its_members_have(question, expected):
    """Words that ask are left out; other questions have none."""
    assert find_list_words(question) == expected


@given(st.text(max_size=300))
def test_words_of_a_list_stand_in_the_question(question):
    """For any question."""
    assert all(word in question for word in find_list_words(question).split())
