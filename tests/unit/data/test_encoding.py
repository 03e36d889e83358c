"""The encoder of all value classes: each becomes JSON, with exact numbers and every field."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib
import inspect
import json
import math
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from lazyrag import (
    Answer,
    Citation,
    DocNode,
    Document,
    GenerationResult,
    Hit,
    RAGContext,
    RetrievalResult,
    Retriever,
)
from lazyrag.data.encoding import to_dict
from lazyrag.data.segment import Location
from lazyrag.document import (
    ChangedText,
    DocumentInfo,
    DocumentStatus,
    DocumentVersion,
    ErrorInfo,
    Failure,
    GroupDiff,
    GroupStatus,
    IngestReport,
    PlannedStep,
    Problem,
    Progress,
    SyncPlan,
    TextMatch,
    VersionDiff,
)
from lazyrag.errors import ConfigError
from lazyrag.evaluation import GoldenReport
from lazyrag.generation import AnswerDelta, GenerationDelta

SCORE = 0.1 + 0.2
HIT = Hit("1", "Tea.", SCORE, "tea.txt", "d", 1, {"location": "page 3"})
HIT_DICT = {
    "id": "1",
    "text": "Tea.",
    "score": SCORE,
    "source": "tea.txt",
    "document_id": "d",
    "chunk_id": 1,
} | {"metadata": {"location": "page 3"}}
RESULT = RetrievalResult.from_hits([HIT], {"seconds": np.float32(0.5)})
RESULT_DICT = {"hits": [HIT_DICT], "metadata": {"seconds": 0.5}}
CITATION = Citation(1, "tea.txt", "d", 1, "Tea.", "1", "page 3")
CITATION_DICT = dataclasses.asdict(CITATION)
CONTEXT = RAGContext("How?", "[1] Tea.", RESULT, 5)
CONTEXT_DICT = {
    "query": "How?",
    "context": "[1] Tea.",
    "sources": RESULT_DICT,
    "total_tokens": 5,
    "metadata": {},
}
GENERATION = GenerationResult("Tea [1].", confidence=0.5)
GENERATION_DICT = {
    "response": "Tea [1].",
    "multi_responses": None,
    "confidence": 0.5,
    "metadata": None,
}
ANSWER = Answer(
    "How?",
    "Tea [1].",
    (CITATION,),
    CONTEXT,
    GENERATION,
    ("It is short.",),
    {"seconds": {"search": 0.25}},
)
ANSWER_DICT = {
    "query": "How?",
    "text": "Tea [1].",
    "citations": [CITATION_DICT],
    "context": CONTEXT_DICT,
    "generation": GENERATION_DICT,
    "problems": ["It is short."],
    "statements": [],
    "metadata": {"seconds": {"search": 0.25}},
}
ERROR = ConfigError("topk must be an integer >= 1; got 0. Pass topk=5.")
ERROR_DICT = {
    "type": "ConfigError",
    "detail": "topk must be an integer >= 1; got 0.",
    "remedy": "Pass topk=5.",
}
NOTES = {"a": ("encoding: guessed cp1251, confidence 0.48",)}
REPORT = IngestReport(
    ("a",), (Failure("b", "load", ERROR),), moved=(("c", "d"),), reasons={"a": "bytes"}, notes=NOTES
)
REPORT_DICT = {field.name: [] for field in dataclasses.fields(IngestReport)} | {
    "added": ["a"],
    "failed": [{"path": "b", "stage": "load", "error": ERROR_DICT}],
    "moved": [["c", "d"]],
    "reasons": {"a": "bytes"},
    "rebuilt": {},
    "notes": {"a": ["encoding: guessed cp1251, confidence 0.48"]},
}
INFO = DocumentInfo(
    "a",
    "a",
    "FAILED",
    "load",
    ErrorInfo("X", "y"),
    3,
    None,
    {"g": {"status": "SUCCESS", "nodes": 2}},
)


class Color(enum.Enum):
    """A value with a name."""

    RED = "red"


VALUES = [
    (HIT, HIT_DICT),
    (Hit("1", "Tea.", math.nan), Hit("1", "Tea.", 0.0).to_dict() | {"score": None}),
    (RESULT, RESULT_DICT),
    (CITATION, CITATION_DICT),
    (CONTEXT, CONTEXT_DICT),
    (GENERATION, GENERATION_DICT),
    (ANSWER, ANSWER_DICT),
    (GenerationDelta("T", GENERATION), {"text": "T", "result": GENERATION_DICT}),
    (
        AnswerDelta("T", (CITATION,)),
        {"text": "T", "citations": [CITATION_DICT], "answer": None, "statements": []},
    ),
    (ERROR, ERROR_DICT),
    (ErrorInfo.of(ERROR), ERROR_DICT),
    (REPORT.failed[0], REPORT_DICT["failed"][0]),
    (REPORT, REPORT_DICT),
    (
        Problem("missing", "line", "a", "1 row"),
        {"kind": "missing", "where": "line", "document": "a", "what": "1 row"},
    ),
    (Progress("sync", "load", 0.5, 2), {"what": "sync", "step": "load", "done": 0.5, "total": 2}),
    (Location(0, 4, "page", "1"), {"start": 0, "end": 4, "kind": "page", "label": "1"}),
    (
        TextMatch("a", (0, 4), "Tea.", ""),
        {"path": "a", "span": [0, 4], "line": "Tea.", "location": ""},
    ),
    (ChangedText("Tea.", None, 1), {"text": "Tea.", "before": None, "after": 1}),
    (
        VersionDiff("a", 1, 2, {"line": (ChangedText("Tea.", 1, None),)}),
        {
            "document": "a",
            "before": 1,
            "after": 2,
            "groups": {"line": [{"text": "Tea.", "before": 1, "after": None}]},
        },
    ),
    (
        DocumentVersion("a", 1, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), is_live=True),
        {"document": "a", "number": 1, "created_at": "2026-01-02T00:00:00+00:00", "is_live": True},
    ),
    (INFO, dataclasses.asdict(INFO) | {"labels": []}),
    (
        DocumentStatus(
            "d", 1, (GroupStatus("line", True, False, 1, 2, ("en",)),), (("a", "load"),), 0, ""
        ),
        {
            "name": "d",
            "documents": 1,
            "groups": [
                {
                    "name": "line",
                    "is_current": True,
                    "is_complete": False,
                    "documents": 1,
                    "nodes": 2,
                }
                | {"indexes": ["en"], "reason": "", "agreement": None}
            ],
            "failed": [["a", "load"]],
            "waiting": 0,
            "writer": "",
            "errors": [],
            "url": None,
        },
    ),
    (
        GroupDiff("line", 1, 2, 3, {"dense": 2}),
        {"group": "line", "stay": 1, "come": 2, "go": 3, "embed": {"dense": 2}},
    ),
    (GoldenReport((), ()), {"passed": True, "measures": [], "questions": []}),
    (np.array([[0.1, 1e-30]], np.float32), [[float(np.float32(0.1)), float(np.float32(1e-30))]]),
    (np.int64(2**40), 2**40),
    (np.float64(0.1), 0.1),
    (np.bool_(True), True),
    (np.str_("tea"), "tea"),
    ({1: -math.inf, "b": {"z", "a"}}, {"1": None, "b": ["a", "z"]}),
    (
        (Color.RED, PurePosixPath("a/b"), dt.date(2026, 1, 2), True, None),
        ["red", "a/b", "2026-01-02", True, None],
    ),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_every_value_class_becomes_json(value, expected):
    """With all its fields, floats exact, and types that JSON has."""
    found = to_dict(value)
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_nodes_and_explanations_become_json():
    """A node with text, location, metadata of the file and its own, and score; content that is no
    text as it is.
    """
    docs = Document()
    docs.create_node_group("word", transform=lambda text: [{"word": one} for one in text.split()])
    docs.add_texts({"tea": "green tea"}, metadata={"tea": {"author": "A"}})
    [hit] = Retriever(docs, "FineChunk", similarity="bm25")("tea")
    found = to_dict(hit)
    assert (found["text"], found["score"], found["span"]) == ("green tea", hit.score, [0, 9])
    assert (found["location"], found["global_metadata"]["author"]) == ("line 1", "A")
    assert "content" not in found
    assert to_dict(docs.get_nodes("word")[0])["content"] == {"word": "green"}
    assert to_dict(DocNode(text="free"))["path"] == ""
    explanation = Retriever(docs, "FineChunk", similarity="bm25").explain("tea")
    assert to_dict(explanation) == explanation.to_dict()
    plan = docs.plan()
    assert to_dict(plan)["steps"] == [dataclasses.asdict(one) for one in plan.steps]
    for value in (
        hit,
        docs.get_nodes("word"),
        explanation,
        plan,
        docs.status(),
        docs.documents(),
        docs.versions.list("tea"),
    ):
        json.dumps(to_dict(value), allow_nan=False)


def test_no_public_value_class_is_forgotten():
    """Each dataclass that these modules make public is in the table above, or made by the test
    after it.
    """
    modules = (
        "data.result",
        "read.catalogue",
        "read.explore",
        "ingest.report",
        "ingest.sync",
        "ingest.verify",
    )
    packages = [importlib.import_module(one) for one in ("lazyrag", "lazyrag.document")]
    public = {
        getattr(one, name)
        for one in packages
        for name in one.__all__
        if inspect.isclass(getattr(one, name))
    }
    results = {one for one in public if one.__module__.removeprefix("lazyrag.") in modules}
    assert {Hit, DocumentInfo, IngestReport} < results
    made = {type(value) for value, _ in VALUES} | {GroupStatus, PlannedStep, SyncPlan}
    assert {one.__name__ for one in results - made} == set()


def test_the_encoder_reads_no_private_fields():
    """Fields that a class does not show, such as functions, are left out."""

    @dataclasses.dataclass
    class Value:
        shown: Path
        hidden: object = dataclasses.field(default=print, repr=False)

    assert to_dict(Value(Path("a"))) == {"shown": "a"}
    assert to_dict(Value) == str(Value)
