"""The dictionary of field values follows every change, shows what may be seen, and decides which
documents a search prefers.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document, HybridRetriever, Retriever, migrate
from lazyrag.errors import AnswerWarning, ConfigError
from lazyrag.ledger.field_keys import FieldKeys
from lazyrag.models import HttpChatModel
from lazyrag.retrieval import AsOfRetriever, FieldRetriever
from lazyrag.retrieval.hybrid import default_retriever
from lazyrag.retrieval.inferring import inferred_values
from lazyrag.stores.sqlite import StoreFile
from tests.earlier_formats import drop_field_keys
from tests.model_server import Model, answered, failed
from tests.shelf import Letters

SALES = "The sales of the shops grew."
TEXTS = {
    "Acme 2018.txt": f"{SALES} Tea.",
    "Acme 2019.txt": f"{SALES} Coffee.",
    "Bond House 2018.txt": f"{SALES} Sales, sales, sales!",
    "Bond House 2019.txt": f"{SALES} Milk.",
    "note.txt": f"{SALES} Sales and sales.",
}
QUESTION = "How did the sales of Acme do in FY19?"
LABELS = {"labels": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}


def shelf(texts=TEXTS, **options):
    """A Document of some texts."""
    docs = Document(**options)
    docs.add_texts(texts)
    return docs


def paths(nodes):
    """The documents of some nodes."""
    return [node.path for node in nodes]


def test_whether_filters_are_inferred_is_true_or_false():
    """A text such as "no" would switch it on."""
    with pytest.raises(ConfigError, match="infer_filters"):
        shelf().search(QUESTION, infer_filters="no")


def test_the_documents_that_a_question_names_come_first():
    """The named document is first, none is lost, and other scores stay."""
    docs = shelf()
    plain = docs.search(QUESTION, infer_filters=False)
    found = docs.search(QUESTION)
    assert plain[0].path == "Bond House 2018.txt"
    assert found[0].path == "Acme 2019.txt"
    assert sorted(paths(found)) == sorted(paths(plain))
    score_of = {node.path: node.score for node in plain}
    others = [node for node in found if not node.path.startswith("Acme")]
    assert all(node.score == score_of[node.path] for node in others)


@pytest.mark.parametrize("embed", [None, Letters()])
def test_explain_shows_what_was_inferred_and_its_share(embed):
    """By keywords and in a hybrid, shares add up to the fused score."""
    docs = shelf(embed=embed)
    retriever = Retriever(docs, "MediumChunk", "bm25", topk=3)
    if embed is not None:
        retriever = HybridRetriever(Retriever(docs, "MediumChunk"), retriever, topk=3)
    explanation = FieldRetriever(retriever).explain(QUESTION)
    assert "inferred=name: Acme, year: 2019" in str(explanation)
    best = explanation[0]
    assert best.path == "Acme 2019.txt"
    assert sum(best.contributions.values()) == pytest.approx(best.fused)
    assert paths(FieldRetriever(retriever)(QUESTION)) == [hit.path for hit in explanation]


def test_what_was_inferred_is_known_as_of_a_day():
    """Around a retriever that infers."""
    retriever = AsOfRetriever(default_retriever(shelf(), "MediumChunk"), "2020-01-01")
    assert inferred_values(retriever, QUESTION) == {"name": ["Acme"], "year": ["2019"]}
    assert retriever(QUESTION)[0].path == "Acme 2019.txt"


def test_why_not_has_the_true_rank_behind_preferred_documents():
    """A node behind preferred ones has a reason, the first one rank 1."""
    docs = shelf()
    retriever = FieldRetriever(Retriever(docs, "MediumChunk", "bm25", topk=2))
    [note] = docs.get_nodes("MediumChunk", filters={"file_name": ["note.txt"]})
    reason = retriever.why_not(note.uid, QUESTION)
    assert reason.cause != "found"
    assert retriever.why_not(retriever(QUESTION)[0].uid, QUESTION).rank == 1


def test_filters_of_the_caller_hold():
    """A filter excludes documents that the question names."""
    docs = shelf()
    assert paths(docs.search(QUESTION, filters={"file_name": ["note.txt"]})) == ["note.txt"]


def test_titles_and_their_words_are_listed():
    """What questions are compared with: whole titles, and the words of names and titles."""
    docs = shelf()
    docs.update_metadata({"note.txt": {"title": "Cole Tea v2"}, "Acme 2018.txt": {"title": "Cole"}})
    assert docs.field_values("title") == {"Cole": 1, "Cole Tea v2": 1}
    names = {"Acme": 2, "Bond": 2, "Cole": 2, "House": 2, "note": 1, "Tea": 1, "v2": 1}
    assert docs.field_values("name") == names
    assert inferred_values(default_retriever(docs, "MediumChunk"), "Sales of Cole in FY18") == {
        "title": ["Cole"],
        "year": ["2018"],
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ([], {"name": ["Acme"], "year": ["2019"]}),
        (["-year: 2019"], {"name": ["Acme"]}),
        (["-year"], {"name": ["Acme"]}),
        (["-name: Acme"], {"year": ["2019"]}),
        (["year: 2019"], {"year": ["2019"]}),
        (["name"], {"name": ["Acme"]}),
        (["-name", "-year"], {}),
        (["-name: Bond"], {"name": ["Acme"], "year": ["2019"]}),
    ],
)
def test_single_values_are_removed_or_kept(choice, expected):
    """Others are inferred as before, and the search prefers what is left."""
    docs = shelf()
    retriever = default_retriever(docs, "MediumChunk", infer_filters=choice)
    assert inferred_values(retriever, QUESTION) == expected
    found = docs.search(QUESTION, infer_filters=choice)
    assert [(node.path, node.score) for node in found] == [
        (node.path, node.score) for node in retriever(QUESTION)
    ]
    if not expected:
        assert paths(found) == paths(docs.search(QUESTION, infer_filters=False))


def test_a_quarter_is_removed_without_its_year():
    """And a day without it."""
    docs = shelf({f"{name} 2018Q{n}.txt": SALES for name in ("Acme", "Bond") for n in (2, 3)})
    for question, removed, expected in (
        ("Acme in Q3 2018", "-quarter", {"name": ["Acme"], "year": ["2018"]}),
        ("Acme in Q3 2018", "-year", {"name": ["Acme"], "quarter": ["Q3"]}),
        ("Acme on May 3, 2018", "-date", {"name": ["Acme"], "year": ["2018"]}),
    ):
        retriever = default_retriever(docs, "MediumChunk", infer_filters=[removed])
        assert inferred_values(retriever, question) == expected


def test_changes_are_seen_at_once():
    """Additions and deletions change the values and what is preferred."""
    docs = Document()
    assert docs.field_values("year") == {}
    docs.add_texts(TEXTS)
    assert docs.field_values("year") == {2018: 2, 2019: 2}
    docs.add_texts({"Acme 2020.txt": SALES})
    assert docs.field_values("year") == {2018: 2, 2019: 2, 2020: 1}
    assert docs.search("Sales of Acme in 2020")[0].path == "Acme 2020.txt"
    docs.delete_files(["Acme 2019.txt", "Acme 2020.txt"])
    assert docs.field_values("year") == {2018: 2, 2019: 1}
    assert docs.field_values("name") == {"Bond": 2, "House": 2, "Acme": 1, "note": 1}
    assert docs.search("Sales of Acme in 2018")[0].path == "Acme 2018.txt"


def test_changed_metadata_and_versions_are_seen_at_once():
    """So do new metadata, new versions and rollbacks."""
    docs = Document(doc_fields={"company": DocField(DataType.VARCHAR)}, keep_versions=2)
    docs.add_texts({str(n): f"{SALES} {n}" for n in range(4)}, {"0": {"company": "Acme"}})
    docs.update_metadata({"1": {"company": "Bond"}})
    assert docs.field_values("company") == {"Acme": 1, "Bond": 1}
    assert docs.search("Did sales at Bond grow?")[0].path == "1"
    docs.update_metadata({"1": {"company": "Cole"}})
    assert docs.field_values("company") == {"Acme": 1, "Cole": 1}
    docs.add_texts({"0": "Something else."}, {"0": {"company": "Dorn"}})
    assert docs.field_values("company") == {"Cole": 1, "Dorn": 1}
    docs.versions.rollback("0", 1)
    assert docs.field_values("company") == {"Acme": 1, "Cole": 1}


def test_another_program_sees_them(tmp_path):
    """A reader of the store, and the next program, see the same values."""
    store = str(tmp_path / "store.db")
    with shelf(store_conf=store) as docs, Document(store_conf=store, read_only=True) as reader:
        docs.search(QUESTION)
        assert reader.field_values("year") == {2018: 2, 2019: 2}
        docs.delete_files(["Acme 2019.txt"])
        assert reader.field_values("year") == {2018: 2, 2019: 1}
        assert reader.search("Sales of Acme in 2018")[0].path == "Acme 2018.txt"
    with Document(store_conf=store) as docs:
        assert docs.field_values("name") == {"Bond": 2, "House": 2, "Acme": 1, "note": 1}


def test_an_unknown_field_is_refused():
    """A misspelt field is an error that suggests the right one."""
    with pytest.raises(ConfigError, match="Did you mean 'year'"):
        shelf().field_values("yaer")


def test_a_store_without_keys_gets_them_when_it_is_written(tmp_path):
    """Until then a program that reads has the values, and infers nothing."""
    store = str(tmp_path / "store.db")
    with shelf(store_conf=store) as docs:
        docs.search(QUESTION)
    drop_field_keys(store)
    with Document(store_conf=store, read_only=True) as reader:
        plain = reader.search(QUESTION, infer_filters=False)
        assert paths(reader.search(QUESTION)) == paths(plain)
        assert reader.field_values("year") == {2018: 2, 2019: 2}
        with Document(store_conf=store) as docs:
            assert docs.search(QUESTION)[0].path == "Acme 2019.txt"
            assert not docs.maintenance.verify()
        assert reader.search(QUESTION)[0].path == "Acme 2019.txt"


def test_another_schema_makes_other_keys(tmp_path):
    """A field that is declared later names documents at the first search."""
    store = str(tmp_path / "store.db")
    metadata = {"note.txt": {"company": "Dorn"}}
    with Document(store_conf=store) as docs:
        docs.add_texts(TEXTS, metadata)
        assert docs.search("Did sales at Dorn grow?")[0].path != "note.txt"
    fields = {"company": DocField(DataType.VARCHAR)}
    with Document(store_conf=store, doc_fields=fields) as docs:
        docs.search("Did sales at Dorn grow?")
        assert docs.search("Did sales at Dorn grow?")[0].path == "note.txt"
        assert docs.field_values("company") == {"Dorn": 1}


def test_lost_keys_are_found_and_made_again(tmp_path):
    """`verify` sees that some are missing or left over, `repair` makes them."""
    store = str(tmp_path / "store.db")
    with shelf(store_conf=store) as docs:
        docs.search(QUESTION)
        for change in (
            "DELETE FROM field_key WHERE key = 'acme'",
            "INSERT INTO field_key SELECT ledger, 'dorn', document FROM field_key LIMIT 1",
        ):
            with closing(sqlite3.connect(store)) as connection, connection:
                connection.execute(change)
            [problem] = docs.maintenance.verify()
            assert "field values" in str(problem)
            assert not docs.maintenance.repair()
            assert docs.search(QUESTION)[0].path == "Acme 2019.txt"


def test_long_values_and_names_are_kept_whole():
    """Their keys are digests: a server's index has no room for long texts."""
    summary = "Tea " * 500
    docs = Document(doc_fields={"summary": DocField(DataType.VARCHAR)})
    docs.add_texts(TEXTS, {"note.txt": {"summary": summary}, "Acme 2018.txt": {"summary": summary}})
    assert docs.field_values("summary") == {summary: 2}
    docs.add_texts({f"{'Acme' * 100} 2018.txt": SALES})
    assert docs.field_values("file_name")[f"{'Acme' * 100} 2018.txt"] == 1


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=len(TEXTS), max_size=len(TEXTS)),
    st.sampled_from([QUESTION, "Bnd House 2018 sales", "sales in 2019", "What does ACM sell?"]),
    st.sampled_from([True, ["-year"], ["-name: Acme"], ["year: 2018"]]),
)
def test_a_restricted_document_has_the_values_of_its_documents_alone(labels, question, choice):
    """Values, what is inferred, hits and scores equal those of a Document of the visible ones."""
    label_of = dict(zip(TEXTS, labels, strict=True))
    docs = Document(doc_fields=LABELS)
    docs.add_texts(
        TEXTS,
        {name: {"labels": [label], "title": f"Of {label}"} for name, label in label_of.items()},
    )
    alone = Document(doc_fields=LABELS)
    seen = {name: text for name, text in TEXTS.items() if label_of[name] == "a"}
    alone.add_texts(seen, {name: {"labels": ["a"], "title": "Of a"} for name in seen})
    view = docs.restricted({"labels": ["a"]})
    for name in ("year", "name", "title", "file_name", "labels"):
        assert view.field_values(name) == alone.field_values(name)
    for restricted in (view, docs.restricted({"file_name": sorted(seen)})):
        inferring = default_retriever(restricted, "MediumChunk", infer_filters=choice)
        expected = default_retriever(alone, "MediumChunk", infer_filters=choice)
        assert inferred_values(inferring, question) == inferred_values(expected, question)
        found = [(node.path, node.score) for node in inferring(question)]
        assert found == [(node.path, node.score) for node in expected(question)]


def test_a_change_outside_of_a_restricted_document_changes_nothing_in_it():
    """A hidden document shows neither in values nor in hits until it becomes visible."""
    docs = Document(doc_fields=LABELS)
    docs.add_texts(TEXTS, {name: {"labels": ["a"]} for name in TEXTS})
    view = docs.restricted({"labels": ["a"]})
    before = [(node.path, node.score) for node in view.search(QUESTION)]
    docs.add_texts({"Acme 2020.txt": SALES}, {"Acme 2020.txt": {"labels": ["b"]}})
    assert view.field_values("year") == {2018: 2, 2019: 2}
    assert [(node.path, node.score) for node in view.search(QUESTION)] == before
    docs.update_metadata({"Acme 2020.txt": {"labels": ["a"]}})
    assert view.field_values("year") == {2018: 2, 2019: 2, 2020: 1}


@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_values_that_do_not_fit_their_field_are_left_out(tmp_path):
    """A field that is declared later may have other values in documents; the store stays usable."""
    store = str(tmp_path / "store.db")
    with Document(store_conf=store) as docs:
        docs.add_texts(TEXTS, {"note.txt": {"authors": [{"name": "X"}]}})
    with Document(store_conf=store, doc_fields={"authors": DocField(DataType.VARCHAR)}) as docs:
        assert docs.search(QUESTION)[0].path == "Acme 2019.txt"
        assert docs.field_values("authors") == {}
        assert [problem.document for problem in docs.maintenance.verify()] == ["note.txt"]


def test_a_migrated_store_infers_at_once(tmp_path):
    """Also where a program only reads it, and the target was made before there were such keys."""
    source, target = str(tmp_path / "source.db"), str(tmp_path / "target.db")
    with shelf(store_conf=source) as docs:
        expected = paths(docs.search(QUESTION))
    with closing(StoreFile(target)) as file, file.writing():
        pass
    drop_field_keys(target)
    migrate(source, target)
    with Document(store_conf=target, read_only=True) as docs:
        assert paths(docs.search(QUESTION)) == expected


def test_names_that_are_no_unicode_are_listed():
    """Linux allows names of files that are no UTF-8."""
    docs = shelf({"Acme \udcff 2018": SALES, "Bond 2019": SALES})
    assert docs.field_values("file_name") == {"Acme \udcff 2018": 1, "Bond 2019": 1}


def test_a_value_that_changes_while_it_is_read_is_left_out(monkeypatch):
    """The keys are looked up before their documents."""
    long_name = "Corporation " * 60
    fields = {"company": DocField(DataType.VARCHAR)}
    docs = Document(doc_fields=fields)
    docs.add_texts({"a": SALES, "b": SALES}, {"a": {"company": long_name}, "b": {"company": "B"}})
    lookup = FieldKeys.values

    def change(keys, field):
        pairs = lookup(keys, field)
        monkeypatch.undo()
        docs.update_metadata({"a": {"company": "A"}})
        return pairs

    monkeypatch.setattr(FieldKeys, "values", change)
    assert docs.field_values("company") == {"B": 1}
    assert docs.field_values("company") == {"A": 1, "B": 1}


NAMES = {f"{name} {year}.txt": SALES for name in ("Acme", "Pear", "Bond") for year in (2018, 2019)}


def choosing(model, *names):
    """A chat model on a server that chooses values, and one that is not in the list."""
    message = {"content": json.dumps([*names, "name: House"])}
    model.faults = [answered({"choices": [{"message": message}]})] * 20
    return HttpChatModel(model.url, "m")


@pytest.mark.parametrize(
    ("question", "chosen", "expected"),
    [
        ("sales of pear", ["name: Pear"], {"name": ["Pear"]}),
        ("Did Pear help sales of acme?", ["name: Acme"], {"name": ["Acme"]}),
        ("Sales of Acme in 2019", ["year: 2019"], {"year": ["2019"]}),
        ("Sales of Acme in 2019", [], {}),
    ],
)
def test_a_chat_model_chooses_of_the_values_that_exist(httpserver, question, chosen, expected):
    """Names in small letters too; explain says so, and one question is asked once."""
    docs = shelf(NAMES)
    model = Model(httpserver)
    chat = choosing(model, *chosen)
    retriever = FieldRetriever(Retriever(docs, "MediumChunk", "bm25"), model=chat)
    explanation = str(retriever.explain(question))
    assert ("(chosen by the chat model)" in explanation) == bool(expected)
    assert inferred_values(retriever, question) == expected
    assert paths(retriever(question)) == [hit.path for hit in retriever.explain(question)]
    assert len(model.requests) == 1


def test_a_chat_model_sees_no_value_of_hidden_documents(httpserver):
    """Nor a value that the caller removes."""
    docs = shelf(NAMES)
    view = docs.restricted({"file_name": [name for name in NAMES if not name.startswith("Pear")]})
    model = Model(httpserver)
    retriever = Retriever(view, "MediumChunk", "bm25")
    choosing_retriever = FieldRetriever(retriever, ["-year"], model=choosing(model, "name: Acme"))
    assert choosing_retriever("Sales of Acme, Pear and Bond in 2019")[0].path.startswith("Acme")
    [body] = model.bodies
    listed = body["messages"][-1]["content"].split("\n")[3]
    assert sorted(json.loads(listed)) == ["name: Acme", "name: Bond"]


@pytest.mark.parametrize(
    "fault", [failed(400), answered({"choices": [{"message": {"content": "?"}}]})]
)
def test_rules_infer_where_a_chat_model_fails(httpserver, fault):
    """With a warning, once a call."""
    docs = shelf(NAMES)
    model = Model(httpserver)
    retriever = Retriever(docs, "MediumChunk", "bm25")
    model.faults = [fault]
    with pytest.warns(AnswerWarning, match="rules alone") as warnings:
        nodes = FieldRetriever(retriever, model=HttpChatModel(model.url, "m"))(QUESTION)
    assert [(node.path, node.score) for node in nodes] == [
        (node.path, node.score) for node in FieldRetriever(retriever)(QUESTION)
    ]
    assert len(warnings) == 1
