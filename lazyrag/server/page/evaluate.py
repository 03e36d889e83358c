"""The page Evaluate: two configurations side by side, and the golden questions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.errors import LazyRAGError
from lazyrag.evaluation.golden import GoldenQuestion, JudgedQuestion, has_answer
from lazyrag.evaluation.metrics import compare
from lazyrag.server.api import answers, documents
from lazyrag.server.core.body import SearchOptions
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.set_request import Administration, SetRequest, Writing
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts, Form, text_of
from lazyrag.types import JsonObject

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

_CONFIGURATION = ("group", "retriever")
_NO_COMPARISON: JsonObject = {"rows": [], "tally": {}, "verdict": None, "measures": []}
_DEPTH = 10
_FEW = 20
_LIKELY = 0.05
_MEASURES: dict[str, Callable[[float], float]] = {
    "mrr": lambda rank: 1 / rank,
    "first5": lambda rank: float(rank <= 5),
    "first": lambda rank: float(rank == 1),
}
"""From the rank of the first right passage; the first one decides."""

# Comparisons


@router.get("/evaluate")
async def evaluate(
    call: Writing,
    run: str = "",
    show: str = "changed",
    group: str = "",
    retriever: str = "",
) -> Response:
    """Two configurations side by side: the last comparison, or another one."""

    def find() -> Facts:
        chosen = page.defaults_of(call.service, call.name)
        last = None
        for comparison in call.records("comparison"):
            if run in ("", comparison["id"]):
                last = comparison
        other = {**chosen, "group": ""}
        described = _NO_COMPARISON
        if last is not None:
            other = last["b"]
            described = describe_comparison(last["rows"], show)
        if group:
            other = {"group": group, "retriever": retriever}
        groups = documents.status_of(call)["groups"]
        return {
            "chosen": chosen,
            "groups": [status["name"] for status in groups if status["nodes"]],
            "retrievers": page.retrievers_of(call.docs),
            "b": other,
            "last": last,
            "show": show,
            "golden": len(call.records("golden")),
            "can_use": call.principal.is_administrator,
            **described,
        }

    return await page.render_set(
        call,
        "evaluate.html",
        page="evaluate",
        fragments=("questions",),
        **await call.run(find),
    )


@router.post("/evaluate")
async def run_comparison(call: Writing, form: Form) -> Response:
    """Run the golden questions with the configuration in use and with another one."""
    chosen = page.defaults_of(call.service, call.name)
    a = {name: chosen[name] for name in _CONFIGURATION}
    b = {name: str(form.get(name, a[name])) for name in _CONFIGURATION}
    options = [SearchOptions.model_validate(configuration) for configuration in (a, b)]

    def run() -> str:
        began = time.perf_counter()
        stored, golden, reports = answers.judged_golden(call, options)
        judgements = zip(*(report.questions for report in reports), strict=True)
        rows = []
        for record, question, judged in zip(stored, golden.questions, judgements, strict=True):
            expected = [*record["texts"], *record["references"]]
            ranks = [_rank_of(question, judgement) for judgement in judged]
            row = {
                "question": record["question"],
                "expected": expected[:1],
                "file": next((span["path"] for span in record["spans"]), ""),
                "ranks": ranks,
            }
            rows.append(row)
        seconds = round(time.perf_counter() - began, 3)
        comparison = {"a": a, "b": b, "rows": rows, "seconds": seconds}
        return str(call.add_record("comparison", comparison)["id"])

    return page.to_set(call, "evaluate", run=await call.run_slow(run))


def _rank_of(question: GoldenQuestion, judged: JudgedQuestion) -> int | None:
    """The rank of the first passage that answers a question; None if none of the first ten does."""
    if question.locations:
        reciprocal = judged.values.get(f"span_MRR@{_DEPTH}", 0.0)
        return round(1 / reciprocal) if reciprocal else None
    references = question.references
    for rank, hit in enumerate(judged.found[:_DEPTH], start=1):
        if hit.id in question.ids:
            return rank
        if references and has_answer([hit.text], references):
            return rank
    return None


def describe_comparison(rows: Sequence[JsonObject], show: str) -> Facts:
    """What the page shows of a comparison's rows: measures, a verdict by the first of them,
    questions.
    """
    measures = [_measure(name, rows) for name in _MEASURES]
    verdict = {**measures[0], "questions": len(rows)}
    if len(rows) < _FEW and verdict["state"] != "same":
        verdict["state"] = "few"
    changed = []
    for row in rows:
        before, after = (rank or _DEPTH + 1 for rank in row["ranks"])
        changed.append({**row, "change": before - after})
    kinds = {
        "changed": [row for row in changed if row["change"]],
        "all": changed,
        "missed": [row for row in changed if not row["ranks"][1]],
    }
    selected = kinds.get(show, kinds["changed"])
    return {
        "measures": measures,
        "verdict": verdict,
        "rows": sorted(selected, key=lambda row: -row["change"]),
        "tally": {kind: len(rows_of_kind) for kind, rows_of_kind in kinds.items()},
    }


def _measure(name: str, rows: Sequence[JsonObject]) -> Facts:
    """A measure of both configurations, and how they compare by it."""
    value = _MEASURES[name]
    a = {number: value(row["ranks"][0] or math.inf) for number, row in enumerate(rows)}
    b = {number: value(row["ranks"][1] or math.inf) for number, row in enumerate(rows)}
    comparison = compare(a, b)
    state = "better" if comparison.difference > 0 else "worse"
    if not comparison.wins + comparison.losses:
        state = "same"
    elif comparison.p >= _LIKELY:
        state = "open"
    sums = [sum(a.values()), sum(b.values())]
    return {"name": name, "state": state, **asdict(comparison), "sums": sums}


@router.post("/evaluate/use")
async def use(call: Administration, form: Form) -> Response:
    """Use a configuration from now on, or take that back."""
    documents.require_all(call)
    values = {}
    if not form.get("undo"):
        values = {name: str(form.get(name)) for name in _CONFIGURATION}
    await call.run(page.change_defaults, call.service, call.docs, call.name, **values)
    notice = ("ok", page.translator(call.request)("eval.used" if values else "eval.unused"))
    return page.to_set(call, "evaluate", notice=notice)


# Golden questions


@router.get("/evaluate/golden")
async def golden(call: Writing, edit: str = "", question: str = "", tab: str = "") -> Response:
    """Golden questions; and judgements of answers that may become some."""

    def find() -> Facts:
        questions = call.records("golden")
        used = {record["feedback"] for record in (*questions, *call.records("dismissed"))}
        candidates = [
            judgement
            for judgement in call.records("feedback")
            if judgement["id"] not in used and judgement["query"]
        ]
        edited = next((record for record in questions if record["id"] == edit), None)
        return {
            "known": questions,
            "candidates": candidates,
            "edited": edited,
            "question": question,
            "tab": tab,
        }

    return await page.render_set(call, "golden.html", page="evaluate", **await call.run(find))


@router.post("/evaluate/golden")
async def change_golden(call: Writing, form: Form) -> Response:
    """Add, edit or delete a golden question; confirm or dismiss a candidate."""
    action = str(form.get("action", "add"))
    number = text_of(form, "number")
    tab = "candidates" if action in ("dismiss", "confirm") else None
    if action == "dismiss":
        await call.run(call.add_record, "dismissed", {"feedback": number})
    elif action == "delete":
        await answers.delete_golden(number, call)
    else:
        fields = {name: text_of(form, name).strip() for name in ("question", "answer", "file")}
        if action == "confirm":
            fields["feedback"] = number
        body = await call.run(_labelled, call, fields)
        edited = number if action == "edit" else ""
        await call.run_slow(answers.store_golden, call, body, edited)
    return page.to_set(call, "evaluate", "golden", tab=tab)


def _labelled(call: SetRequest, fields: JsonObject) -> answers.GoldenBody:
    """A golden question of a question, an answer and perhaps its file; or one in the form of the
    API.
    """
    labelled = {name: fields[name] for name in answers.GoldenBody.model_fields if fields.get(name)}
    answer = str(fields.get("answer") or "")
    file = str(fields.get("file") or "")
    if answer:
        labelled["references"] = [answer]
        roots = call.docs.get_nodes(LAZY_ROOT_NAME, document_ids=[root_uid(file)]) if file else ()
        labelled["spans"] = [
            {"path": root.path, "start": start, "end": start + len(answer)}
            for root in roots
            if (start := root.text.find(answer)) >= 0
        ]
    try:
        return answers.GoldenBody.model_validate(labelled)
    except ValidationError as exc:
        t = page.translator(call.request)
        raise ProblemError(422, t("eval.bad_question", n=str(fields)[:60])) from exc


@router.post("/evaluate/import")
async def import_golden(call: Writing, request: Request) -> Response:
    """Add the golden questions of a JSON file; known ones are left as they are."""
    t = page.translator(request)
    async with request.form(max_files=1) as form:
        file: Any = form.get("file")
        text = await file.read() if hasattr(file, "read") else str(file)
        page.check_csrf(request, text_of(form, "csrf"))
    try:
        parsed = json.loads(text)
        parsed = parsed["questions"] if isinstance(parsed, dict) else parsed
        questions = [dict(question) for question in parsed][: answers.MAX_GOLDEN]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ProblemError(422, t("eval.bad_file"), t("eval.import_hint")) from exc
    refused = []
    for question in questions:
        try:
            body = await call.run(_labelled, call, question)
            await answers.add_golden(body, call)
        except (ProblemError, LazyRAGError) as exc:
            text = str(question.get("question", ""))[:60]
            refused.append(f"{text}: {getattr(exc, 'detail', exc)}")
    kind = "warn" if refused else "ok"
    message = t("eval.imported", count=len(questions) - len(refused))
    details = " ".join(refused[:2])[:400]
    return page.to_set(call, "evaluate", "golden", notice=(kind, message, details))
