"""`Document.collect`: every match, against brute force over all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document
from lazyrag.errors import ConfigError, IngestionWarning, NotRegisteredError
from lazyrag.models import CallableChatModel
from lazyrag.text.analyzers import term_function
from tests.shared import shared

FORMS = {
    "tea": ("tea", "Teas", "TEA"),
    "delay": ("delayed", "delays", "delay"),
    "4200": ("4,200", "4200"),
    "茶叶": ("茶叶",),
    "合作社": ("合作社",),
}
"""Written forms of words; those of one word match each other."""
FORM = st.sampled_from([(word, form) for word, forms in FORMS.items() for form in forms])
FILLER = st.sampled_from([("", "the"), ("", "storage"), ("", "Über"), ("", "的"), ("", "什么")])
TEXT = st.lists(st.one_of(FORM, FILLER), min_size=1, max_size=6)
QUERY = st.lists(st.lists(FORM, min_size=1, max_size=3), min_size=1, max_size=3)
PER = st.sampled_from(["document", "node"])


def all_items(docs: Document, query: str = "", limit: int = 2, **options: Any) -> list[Any]:
    """The items of all pages, whose count is that of each page."""
    items: list[Any] = []
    totals = set()
    after = None
    while True:
        page = docs.collect(query, limit=limit, after=after, **options)
        items += page.items
        totals.add(page.total)
        after = page.next
        if after is None:
            assert totals == {len(items)}
            return items
        assert len(page.items) == limit


VIEW = st.sampled_from(["", "visible", "shared"])


@given(st.lists(TEXT, min_size=1, max_size=6), QUERY, PER, st.booleans(), VIEW)
@settings(deadline=None)
def test_it_finds_what_brute_force_finds(texts, query, per, splits, view) -> None:
    """Of words that are known by how the texts were made; by an index, and without one; in a
    restricted view.
    """
    docs = Document(doc_fields={"half": DocField(DataType.INT32)})
    docs.create_node_group(
        "line", lambda text: text.split("\n"), index_text=(lambda node: "x") if splits else None
    )
    names = [f"{at % 2}/{'é' if at % 3 else 'z'}{at}.md" for at in range(len(texts))]
    docs.add_texts(
        {
            name: "\n".join([" ".join(form for _, form in text), "delays"])
            for name, text in zip(names, texts, strict=True)
        },
        {name: {"half": int(name[0])} for name in names},
    )
    if view:
        docs = docs.restricted({"half": 0}, statistics=view)
    alternatives = [{word for word, _ in words} for words in query]
    expected = []
    for name, text in sorted(zip(names, texts, strict=True)):
        lines = [{word for word, _ in text}, {"delay"}]
        matching = [
            number
            for number, words in enumerate(lines, 1)
            if any(needed <= words for needed in alternatives)
        ]
        if view and name.startswith("1"):
            continue
        expected += [(name, number) for number in matching][: 1 if per == "document" else None]
    written = " OR ".join(" ".join(form for _, form in words) for words in query)
    items = all_items(docs, written, per=per, group="line")
    number_of = {(node.path, node.uid): node.number for node in docs.get_nodes("line")}
    assert [(item.path, number_of[item.path, item.uid]) for item in items] == expected
    assert all(docs.read(item.path, item.span) == item.snippet for item in items if item.span)


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ('"green tea"', ["a", "b"]),
        ("“Green  TEA” hot", ["b"]),
        ('"to be or not"', ["c"]),
        ('green OR "to be"', ["a", "b", "c"]),
        ("tea", ["a", "b", "d"]),
        ("少年", []),
        ("多年", ["e"]),
    ],
)
def test_phrases_alternatives_and_stop_words(query: str, paths: list[str]) -> None:
    """A phrase stands in the text like this; of a question word no half is found."""
    docs = Document()
    docs.add_texts(
        {
            "a": "A green tea.",
            "b": "Hot: green\ntea",
            "c": "To be or not to be",
            "d": "Tea, not green.",
            "e": "多少年了？很多年。",
        }
    )
    if "green" in query and "OR" in query:
        paths = [*paths, "d"]
    assert [item.path for item in all_items(docs, query)] == sorted(paths)


def test_table_rows_have_their_places() -> None:
    """All cells of a row together match; a row of another table has its own place."""
    docs = Document()
    docs.add_texts(
        {"prices.md": "| tea | EUR |\n|---|---|\n| green | 4 |\n| black | 3 |\n\nblack 4"}
    )
    [item] = all_items(docs, "4 green OR 3 green", per="row")
    assert (item.snippet, item.path) == ("tea: green; eur: 4", "prices.md")
    assert docs.read(item.path, item.span) == "| green | 4 |"
    assert item.location.endswith("row 1")
    assert [item.snippet for item in all_items(docs, per="row", limit=1)] == [
        "tea: green; eur: 4",
        "tea: black; eur: 3",
    ]


STAFF = "Name,City,Team,Remote\nAnn,Berlin,Sales,yes\nBob,Paris,R&D,no\nCy,Berlin,R&D,\n"
BILLS = "Bill No,Client,Status,Note\n1,Acme,overdue,\n2,Birch,paid,bill sent twice\n3,Acme,,\n"
STAFF_ZH = "姓名,部门,工作地点\n王芳,市场部,上海\n李雷,研发部,北京\n韩梅梅,研发部,上海\n"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Which bills are overdue?", ["1"]),
        ("overdue bills", ["1"]),
        ("How many bills are there?", ["1", "2", "3"]),
        ("List all bills with status paid", ["2"]),
        ("Which bills of Acme are overdue or paid", []),
        ("which bills of Birch OR overdue bills", ["1", "2"]),
        ('Which bills are "sent twice"?', ["2"]),
        ("bills", ["1", "2", "3"]),
        ("status", ["1", "2"]),
        ("Which bills are lost?", []),
        ("Which employees work in Berlin?", []),
        ("Which staff work in Berlin?", ["Ann", "Cy"]),
        ("Which staff are remote?", ["Ann"]),
        ("哪些员工在上海工作", ["王芳", "韩梅梅"]),
        ("员工 上海", ["王芳", "韩梅梅"]),
        ("工作人员 上海", []),
        ("work", []),
        ("有多少员工在研发部", ["李雷", "韩梅梅"]),
        ("列出所有员工", ["王芳", "李雷", "韩梅梅"]),
        ("哪些员工在广州工作", []),
    ],
)
def test_a_row_has_the_words_of_its_table(tmp_path: Path, query: str, expected: list[str]) -> None:
    """Words of column names and of the path; a column of yes and no counts where it says yes."""
    for name, text in {"staff.csv": STAFF, "bills.csv": BILLS, "员工.csv": STAFF_ZH}.items():
        (tmp_path / name).write_text(text, "utf-8")
    items = all_items(Document(tmp_path), query, per="row")
    assert [item.snippet.split("; ")[0].split(": ")[1] for item in items] == expected


def test_a_restricted_view_counts_rows_of_visible_tables_only(tmp_path: Path) -> None:
    """Rows of hidden documents are neither listed nor counted."""
    (tmp_path / "low.csv").write_text(BILLS)
    (tmp_path / "bills.csv").write_text(BILLS)
    fields = {"level": DocField(DataType.VARCHAR)}
    docs = Document(tmp_path, file_metadata=lambda path: {"level": path.stem}, doc_fields=fields)
    view = docs.restricted({"level": "low"})
    assert docs.collect("Which bills are overdue?", per="row").total == 2
    assert [item.path for item in all_items(view, "Which bills are overdue?", per="row")] == [
        "low.csv"
    ]


def test_a_question_for_a_list_is_read_like_its_words() -> None:
    """In documents as in rows: the words that ask need not be in a text."""
    docs = Document()
    docs.add_texts(
        {"a": "A late delivery has a penalty.", "b": "The list of prices.", "丙": "违约金"}
    )
    assert [item.path for item in all_items(docs, "Which contracts mention a penalty?")] == []
    assert [item.path for item in all_items(docs, "List all that mention a penalty")] == ["a"]
    assert [item.path for item in all_items(docs, "price list")] == ["b"]
    assert [item.path for item in all_items(docs, "哪些文档提到了违约金？")] == ["丙"]


def test_filters_and_restricted_views_hide_everything_else(tmp_path: Path) -> None:
    """Matches, counts, and the names of files that failed."""
    (tmp_path / "a.md").write_text("tea for all")
    (tmp_path / "secret.md").write_text("tea for few")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (tmp_path / "empty.txt").write_bytes(b"")
    fields = {"level": DocField(DataType.VARCHAR)}
    level = lambda path: {"level": "low" if path.name == "a.md" else "high"}  # noqa: E731
    docs = Document(tmp_path, file_metadata=level, doc_fields=fields)
    with pytest.warns(IngestionWarning):
        page = docs.collect("tea")
    assert [item.path for item in page.items] == ["a.md", "secret.md"]
    assert page.unread == {"broken.pdf": "failed: load", "empty.txt": "empty"}
    assert [item.path for item in all_items(docs, "tea", filters={"level": "high"})] == [
        "secret.md"
    ]
    assert [item.path for item in all_items(docs, filters={"file_type": ".md"})] == [
        "a.md",
        "secret.md",
    ]
    view = docs.restricted({"level": "low"})
    for per in ("document", "node"):
        page = view.collect("tea", per=per)
        assert [item.path for item in page.items] == ["a.md"]
        assert (page.total, page.unread) == (1, {})


def test_a_judge_leaves_out_and_its_price_is_known_before() -> None:
    """One call for each text until one of a document is supported; `dry_run` makes none."""
    docs = Document()
    docs.create_node_group("line", lambda text: text.split("\n"))
    docs.add_texts({"a": "tea is old\ntea is hot\ntea is hot", "b": "tea is old"})
    asked: list[str] = []

    def judge(query: str, text: str) -> str:
        asked.append(text)
        return "supported" if "hot" in text else "not_found"

    price = docs.collect("tea", group="line", judge=judge, dry_run=True)
    assert (price.calls, asked, len(price.items)) == (4, [], 2)
    page = docs.collect("tea", group="line", judge=judge)
    assert ([item.path for item in page.items], page.refused, page.total) == (["a"], 1, 2)
    assert asked == ["tea is old", "tea is hot", "tea is old"]
    assert page.calls == 3
    assert 0 < page.tokens < price.tokens


def test_a_chat_model_is_a_judge() -> None:
    """It is shown the query and each text."""
    model = CallableChatModel(
        lambda prompt: "supported" if "hot" in prompt and "Subject: tea" in prompt else "not_found"
    )
    docs = Document()
    docs.add_texts({"a": "tea is old", "b": "tea is hot"})
    page = docs.collect("tea", judge=model)
    assert [item.path for item in page.items] == ["b"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "tea NOT green"},
        {"query": "the"},
        {"query": '""'},
        {"query": 7},
        {"query": "x" * 9_000},
        {"query": "tea", "after": "[1]"},
        {"query": "tea", "after": "[" * 100_000},
        {"query": "tea", "after": 3},
        {"query": "tea", "limit": 0},
        {"query": "tea", "limit": 10**9},
        {"query": "tea", "per": "page"},
        {"query": "tea", "judge": 1},
        {"query": "tea", "filters": {"nothing": 1}},
        {"query": "tea", "group": "Nothing"},
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any]) -> None:
    """Each by an error of the package that says what must hold."""
    with pytest.raises((ConfigError, NotRegisteredError)):
        Document().collect(**arguments)


QUESTIONS = {
    "md-en": ["pool recycle", "docker networks OR prometheus", "REST API", "users", "Hub"],
    "md-zh": ["文档 接口", "启动 服务器", "异步 OR 下划线", "文档", "安装"],
}


@pytest.mark.shared
@pytest.mark.parametrize("folder", QUESTIONS)
def test_recall_on_documentation_is_complete(folder: str) -> None:
    """Every passage whose terms, or characters in Chinese, are those of the query."""
    files = sorted(shared("data", "documentation", folder).rglob("*.md"))[:80]
    docs = Document()
    docs.add_texts({str(at): path.read_text("utf-8") for at, path in enumerate(files)})
    terms_of = term_function("en")
    nodes = [
        (node.uid, node.text, {*terms_of(node.text)}) for node in docs.get_nodes("MediumChunk")
    ]
    for query in QUESTIONS[folder]:
        expected = set()
        for words in query.split(" OR "):
            if folder == "md-zh":
                matching = [uid for uid, text, _ in nodes if all(w in text for w in words.split())]
            else:
                needed = {*terms_of(words)}
                matching = [uid for uid, _, terms in nodes if needed <= terms]
            expected.update(matching)
        items = all_items(docs, query, limit=100, per="node")
        assert [item.uid for item in items] == [uid for uid, *_ in nodes if uid in expected]
        assert expected
