"""Golden questions: what the file may say, where a mistake is told, and what the judge makes of
it.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.evaluation import has_answer, judge, read_golden
from lazyrag.loaders.records import LocatedValue, located_json
from lazyrag.loaders.yaml_records import located_yaml
from tests.shared import shared

TEA = "Pick the leaves in April.\n\nSteep green tea at 80 degrees for two minutes.\n\nKeep it dry."
TEXTS = {
    "tea.txt": TEA,
    "coffee.txt": "Roast coffee at 200 degrees.",
    "茶.txt": "绿茶用八十度的水冲泡，\n不要煮沸。",
}
GOLDEN = """\
documents: texts
retriever:
  method: full_text_search
  topk: 3
questions:
  - question: How hot is the water for green tea?
    texts:
      - Steep green tea at 80 degrees
    references: [80 degrees, eighty degrees]
  - question: 绿茶用多热的水？
    spans:
      - {path: 茶.txt, start: 0, end: 10}
  - question: At what heat is coffee roasted?
    spans:
      - path: coffee.txt
thresholds:
  span_recall@3: 1.0
  char_recall: 0.5
  answer@1: 1
"""


@pytest.fixture
def golden(tmp_path):
    """A function that writes the texts and a golden file, of the text above with replacements, and
    returns its path.
    """
    for name, text in TEXTS.items():
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")

    def write(*replacements: tuple[str, str], name: str = "golden.yaml") -> Path:
        text = GOLDEN
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_what_is_found_is_measured_and_passes(golden):
    """Each measure counts the questions that have what it reads; all thresholds are reached."""
    report = judge(read_golden(golden()))
    told = [(one.measure, one.value, one.questions) for one in report.verdicts]
    assert told == [("span_recall@3", 1.0, 3), ("char_recall", 1.0, 3), ("answer@1", 1.0, 1)]
    assert report.passed
    assert report.missed() == []
    assert [one.line for one in report.questions] == [6, 10, 13]
    assert report.questions[0].found[0].source == "tea.txt"


def test_a_mean_below_its_threshold_fails_and_names_the_questions(golden):
    """One answer that stands nowhere: the measure fails, the others do not, and the question is
    told.
    """
    report = judge(read_golden(golden(("[80 degrees, eighty degrees]", "[ninety degrees]"))))
    assert [one.passed for one in report.verdicts] == [True, True, False]
    assert not report.passed
    assert [one.line for one in report.missed()] == [6]
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["passed"] is False
    assert told["measures"][2] == {
        "measure": "answer@1",
        "value": 0.0,
        "threshold": 1.0,
        "questions": 1,
        "passed": False,
    }
    assert told["questions"][0]["values"]["answer@1"] == 0.0
    assert {*told["questions"][0]["found"][0]} == {"id", "source", "location", "score"}


def test_a_mean_that_misses_by_rounding_passes(golden):
    """Two of three questions reach 0.6666666667, which is more than the double nearest to two
    thirds.
    """
    path = golden(
        ("path: coffee.txt", "path: tea.txt"), ("span_recall@3: 1.0", "span_recall@1: 0.6666666667")
    )
    verdict = judge(read_golden(path)).verdicts[0]
    assert verdict.value == 2 / 3
    assert verdict.passed


def test_ids_are_measured_by_ids(golden):
    """The uid of the only chunk of a document is found, and MRR reads it."""
    docs = Document(doc_files={name: golden().parent / "texts" / name for name in TEXTS})
    [uid] = [node.uid for node in docs.get_nodes("FineChunk") if node.path == "coffee.txt"]
    path = golden(
        ("spans:\n      - path: coffee.txt", f"ids: [{uid}]"), ("answer@1: 1", "MRR@2: 1")
    )
    verdict = judge(read_golden(path)).verdicts[2]
    assert (verdict.measure, verdict.value, verdict.questions) == ("MRR@2", 1.0, 1)


def test_any_document_and_any_retriever_may_be_judged(golden):
    """The caller's retriever is asked for as many nodes as the file says, on the caller's
    Document.
    """
    asked = []
    with Document(doc_files={name: golden().parent / "texts" / name for name in TEXTS}) as docs:
        plain = Retriever(docs, "CoarseChunk", "bm25_chinese")

        def retriever(query, filters=None, topk=None):
            asked.append(topk)
            return plain(query, filters, topk)

        assert judge(read_golden(golden()), docs, retriever).passed
        assert docs.get_nodes()  # still open
        with pytest.raises(RetrievalError, match="list of nodes"):
            judge(read_golden(golden()), docs, lambda query, filters=None, topk=None: ["text"])
    assert asked == [3, 3, 3]


def test_json_says_the_same_as_yaml(golden, tmp_path):
    """The same questions in JSON are judged alike."""
    held = located_yaml(GOLDEN)

    def plain(one):
        if isinstance(one.value, dict):
            return {name: plain(value) for name, value in one.value.items()}
        return [plain(value) for value in one.value] if isinstance(one.value, list) else one.value

    yaml_report = judge(read_golden(golden()))
    path = tmp_path / "golden.json"
    path.write_text(json.dumps(plain(held), ensure_ascii=False, indent=1), encoding="utf-8")
    assert judge(read_golden(path)).verdicts == yaml_report.verdicts


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("method", ["semantic_search", "hybrid_search"])
def test_searches_by_meaning_use_the_model_of_the_file(golden, method):
    """The folder of an ONNX model is all it takes; without one, the Document has no embeddings."""
    settings = f"retriever:\n  method: {method}"
    folder = shared("models", "all-minilm-l6-v2")
    path = golden(
        ("retriever:\n  method: full_text_search", f"embedder: {folder}\n{settings}"),
        ("answer@1", "answer@3"),
    )
    is_hybrid = method == "hybrid_search"
    # one question is Chinese
    with pytest.warns(UserWarning, match="language") if is_hybrid else nullcontext():
        report = judge(read_golden(path))
    assert report.passed
    assert report.questions[0].found[0].source == "tea.txt"
    with pytest.raises(ConfigError, match="embed"):
        judge(read_golden(golden(("retriever:\n  method: full_text_search", settings))))


def test_a_store_alone_is_read_and_not_written(golden, tmp_path):
    """Without a folder the Document of a store is asked, read-only."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "tea.db")}}}
    with Document(golden().parent / "texts", store_conf=conf) as docs:
        docs.activate_group("FineChunk")
        docs.sync()
        list(Retriever(docs, "FineChunk", "bm25_chinese")("tea"))
    read = read_golden(golden(("documents: texts", f"store_conf: {json.dumps(conf)}")))
    with read.open() as docs:
        with pytest.raises(Exception, match=r"read.only"):
            docs.add_texts({"new": "text"})
        assert judge(read, docs).passed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "documents: texts",
            "document: texts",
            "line 1: The file has no entry 'document'.*Did you mean 'documents'",
        ),
        ("documents: texts", "documents: none", "line 1: documents is 'none'.*does not exist"),
        ("documents: texts", "documents: .", "line 1: documents is '.', which contains this file"),
        (
            "documents: texts\n",
            "name: tea\n",
            "line 1: The file has neither 'documents' nor 'store_conf'",
        ),
        ("topk: 3", "topk: three", "line 4: topk .*'three'"),
        ("topk: 3", "topk: 2", "line 17: span_recall@3 looks at 3 nodes, and 2 are retrieved"),
        ("topk: 3", "top_k: 3", "line 4: retriever has no entry 'top_k'.*Did you mean 'topk'"),
        ("path: coffee.txt", "start: 3", "line 15: Entry 1 of spans lacks 'path'"),
        ("start: 0, end: 10", "start: 7, end: 7", "line 12: end .*7.*"),
        ("start: 0, end: 10", "start: 7", "line 12: Entry 1 of spans has one of 'start' and 'end'"),
        (
            "references: [80 degrees, eighty degrees]",
            "reference: 80",
            "line 9: Question 1 has no entry 'reference'",
        ),
        ("[80 degrees, eighty degrees]", "80", "line 9: references must be a list; got 80"),
        ("[80 degrees, eighty degrees]", "[80]", "line 9: Entry 1 of references must be a string"),
        ("    spans:\n      - path: coffee.txt\n", "", "line 13: Question 3 has no label"),
        (
            "绿茶用多热的水？",
            "How hot is the water for green tea?",
            "line 10: .* is already in line 6",
        ),
        (
            "answer@1: 1",
            "answer@1: 90",
            "line 19: answer@1 must be a number above 0 and at most 1; got 90",
        ),
        ("answer@1: 1", "answer@0: 1", "line 19: The measure 'answer@0' needs an integer"),
        ("answer@1: 1", "reciprocal: 1", "line 19: Unknown metric 'reciprocal'"),
        ("answer@1: 1", "recall@1: 1", "line 19: recall@1 reads ids, and no question has any"),
        (
            "answer@1: 1",
            "CHAR_recall: 1",
            "line 19: CHAR_recall is named twice: char_recall is the same",
        ),
        ("answer@1: 1", "char_recall: 1", "line 19: 'char_recall' is given twice"),
        ("  answer@1: 1", "\tanswer@1: 1", "line 19: This is not YAML"),
        ("thresholds:", "thresholds: {}\nname:", "thresholds is empty"),
    ],
)
def test_a_mistake_is_told_with_its_line(golden, old, new, said):
    """The file and the line where it is wrong, what was given, what is allowed."""
    path = golden((old, new))
    with pytest.raises(ConfigError, match=said) as caught:
        read_golden(path)
    assert str(caught.value).startswith(f"{path}, line ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "path: coffee.txt",
            "path: cofee.txt",
            r"line 15: None of the 3 documents is named 'cofee\.txt'\. Did you mean",
        ),
        (
            "start: 0, end: 10",
            "start: 0, end: 100",
            "line 12: The span ends at 100, and '茶.txt' has 17 characters",
        ),
        ("spans:\n      - path: coffee.txt", "ids: [f00]", "line 13: No node has the id 'f00'"),
        (
            "Steep green tea at 80 degrees",
            "Steep black tea",
            "line 8: The text 'Steep black tea' does not occur in",
        ),
        (
            "- Steep green tea at 80 degrees",
            "- degrees",
            r"line 8: The text 'degrees' occurs in 2 places \(coffee.txt, tea",
        ),
        (
            "- Steep green tea at 80 degrees",
            "- {text: Roast, path: tea.txt}",
            "line 8: .*does not occur in 'tea.txt'",
        ),
    ],
)
def test_what_does_not_stand_in_the_documents_is_told_with_its_line(golden, old, new, said):
    """A label that would never be found is bad input, not a bad retriever."""
    path = golden((old, new))
    with pytest.raises(ConfigError, match=said) as caught:
        judge(read_golden(path))
    assert str(caught.value).startswith(f"{path}, line ")


def test_words_are_found_across_line_ends_and_by_their_path(golden):
    """White space in a text may be any; a path tells one of several places."""
    path = golden(
        (
            "- Steep green tea at 80 degrees",
            "- {text: degrees, path: coffee.txt}\n      - in April. Steep green",
        ),
    )
    assert judge(read_golden(path)).verdicts[1].value < 1.0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("golden.toml", "", "Unknown suffix '.toml'"),
        ("golden.json", '{"documents": ', "line 1: This is not JSON"),
        ("golden.json", '{"a": 1,\n"a": 2}', "line 2: 'a' is given twice"),
        ("golden.json", '{"a": NaN}', "NaN is not a number"),
        ("golden.json", "[" * 60 + "]" * 60, "nested more than 50 deep"),
        ("golden.json", "[" * 100_000 + "]" * 100_000, "nested more than 50 deep"),
        ("golden.json", "[]", r"line 1: The file must be a mapping .*; got \[\]"),
        ("golden.yaml", "", "line 1: The file must be a mapping .*; got None"),
        ("golden.yaml", "&a [*a]", "nested more than 50 deep"),
        ("golden.yaml", "1: 2", "line 1: The name 1 is not a text"),
        ("golden.yaml", "a: 2024-13-45", "line 1: '2024-13-45' cannot be read"),
        ("golden.yaml", "a: !!python/object:os.system x", "line 1: This is not YAML"),
    ],
)
def test_what_is_no_golden_file_is_refused(tmp_path, name, text, said):
    """Another format, a broken one, one with itself inside: an error of ours that begins with the
    file.
    """
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as caught:
        read_golden(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    """One that is not there, and one that is no UTF-8."""
    (tmp_path / "golden.yaml").write_bytes(b"\xff\xfe\xfa")
    for name in ("none.yaml", "golden.yaml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_golden(tmp_path / name)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 0, 3]))
def test_json_is_read_as_the_standard_library_does(value, indent):
    """Any value, however it is laid out; and each line is one on which the value's text begins."""

    def plain(one):
        assert isinstance(one, LocatedValue)
        assert 1 <= one.line <= len(lines)
        if isinstance(one.value, dict):
            return {name: plain(held) for name, held in one.value.items()}
        if isinstance(one.value, list):
            return [plain(held) for held in one.value]
        if not isinstance(one.value, float):
            assert json.dumps(one.value, ensure_ascii=False) in lines[one.line - 1]
        return one.value

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    assert plain(located_json(text)) == value


@pytest.mark.parametrize("references", ["80", [""], [80]])
def test_what_is_no_answer_is_refused(references):
    """A blank answer would stand in every text."""
    with pytest.raises(ConfigError, match="references"):
        has_answer(["text"], references)


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("Steep at 80 degrees.", "80", True),
        ("Steep for 180 seconds.", "80", False),
        ("STEEP AT\n80   Degrees", "80 degrees", True),
        ("用八十\n度的水", "八十度", True),
        ("用８０度的水", "80度", True),
        ("teapot", "tea", False),
        ("绿茶tea好", "tea", True),
        ("Straße", "strasse", True),
    ],
)
def test_an_answer_stands_in_a_text(text, answer, found):
    """Case, width and white space do not count; parts of Latin words and numbers are not the
    answer.
    """
    assert has_answer([text], ["no such", answer]) == float(found)
    assert has_answer(["nothing", text], [answer], k=1) == 0.0


def test_an_empty_list_of_labels_is_a_mistake(golden):
    """A question that asks for nothing would pass unseen; the message has the line."""
    with pytest.raises(ConfigError, match=r"line \d+: .*is empty"):
        read_golden(
            golden(("    texts:\n      - Steep green tea at 80 degrees\n", "    texts: []\n"))
        )


def test_a_report_is_json_whatever_the_scores(golden):
    """A retriever without scores leaves none, not a number that JSON does not have."""
    path = golden(
        ("retriever:\n  method: full_text_search\n  topk: 3\n", ""), ("  span_recall@3: 1.0\n", "")
    )
    docs = Document(path.parent / "texts")
    report = judge(
        read_golden(path), docs, lambda query, filters=None, topk=None: docs.get_nodes("FineChunk")
    )
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["questions"][0]["found"][0]["score"] is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  method: semantic", r"line 3: Unknown method 'semantic'.*semantic_search"),
        (
            "  method: full_text_search\n  similarity: bm",
            r"line 4: Unknown similarity 'bm'.*'bm25'",
        ),
    ],
)
def test_names_in_the_settings_are_told_with_their_line(golden, line, told):
    """A misspelt method or similarity is a mistake in the file, and names the nearest."""
    with pytest.raises(ConfigError, match=told):
        read_golden(golden(("  method: full_text_search", line)))
