"""Search as of a day, and recency as a share of scores."""

from __future__ import annotations

import asyncio
import datetime as dt
import math

import pytest

from lazyrag import (
    DataType,
    DocField,
    DocNode,
    Document,
    Hit,
    HybridRetriever,
    RAGContext,
    RetrievalChain,
    RetrievalResult,
    Retriever,
)
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.generation.extractive import quote_answer
from lazyrag.read import superseded
from lazyrag.retrieval import AsOfRetriever, Recency
from tests.shelf import Letters

RENT = "The monthly rent of the house is 900 euros."
TEXTS = {
    "lease_2021.md": RENT,
    "amendment.md": "Effective date: 1 March 2024\n\nThe monthly rent is 950 euros.",
    "fees-v1.md": "The fee of the house is 10 euros, as is the rent of a room.",
    "fees-v2.md": "Date: 2023-05-01\nThe fee is 12 euros, more than the rent.",
    "note.md": "The rent of the house, monthly.",
}
CYCLE = {"a.md": {"supersedes": "b.md"}, "b.md": {"supersedes": "a.md"}}
METADATA = {"amendment.md": {"supersedes": "lease_2021.md"}}
QUESTION = "What is the monthly rent of the house?"


def shelf(texts=TEXTS, metadata=METADATA, **options):
    """A Document of some texts."""
    docs = Document(**options)
    docs.add_texts(texts, metadata)
    return docs


def marked_by(path):
    """Metadata of a hit whose document another one replaces."""
    return {"superseded_by": path, "superseded_reason": "declared"}


def paths(nodes):
    """The documents of some nodes."""
    return [node.path for node in nodes]


@pytest.mark.parametrize("embed", [None, Letters()])
def test_a_plain_search_marks_older_documents(embed):
    """With the newest one and the reason, in every form of a hit; order and scores stay."""
    docs = shelf(embed=embed)
    docs.add_texts({"fees-v3.md": "The fee is 14 euros, more than the rent."})
    hits = docs.search(QUESTION, topk=10)
    marks = {hit.path: dict(hit.metadata) for hit in hits if hit.metadata}
    newest = {
        "superseded_by": "fees-v3.md",
        "superseded_reason": "version 3 after version 2",
        "superseded_code": "version",
        "superseded_values": {"newer": "3", "older": "2"},
    }
    amended = {
        "superseded_by": "amendment.md",
        "superseded_reason": "declared",
        "superseded_code": "declared",
        "superseded_values": {},
    }
    assert marks == {"fees-v1.md": newest, "fees-v2.md": newest, "lease_2021.md": amended}
    assert "lease_2021.md, line 1, superseded by amendment.md (declared)" in str(hits)
    plain = docs.search(QUESTION, topk=10, infer_filters=False, parts="off")
    assert [(hit.path, hit.score, dict(hit.metadata)) for hit in hits] == [
        (hit.path, hit.score, dict(hit.metadata)) for hit in plain
    ]
    records = docs.search(QUESTION, topk=10, output_format="dict")
    assert [record["metadata"].get("superseded_by") for record in records] == [
        hit.metadata.get("superseded_by") for hit in hits
    ]
    rules = {f"rules-v{n}.md": f"Quiet hours begin at 2{3 - n}:00." for n in (1, 2)}
    answer = shelf(rules, None).ask("When do quiet hours begin?")
    assert answer.text.index("21:00") < answer.text.index("22:00")


@pytest.mark.parametrize("embed", [None, Letters()])
def test_later_documents_are_left_out(embed):
    """By names, texts and metadata; undated ones stay."""
    docs = shelf(embed=embed)
    assert set(paths(docs.search(QUESTION))) == set(TEXTS)
    early = set(paths(docs.search(QUESTION, as_of="2020-12-31")))
    assert early == {"note.md", "fees-v1.md"}
    assert "lease_2021.md" in paths(docs.search(QUESTION, as_of=dt.date(2021, 1, 1)))
    assert "amendment.md" not in paths(docs.search(QUESTION, as_of="2024-02-29"))
    docs.update_metadata({"note.md": {"date": "2025-01-01"}})
    assert "note.md" not in paths(docs.search(QUESTION, as_of="2024-12-31"))


def test_answers_are_those_of_the_day():
    """`ask` and `aask` read what was in force; the newer rent is quoted before the older one, which
    is named as such.
    """
    docs = shelf()
    then = docs.ask(QUESTION, as_of="2023-12-31")
    assert "900" in then.text
    assert "950" not in then.text
    assert "superseded" not in then.context.context.split("fees-v1")[0]
    now = docs.ask(QUESTION, as_of="2026-01-01")
    assert now.text.index("950") < now.text.index("900")
    assert "lease_2021.md, line 1, superseded by amendment.md (declared)" in now.context.context
    assert asyncio.run(docs.aask(QUESTION, as_of="2026-01-01")).text == now.text
    with pytest.raises(ConfigError, match="as_of must be a day"):
        docs.ask(QUESTION, as_of="2024")


def test_an_older_edition_that_the_question_names_stays_first():
    """A filing of a year is not replaced where the question is about that year."""
    texts = {
        "Acme_2018.txt": "The revenue of Acme was 40 million.",
        "Acme_2019.txt": "The revenue of Acme was 50 million.",
    }
    docs = shelf(texts, None)
    [first, *_] = docs.search("What was the revenue of Acme in 2018?", as_of="2024-01-01")
    assert first.path == "Acme_2018.txt"
    answer = docs.ask("What was the revenue of Acme in 2018?", as_of="2024-01-01")
    assert answer.text.startswith("“The revenue of Acme was 40 million.”")
    [newest, *_] = docs.search("What is the revenue of Acme?", as_of="2024-01-01")
    assert newest.path == "Acme_2019.txt"


@pytest.mark.parametrize("as_of", ["2026-01-01", None])
def test_what_only_the_older_document_says_is_quoted_with_a_mark(as_of):
    """A newer version that says nothing of it is not quoted, but named."""
    docs = shelf()
    docs.add_texts({"house-v1.md": "Pets are allowed.", "house-v2.md": "Parking costs 2 euros."})
    answer = docs.ask("Are pets allowed?", as_of=as_of)
    assert answer.text == "There is a newer version:\n\n“Pets are allowed.” [1]"
    mark = "superseded by house-v2.md (version 2 after version 1)"
    assert f"[1] house-v1.md, line 1, {mark}: “Pets are allowed.”" in str(answer)
    assert all(statement.verdict != "not_found" for statement in answer.statements)


def test_the_newer_version_is_quoted_first_from_any_of_its_passages():
    """Its best passage counts, though another one of it was found before."""
    hits = [
        Hit("a", "Trains are booked in second class.", 1.0, "fees-v2.md"),
        Hit("b", "The fee is 90 euros.", 0.9, "fees-v1.md", metadata=marked_by("fees-v2.md")),
        Hit("c", "The fee is 120 euros.", 0.8, "fees-v2.md"),
    ]
    context = RAGContext("How much is the fee?", "", RetrievalResult.from_hits(hits), 0)
    expected = "“The fee is 120 euros.” [3]\n\n“The fee is 90 euros.” [2]"
    assert quote_answer(context).response == expected


def test_each_older_document_is_marked():
    """Those of two subjects, though neither newer version was found."""
    hits = [
        Hit("a", "Pets are allowed.", 1.0, "pets-v1.md", metadata=marked_by("pets-v2.md")),
        Hit("b", "Parking is free.", 0.9, "cars-v1.md", metadata=marked_by("cars-v2.md")),
    ]
    question = "Are pets allowed? Is parking free?"
    context = RAGContext(question, "", RetrievalResult.from_hits(hits), 0)
    assert quote_answer(context).response.count("There is a newer version:") == len(hits)


def test_a_newer_version_in_other_words_is_cited_before_the_older_one():
    """By its number, so that its place is among the citations; not if the question names a year."""
    rent = "The monthly rent is 900 euros."
    other_words = "The sum due each month for the flat is now 950 euros, monthly."
    docs = shelf({"lease-2021.md": rent, "lease-2024.md": other_words}, None)
    answer = docs.ask("How much is the monthly rent?")
    assert answer.text == f"There is a newer version [2]:\n\n“{rent}” [1]"
    assert [citation.label for citation in answer.citations] == [
        "lease-2024.md, line 1",
        "lease-2021.md, line 1, superseded by lease-2024.md (2024 after 2021)",
    ]
    assert docs.ask("How much was the monthly rent in 2021?").text == f"“{rent}” [1]"
    zh = shelf({"合同-2021.md": "月租金为900元。", "合同-2024.md": "租户应支付950元。"}, None)
    assert zh.ask("月租金是多少？").text == "已有新版本 [2]：\n\n“月租金为900元。” [1]"


def test_neighbours_of_an_older_version_are_marked_as_well():
    """The passages around the best ones, which quotations are chosen from."""
    filler = " ".join(f"Clause {number} is about the garden." for number in range(80))
    lease = f"{filler}\n\nThe monthly rent is 900 euros.\n\n{filler}"
    docs = shelf({"lease-2021.md": lease, "lease-2024.md": "The garden is shared."}, None)
    sources = docs.ask("How much is the monthly rent?", topk=1).context.sources
    older = [hit for hit in sources if hit.source == "lease-2021.md"]
    assert len(older) > 1
    assert {hit.metadata.get("superseded_by") for hit in older} == {"lease-2024.md"}


@pytest.mark.parametrize("embed", [None, Letters()])
def test_the_edition_in_force_comes_directly_before_the_older_one(embed):
    """Side by side, and the older one is not lost."""
    docs = shelf(embed=embed)
    hits = docs.search(QUESTION, as_of="2024-03-01")
    names = paths(hits)
    at = names.index("lease_2021.md")
    assert names[at - 1] == "amendment.md"
    assert hits[at - 1].score == hits[at].score
    assert set(names) == set(TEXTS)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert names.index("fees-v2.md") < names.index("fees-v1.md")
    before = paths(docs.search(QUESTION, as_of="2023-04-30"))
    assert set(before) == {"lease_2021.md", "fees-v1.md", "note.md"}


def test_without_as_of_and_without_dates_nothing_changes():
    """The same nodes with the same scores."""
    texts = {name: text for name, text in TEXTS.items() if name in ("note.md", "fees-v1.md")}
    docs = shelf(texts, None)
    plain = docs.search(QUESTION)
    dated = docs.search(QUESTION, as_of="2000-01-01")
    assert [(hit.path, hit.score) for hit in plain] == [(hit.path, hit.score) for hit in dated]


def test_a_result_is_full_however_many_documents_are_later():
    """The retriever is asked for more, until enough are not dated after the day."""
    texts = {f"rent-of-{number}-2024.md": f"{RENT} {RENT}" for number in range(300)}
    texts |= {f"house {number}.md": f"{RENT} It has {number} rooms." for number in range(10)}
    docs = shelf(texts, None)
    hits = docs.search(QUESTION, topk=8, as_of="2023-12-31")
    assert len(hits) == 8
    assert all(hit.path.startswith("house") for hit in hits)


def test_cyclic_declarations_end():
    """Two documents that replace each other."""
    docs = shelf({"a.md": RENT, "b.md": f"{RENT} Or so."}, CYCLE)
    assert set(paths(docs.search(QUESTION, as_of="2024-01-01"))) == {"a.md", "b.md"}


@pytest.mark.parametrize("metadata", [CYCLE, {"a.md": {"supersedes": "a.md"}}])
def test_no_document_is_marked_as_superseded_by_itself(metadata):
    """Neither by its own metadata nor by those of one that it replaces, too."""
    hits = shelf({"a.md": RENT, "b.md": f"{RENT} Or so."}, metadata).search(QUESTION)
    assert [dict(hit.metadata) for hit in hits] == [{}, {}]


def test_explain_shows_the_day_and_what_supersedes_a_hit():
    """As a stage, as a line of the hit, and in JSON where there is such a document."""
    docs = shelf()
    retriever = AsOfRetriever(Retriever(docs, "MediumChunk", "bm25"), "2023-12-31")
    explanation = retriever.explain(QUESTION)
    assert "as_of=2023-12-31" in str(explanation)
    assert paths(retriever(QUESTION)) == [hit.path for hit in explanation]
    assert [node.path for node in explanation.dropped if node.name == "as_of"] == ["amendment.md"]
    [lease] = [hit for hit in explanation if hit.path == "lease_2021.md"]
    assert lease.superseded_by == "amendment.md"
    assert str(lease).endswith("; superseded by amendment.md (declared)")
    assert "\n    superseded by amendment.md (declared)" in str(explanation)
    records = {record["path"]: record for record in explanation.to_dict()["hits"]}
    assert records["lease_2021.md"]["superseded_by"] == "amendment.md"
    assert records["lease_2021.md"]["superseded_reason"] == "declared"
    assert "superseded_by" not in records["note.md"]
    plain = Retriever(docs, "MediumChunk", "bm25").explain(QUESTION)
    assert "superseded by fees-v2.md (version 2 after version 1)" in str(plain)


def test_why_not_names_the_day():
    """The reason of a node that is dated after it."""
    docs = shelf()
    retriever = AsOfRetriever(Retriever(docs, "MediumChunk", "bm25"), "2023-12-31")
    [node] = docs.get_nodes("MediumChunk", filters={"file_name": "amendment.md"})
    assert "as_of='2023-12-31' dropped it" in retriever.why_not(node.uid, QUESTION).message


def test_a_restricted_document_depends_on_visible_documents_only():
    """A hidden newer edition moves nothing and is not named; a hidden text has no date."""
    metadata = {path: {"team": "a"} for path in TEXTS}
    metadata["amendment.md"] = {"team": "b", "supersedes": "lease_2021.md"}
    field = {"team": DocField(DataType.VARCHAR)}
    view = shelf(TEXTS, metadata, doc_fields=field).restricted({"team": "a"})
    others = {path: text for path, text in TEXTS.items() if path != "amendment.md"}
    alone = shelf(others, {path: {"team": "a"} for path in others}, doc_fields=field)
    for day in ("2020-12-31", "2024-12-31"):
        hits = view.search(QUESTION, as_of=day)
        expected = alone.search(QUESTION, as_of=day)
        assert [(hit.path, hit.score) for hit in hits] == [
            (hit.path, hit.score) for hit in expected
        ]
    by_name = shelf().restricted({"file_name": ["lease_2021.md", "note.md"]})
    assert set(paths(by_name.search(QUESTION, as_of="2025-01-01"))) == {"lease_2021.md", "note.md"}
    assert paths(by_name.search(QUESTION, as_of="2020-01-01")) == ["note.md"]
    text = str(AsOfRetriever(Retriever(view, "MediumChunk", "bm25"), "2025-01-01").explain(RENT))
    assert "amendment" not in text
    assert superseded(view) == superseded(alone)


def test_several_documents_are_each_read_by_their_names():
    """Names of two Documents are two things."""
    docs = [shelf({"fee v1.md": RENT}, None), shelf({"fee v2.md": f"{RENT} Now."}, None)]
    retriever = AsOfRetriever(Retriever(docs, "MediumChunk", "bm25"), "2024-01-01")
    assert paths(retriever(QUESTION)) == ["fee v1.md", "fee v2.md"]


def test_it_combines_with_other_retrievers():
    """In hybrids and chains, and around functions."""
    docs = shelf()
    early = AsOfRetriever(Retriever(docs, "MediumChunk", "bm25", topk=2), "2020-01-01")
    assert len(early(QUESTION)) == 2
    hybrid = HybridRetriever(early, early, topk=3)
    assert set(paths(hybrid(QUESTION))) == {"note.md", "fees-v1.md"}
    chain = RetrievalChain(early, Recency(), topk=1)
    assert len(chain(QUESTION)) == 1

    def find(query, filters=None, topk=None):
        return [DocNode(text=query, score=1.0)]

    assert [node.text for node in AsOfRetriever(find, "2020-01-01")("tea")] == ["tea"]


@pytest.mark.parametrize("day", ["2024-13-01", "2024-02-30", "2024", "", "yesterday", 2024, True])
def test_days_are_days(day):
    """The message says what a day is."""
    docs = shelf()
    for call in (
        lambda: docs.search(QUESTION, as_of=day),
        lambda: AsOfRetriever(Retriever(docs, "MediumChunk", "bm25"), day),
        lambda: Recency(as_of=day),
    ):
        with pytest.raises(ConfigError, match=r"as_of must be a day such as '2024-05-01'"):
            call()


def test_recency_adds_a_share_by_age():
    """The weight of the best score now, half of it after each half-life, none without a date."""
    texts = {"a-2022-01-01.md": RENT, "b-2023-01-01.md": RENT, "c.md": RENT}
    docs = shelf(texts, None)
    retriever = Retriever(docs, "MediumChunk", "bm25")
    [best, *_] = retriever(QUESTION)
    explanation = RetrievalChain(retriever, Recency(365, 0.5)).explain(QUESTION)
    assert [hit.path for hit in explanation] == ["b-2023-01-01.md", "a-2022-01-01.md", "c.md"]
    shares = [hit.contributions["date"] for hit in explanation]
    assert shares == [0.5 * best.score, 0.25 * best.score, 0.0]
    assert all(math.fsum(hit.contributions.values()) == hit.score for hit in explanation)
    assert "Recency" in str(explanation)
    assert RetrievalChain(retriever, Recency(365, 0.5))(QUESTION) == [
        hit.node for hit in explanation
    ]
    from_2024 = RetrievalChain(retriever, Recency(365, 0.5, as_of="2024-01-01")).explain(QUESTION)
    assert from_2024[0].contributions["date"] == 0.25 * best.score
    later = RetrievalChain(retriever, Recency(as_of=dt.date(2020, 1, 1))).explain(QUESTION)
    assert later[0].contributions["date"] == later[1].contributions["date"] == 0.2 * best.score


def test_recency_of_nothing_and_of_no_scores():
    """No nodes give none; a node without a score is an error."""
    assert Recency()([]) == []
    assert [node.score for node in Recency()([DocNode(text="a", score=0.5)])] == [0.5]
    with pytest.raises(RetrievalError, match="Recency needs nodes with scores"):
        Recency()([DocNode(text="a")])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"half_life": 0}, "half_life"),
        ({"half_life": "365d"}, "half_life"),
        ({"weight": -1}, "weight"),
        ({"weight": math.inf}, "weight"),
    ],
)
def test_arguments_of_recency(options, name):
    """Out of range, or no numbers."""
    with pytest.raises(ConfigError, match=f"{name} must be a number"):
        Recency(**options)
