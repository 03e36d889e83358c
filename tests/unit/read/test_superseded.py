"""What newer documents replace: as they declare, as names say, and as far as it may be seen."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document
from lazyrag.errors import ConfigError
from lazyrag.read import superseded

TEXTS = {
    "leave-v2.md": "25 days",
    "leave-v10.md": "30 days",
    "leave-v9.md": "28 days",
    "old/leave-v1.md": "24 days",
    "lease_2021.pdf": "900 euros",
    "lease_2023-04.pdf": "950 euros",
    "tea.md": "tea",
}


def shelf(metadata=None, **options):
    """A Document of some texts."""
    docs = Document(**options)
    docs.add_texts(TEXTS, metadata)
    return docs


def lines(docs):
    """What is superseded, in short."""
    return [(entry.path, entry.by, entry.reason) for entry in superseded(docs)]


LEASE = ("lease_2021.pdf", "lease_2023-04.pdf", "2023-04-01 after 2021")
LEAVE = [
    ("leave-v2.md", "leave-v9.md", "version 9 after version 2"),
    ("leave-v9.md", "leave-v10.md", "version 10 after version 9"),
]


def test_names_tell_the_next_newer_one():
    """In one folder, by numbers and not by letters."""
    assert lines(shelf()) == [LEASE, *LEAVE]


def test_two_formats_of_one_version_do_not_replace_each_other():
    """Both are replaced by the next version."""
    docs = Document()
    docs.add_texts({"a v1.md": "x", "a v1.pdf": "x", "a v2.0.md": "x", "a v2.md": "x"})
    assert lines(docs) == [
        ("a v1.md", "a v2.0.md", "version 2.0 after version 1"),
        ("a v1.pdf", "a v2.0.md", "version 2.0 after version 1"),
    ]


def test_declarations_take_precedence(tmp_path):
    """In front matter, from the folder or the dataset; unknown names count for nothing."""
    (tmp_path / "hr").mkdir()
    for name in ("hr/a-v1.md", "hr/a-v2.md", "old.md"):
        (tmp_path / name).write_text("text")
    front = "---\nsupersedes:\n- a-v2.md\n- old.md\n- nowhere.md\n---\ntext"
    (tmp_path / "hr/a-v1.md").write_text(front)
    assert lines(Document(tmp_path)) == [
        ("hr/a-v2.md", "hr/a-v1.md", "declared"),
        ("old.md", "hr/a-v1.md", "declared"),
    ]


def test_of_several_declarations_the_last_one_counts():
    """By their days; and none replaces itself."""
    docs = shelf(
        {
            "leave-v2.md": {"supersedes": "tea.md", "date": "2024-05-01"},
            "leave-v9.md": {"supersedes": "tea.md", "date": "2023-05-01"},
            "tea.md": {"supersedes": "tea.md"},
        }
    )
    assert ("tea.md", "leave-v2.md", "declared") in lines(docs)


@pytest.mark.parametrize("value", [7, {"a": 1}, [], [None], "", "../..", "/", "\u0000"])
def test_declarations_of_any_kind_do_no_harm(value):
    """What names no document is left out."""
    assert lines(shelf({"tea.md": {"supersedes": value}})) == lines(shelf())


def test_changes_are_seen_at_once():
    """New metadata, new and deleted documents."""
    docs = shelf()
    docs.update_metadata({"leave-v10.md": {"supersedes": "tea.md"}})
    assert ("tea.md", "leave-v10.md", "declared") in lines(docs)
    docs.delete_files(["leave-v10.md", "lease_2021.pdf"])
    assert lines(docs) == [LEAVE[0]]


AMENDING = [
    "# Amendment to the lease of 3 March 2024",
    "Addendum No. 2 to the Lease Agreement dated as of March 3, 2024, between both parties.",
    "This text modifies the lease, dated 2024-03-03, as follows.",
    "关于2024年3月3日《Lease》的补充协议",
    "补充协议\n\n双方于2024年3月3日签订了《Lease》，现变更如下。",
    "《Lease》（2024年3月3日签订）变更协议",
]


@pytest.mark.parametrize("text", AMENDING)
@pytest.mark.parametrize("name", ["lease.md", "Lease (2024-03-03).pdf", "berlin/scan 7.pdf"])
def test_texts_tell_what_they_amend(text, name):
    """By the title, in the name or the metadata, and the day; it is shown as inferred."""
    docs = Document()
    texts = {name: "Date: 3 March 2024\nThe rent is 900.", "other.md": text, "tea.md": "Lease"}
    docs.add_texts(texts, {name: {"title": "Lease"}})
    reason = "inferred: its text amends lease, 2024-03-03"
    assert lines(docs) == [(name, "other.md", reason)]
    docs.add_texts({"last.md": f"{text}\n\nEffective date: 1 May 2024"})
    assert lines(docs) == [(name, "last.md", reason)]
    docs.delete_files(["last.md", "other.md"])
    assert lines(docs) == []


@pytest.mark.parametrize("heading", ["Lease", "# LEASE AGREEMENT", "\n## Lease (2024-03-03) ##"])
def test_the_first_line_of_a_text_is_a_title(heading):
    """An amendment finds its document by the first line and the day, under any file name; a title
    on another line and another day do not match.
    """
    docs = Document()
    texts = {
        "scan 7.txt": f"{heading}\n\nDate: 3 March 2024\nThe rent is 900.",
        "scan 8.txt": f"{heading}\n\nDate: 4 March 2024\nThe rent is 900.",
        "scan 9.txt": f"Letter\n{heading}\n\nDate: 3 March 2024\nThe rent is 900.",
        "other.md": AMENDING[0],
    }
    docs.add_texts(texts)
    reason = "inferred: its text amends lease, 2024-03-03"
    assert lines(docs) == [("scan 7.txt", "other.md", reason)]


@pytest.mark.parametrize(
    "text",
    [
        "# Amendment to the lease",
        "# Amendment to the lease of March 2024",
        "# Amendment to the lease of 4 March 2024",
        "# Amendment to the licence of 3 March 2024",
        "The lease of 3 March 2024 is in the safe.",
        "x " * 2_000 + "Amendment to the lease of 3 March 2024",
        "# Report on the amendment\n\nNo lease. On 3 March 2024 it rained.",
        "2024年3月3日《Lease》",
    ],
)
def test_texts_that_amend_nothing(text):
    """Without the title, the very day or a word of amending, or far from the beginning."""
    docs = Document()
    docs.add_texts({"lease.md": "Date: 3 March 2024\nThe rent is 900.", "other.md": text})
    assert lines(docs) == []


def test_what_a_text_amends_persists(tmp_path):
    """In its metadata and in the store; the same text is no new version."""
    store = str(tmp_path / "store.db")
    texts = {"lease.md": "Date: 3 March 2024\nThe rent is 900.", "other.md": AMENDING[0]}
    with Document(store_conf=store) as docs:
        docs.add_texts(texts)
        assert docs.add_texts(texts).added == ()
        docs.update_metadata({"other.md": {"team": "a"}})
        expected = lines(docs)
    assert len(expected) == 1
    with Document(store_conf=store, read_only=True) as docs:
        assert lines(docs) == expected
        [node] = docs.get_nodes(filters={"file_name": "other.md"})
        assert node.metadata["amends"] == "lease, 2024-03-03"


SHELF = {
    "lease.md": "Date: 3 March 2024\nThe rent is 900.",
    "amendment.md": AMENDING[0],
    "second.md": f"{AMENDING[0]}\n\nDate: 1 May 2024",
    "rules-v1.md": "The rent is low.",
    "rules-v2.md": "The rent is high.",
    "rules-v3.md": "The rent is higher.",
    "old.md": "The rent is 800.",
}


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from("ab"), min_size=len(SHELF), max_size=len(SHELF)),
    st.sampled_from(["old.md", "rules-v2.md", "rules-v3.md"]),
)
def test_a_restricted_document_marks_as_one_of_its_documents_alone(labels, declared):
    """What replaces a document, and what hits, explanations and `superseded` say of it."""
    metadata = {name: {"team": label} for name, label in zip(SHELF, labels, strict=True)}
    metadata["rules-v1.md"]["supersedes"] = declared
    seen = [name for name in SHELF if metadata[name]["team"] == "a"]
    field = {"team": DocField(DataType.VARCHAR)}
    docs, alone = Document(doc_fields=field), Document(doc_fields=field)
    docs.add_texts(SHELF, metadata)
    alone.add_texts({name: SHELF[name] for name in seen}, {name: metadata[name] for name in seen})
    for view in (docs.restricted({"team": "a"}), docs.restricted({"file_name": seen})):
        assert superseded(view) == superseded(alone)
        assert marks(view) == marks(alone)


def marks(docs):
    """What hits of a plain search say of newer documents."""
    return {
        (hit.path, hit.metadata.get("superseded_by"), hit.metadata.get("superseded_reason"))
        for hit in docs.search("rent", topk=20)
    }


def test_a_restricted_document_knows_visible_documents_only():
    """As if the hidden ones did not exist."""
    field = {"team": DocField(DataType.VARCHAR)}
    metadata = {path: {"team": "a"} for path in TEXTS}
    metadata["leave-v9.md"] = {"team": "b", "supersedes": "tea.md"}
    docs = shelf(metadata, doc_fields=field)
    view = docs.restricted({"team": "a"})
    assert lines(view) == [LEASE, ("leave-v2.md", "leave-v10.md", "version 10 after version 2")]
    assert ("tea.md", "leave-v9.md", "declared") in lines(docs)
    by_name = docs.restricted({"file_name": ["leave-v2.md", "leave-v9.md"]})
    assert lines(by_name) == [LEAVE[0]]


def test_many_documents_are_read_page_by_page():
    """The order of paths decides nothing."""
    docs = Document()
    docs.add_texts({f"{number % 7}/doc v{number}.md": "x" for number in range(1_200)})
    assert len(superseded(docs)) == 1_200 - 7


def test_only_documents():
    """Anything else is an error."""
    with pytest.raises(ConfigError, match="docs must be a Document"):
        superseded("tea")


NUMBERS = st.lists(st.integers(0, 10**6), min_size=1, max_size=4)
FORMS = (
    "policy-v{}.md",
    "Policy version {}.pdf",
    "policy_rev.{}.docx",
    "POLICY (V{})",
    "policy.v{}",
)
DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2099, 12, 31))


def of_names(*names):
    """What is superseded among documents of some names."""
    docs = Document()
    docs.add_texts(dict.fromkeys(names, "text"))
    return [(entry.path, entry.by) for entry in superseded(docs)]


@settings(max_examples=60)
@given(NUMBERS, NUMBERS, st.permutations(FORMS))
def test_versions_are_ordered_by_their_numbers(first, second, forms):
    """However names write them: 2.9 is before 2.10, and 2.0 is 2."""
    a, b = (
        form.format(".".join(map(str, numbers)))
        for form, numbers in zip(forms, (first, second), strict=False)
    )
    longest = max(len(first), len(second))
    order = [numbers + [0] * (longest - len(numbers)) for numbers in (first, second)]
    expected = [] if order[0] == order[1] else [(a, b) if order[0] < order[1] else (b, a)]
    assert of_names(a, b) == expected


@settings(max_examples=60)
@given(DAYS, DAYS)
def test_dates_are_ordered_by_time(first, second):
    """In any common form."""
    a = f"leases/Lease ({first:%Y%m%d}).pdf"
    b = f"leases/lease_{second.isoformat()}.docx"
    expected = [] if first == second else [(a, b) if first < second else (b, a)]
    assert of_names(a, b) == expected


@settings(max_examples=60)
@given(st.lists(st.text("v第版月年 -_.0123456789()ab/", min_size=1, max_size=30), max_size=8))
def test_any_names_can_be_read(names):
    """Following what replaces a document comes to an end, at a document that nothing replaces."""
    docs = Document()
    texts = {f"a{name}b": "text" for name in names}
    docs.add_texts(texts)
    newer = {entry.path: entry.by for entry in superseded(docs)}
    assert newer.keys() | set(newer.values()) <= set(texts)
    for path in newer:
        steps = 0
        last = path
        while last in newer:
            last = newer[last]
            steps += 1
        assert steps <= len(texts)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("contract_2021.pdf", "2023 contract.docx"),
        ("lease-2024-05.md", "lease-2024-05-31.md"),
        ("lease-2024.md", "lease-2024-05.md"),
        ("租赁合同（2021年）.pdf", "租赁合同（2023年）.pdf"),
        ("考勤制度第二版.docx", "考勤制度第3版.docx"),
        ("考勤制度v3.docx", "考勤制度V12.docx"),
        ("policy-v2-2024-05-31.md", "policy-v3-2022-01-01.md"),
        ("report v1.md", "report v2.md"),
    ],
)
def test_names_that_tell_an_order(older, newer):
    """Versions before dates."""
    assert of_names(newer, older) == [(older, newer)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("report-2022.pdf", "report-2023.pdf"),
        ("3M_2018_10K.pdf", "3M_2019_10K.pdf"),
        ("Acme_8K_dated-2023-05-05.pdf", "Acme_8K_dated-2023-05-30.pdf"),
        ("2022年度报告.pdf", "2023年度报告.pdf"),
        ("minutes-2024-01-05.md", "minutes-2024-02-05.md"),
        ("prices Q1 2024.xlsx", "prices Q2 2024.xlsx"),
        ("2024-05-30.md", "2024-05-31.md"),
        ("v1.md", "v2.md"),
        ("chapter-1.md", "chapter-2.md"),
        ("ipv4.md", "ipv6.md"),
        ("a/lease-2021.md", "b/lease-2022.md"),
        ("lease-2021.md", "rules-2022.md"),
        ("terms v1.md", "terms 2022.md"),
        ("terms.md", "terms v2.md"),
        ("howto/upgrading-v5.md", "howto/upgrading-v6.md"),
        ("Release notes v1.2.md", "Release notes v1.3.md"),
        ("升级到第二版.md", "升级到第三版.md"),
    ],
)
def test_names_that_tell_no_order(first, second):
    """Documents that stand beside the earlier ones, of two folders, of other names."""
    assert of_names(first, second) == []


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("# Lease\n\n**Effective date:** 1 March 2024\n", "2024-03-01"),
        ("Date: 2021-04-01\nEffective: 2021-05-01", "2021-05-01"),
        ("This policy comes into force on March 1, 2024.", "2024-03-01"),
        ("发布日期：2024年2月1日\n本制度自2024年3月1日起施行。", "2024-03-01"),
        ("签订日期：2021年4月1日", "2021-04-01"),
        ("# Travel\n\nVersion 2, valid from 1 March 2024\n", "2024-03-01"),
        ("Rev. 3 (effective 2024-05-01)", "2024-05-01"),
        ("With effect from 1 January 2025 the fee rises.", "2025-01-01"),
        ("对于全体员工，本办法从2023年5月1日起正式生效。", "2023-05-01"),
        ("第三版，本办法2023年5月1日起执行", "2023-05-01"),
        ("The voucher is valid from 1 May 2024.", None),
        ("Last updated: 2024-05-31", "2024-05-31"),
        ("Date: 31 June 2024", "2024-01-01"),
        ("It amends the lease dated 1 April 2021.", None),
        ("It amends the lease of 1 May 2021. Effective date: 1 March 2024", None),
        ("Effective immediately, the rule of 2023 ends.", None),
        ("An up-to-date: text of 2023", None),
        ("x" * 3_000 + "\nDate: 2021-04-01", None),
    ],
)
def test_days_of_texts(text, day):
    """Labelled ones at the beginning, those of coming into force first."""
    docs = Document()
    docs.add_texts({"tea": f"{text}\n\nGreen tea."})
    assert bool(docs.search("green tea", as_of="1900-01-01")) == (day is None)
    if day is not None:
        before = dt.date.fromisoformat(day) - dt.timedelta(days=1)
        assert len(docs.search("green tea", as_of=day)) == 1
        assert docs.search("green tea", as_of=before) == []


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("Version 2, dated 5 May 2023. The lease.", "2023-05-05"),
        ("This Agreement is made and entered into as of May 5, 2023 by both.", "2023-05-05"),
        ("Lease of the house\n\nSigned on 5 May 2023", "2023-05-05"),
        ("It amends the lease dated 5 May 2023.", ""),
    ],
)
def test_days_of_contracts(text, day):
    """What a text says of its own day, not of another document's."""
    docs = Document()
    docs.add_texts({"lease": text})
    is_there = bool(docs.search("lease", as_of="2023-05-04"))
    assert is_there is (day == "")


@pytest.mark.parametrize(
    ("metadata", "day"),
    [
        ({"date": "2024-03-01"}, "2024-03-01"),
        ({"date": "2021-01-01", "effective_date": "1 March 2024"}, "2024-03-01"),
        ({"valid_from": 2024}, "2024-01-01"),
        ({"date": "Fri, 1 Mar 2024 10:00:00 +0100"}, "2024-03-01"),
        ({"effective_date": "soon", "date": "2024-03-01"}, "2024-03-01"),
        ({"date": "2024-02-31"}, "2024-01-01"),
        ({"date": None}, "2021-01-01"),
        ({"date": ["never"]}, "2021-01-01"),
    ],
)
def test_days_of_metadata(metadata, day):
    """They take precedence over the name; what is no date counts for nothing."""
    docs = Document()
    docs.add_texts({"tea 2021": "Green tea."}, {"tea 2021": metadata})
    before = dt.date.fromisoformat(day) - dt.timedelta(days=1)
    assert len(docs.search("green tea", as_of=day)) == 1
    assert docs.search("green tea", as_of=before) == []
