"""The page Search: hits with their explanation, and why a passage is not among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lazyrag.data.filters import Filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import root_uid
from lazyrag.errors import LazyRAGError
from lazyrag.generation.answerable import is_weak
from lazyrag.generation.extractive import write_excerpts
from lazyrag.read import grep
from lazyrag.retrieval.explain import ExplainedHit, Tracks, build_explanation
from lazyrag.retrieval.inferring import inferred_values
from lazyrag.retrieval.postprocessors import MMR, RetrievalChain
from lazyrag.server.core.body import SearchOptions
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.set_request import Reading, SetRequest
from lazyrag.server.page import page
from lazyrag.server.page.marked_text import mark_span
from lazyrag.server.page.operate import first_run
from lazyrag.server.page.page import Facts
from lazyrag.server.page.query_bar import Knobs, KnobsInQuery, query_bar
from lazyrag.text.analyzers import query_terms, term_spans
from lazyrag.text.sentences import resolve_language
from lazyrag.types import JsonObject

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

_MOST_CHOICES = 8
_SNIPPET = 240


@router.get("/search")
async def search_page(call: Reading, knobs: KnobsInQuery) -> Response:
    """Search with all knobs, the explanation, and why a passage is not there; on an empty set the
    way to the first files.
    """

    def find() -> Facts:
        facts = {
            **query_bar(call, knobs),
            "page": "search",
            "hits": [],
            "weak": False,
            "inferred": {},
            "stages": [],
            "why": None,
            "total": 0,
        }
        if not knobs.q.strip() or facts["problem"]:
            return facts
        try:
            facts |= _search(call, knobs, facts["filters"])
            if not facts["hits"] and facts["filters"] is not None:
                facts["total"] = len(_retriever(call, knobs)(knobs.q, None, 100))
        except (LazyRAGError, ProblemError) as exc:
            facts["problem"] = problem_of(exc)
        return facts

    if steps := await first_run(call):
        return steps
    facts = await call.run(find)
    return await page.render_set(
        call, "search.html", fragments=("results",), **facts, api=knobs.options()
    )


def _base_retriever(call: SetRequest, knobs: Knobs) -> Any:
    inferred = knobs.options()["infer_filters"]
    return call.retriever(
        SearchOptions(group=knobs.group, retriever=knobs.retriever, infer_filters=inferred)
    )


def _retriever(call: SetRequest, knobs: Knobs) -> Any:
    retriever = _base_retriever(call, knobs)
    return RetrievalChain(retriever, MMR(), topk=knobs.topk) if knobs.rerank else retriever


def _search(call: SetRequest, knobs: Knobs, filters: Filter | None) -> Facts:
    trace = _retriever(call, knobs).trace(knobs.q, filters, knobs.topk)
    explanation = build_explanation(trace, knobs.q, filters)
    last = explanation.stages[-1]
    texts = [hit.node.text if hit.node else "" for hit in explanation]
    snippets = _snippets(knobs.q, texts)
    return {
        "hits": list(zip(explanation, snippets, map(_shares, explanation), strict=True)),
        "weak": is_weak(knobs.q, texts, [hit.path for hit in explanation]),
        "inferred": inferred_values(_base_retriever(call, knobs), knobs.q),
        "stages": explanation.stages,
        "total": last.given + last.dropped,
        "seconds": explanation.seconds,
        "why": _why_not(call, knobs, filters) if knobs.why_not.strip() else None,
    }


def _shares(hit: ExplainedHit) -> list[tuple[str, float]]:
    """What each input of the last fusion added to a hit; all for being named as one share."""
    shares = [*hit.contributions.items()]
    if any(standing.name == "fields" for standing in hit.standings):
        named = sum(share for _, share in shares[1:])
        shares[1:] = [("fields", named)] if named else []
    return shares


def _snippets(query: str, texts: Sequence[str]) -> list[list[tuple[str, int]]]:
    """The sentences of each text that answer best, on one line, with the matches."""
    terms = query_terms(query)
    is_zh = [resolve_language("auto", text) == "zh" for text in texts]
    sizes = [_SNIPPET // 2 if wide else _SNIPPET for wide in is_zh]
    snippets = []
    for excerpt in write_excerpts(query, texts, sizes):
        line = re.sub(
            r"(^| )#{1,6} |\*\*|(\| ?-{3,} ?)+\|?", " ", " ".join(excerpt.split())
        ).strip()
        marks = [(1, start, end) for start, end, _ in term_spans(line, terms)]
        snippets.append(mark_span(line, (0, len(line)), marks))
    return snippets


def _why_not(call: SetRequest, knobs: Knobs, filters: Filter | None) -> Facts:
    """Why a passage is not among the results, and the one change that would bring it in."""
    nodes = _named_nodes(call, knobs)
    if len(nodes) != 1:
        return {"nodes": nodes, "reason": None}
    uid = nodes[0].uid
    retriever = _retriever(call, knobs)
    reason = retriever.why_not(uid, knobs.q, filters, knobs.topk)
    trace = retriever.trace(knobs.q, filters, knobs.topk)
    helpful_change = None
    if reason.cause != "found":
        for change in _changes(call, knobs, nodes[0].group, reason.rank):
            if _admits(call, knobs, filters, uid, change):
                helpful_change = change
                break
    return {
        "nodes": nodes,
        "node": nodes[0],
        "reason": reason,
        "reasons": {part.stage: part for part in (reason, *reason.inputs)},
        "stages": build_explanation(trace, knobs.q, filters).stages,
        "ranks": _ranks(Tracks(trace), uid),
        "change": helpful_change,
    }


def _ranks(tracks: Tracks, uid: str) -> dict[int, int]:
    """The ranks of a node by the numbers of the stages that returned it."""
    ranks = {}
    for number, stage in enumerate(tracks.stages, 1):
        for rank, node in enumerate(stage.nodes, 1):
            if node.uid == uid:
                ranks[number] = rank
    return ranks


def _changes(call: SetRequest, knobs: Knobs, group: str, rank: int | None) -> Iterator[JsonObject]:
    """Changes of a search that may bring in a node of a group, the likeliest first."""
    if knobs.filter:
        yield {"filter": []}
    if group != knobs.group:
        yield {"group": group}
    for topk in (rank, 20, 50, 100):
        if topk and (knobs.topk or 0) < topk <= 100:
            yield {"topk": topk}
    for retriever in ("hybrid", "vector", "bm25") if call.docs.reader.embed_keys else ("bm25",):
        if retriever != knobs.retriever:
            yield {"retriever": retriever}


def _admits(
    call: SetRequest, knobs: Knobs, filters: Filter | None, uid: str, change: JsonObject
) -> bool:
    changed = knobs.model_copy(update=dict(change))
    with suppress(LazyRAGError):
        conditions = None if "filter" in change else filters
        reason = _retriever(call, changed).why_not(uid, knobs.q, conditions, changed.topk)
        return bool(reason.cause == "found")
    return False


def _named_nodes(call: SetRequest, knobs: Knobs) -> list[DocNode]:
    """The nodes that a uid, a path, or a piece of text means; what is hidden is not there."""
    text = knobs.why_not.strip()
    for segment in call.docs.reader.held(text)[:1]:
        return [call.docs.reader.show(segment)]
    path, _, place = text.partition(", ")
    with suppress(LazyRAGError):
        for document, location in ((text, ""), (path, place)):
            ids = [root_uid(document)]
            nodes = call.docs.get_nodes(knobs.group, document_ids=ids, limit=200)
            if nodes:
                same = [node for node in nodes if node.location == location]
                return (same or nodes)[:_MOST_CHOICES]
    longest_line = max(text.splitlines(), key=len, default="")
    nodes = _nodes_with(call, knobs.group, text) or _nodes_with(call, knobs.group, longest_line)
    return nodes[:_MOST_CHOICES]


def _nodes_with(call: SetRequest, group: str, line: str) -> list[DocNode]:
    """The nodes of a group around the places where a line is."""
    nodes: dict[str, DocNode] = {}
    with suppress(LazyRAGError):
        for match in grep(call.docs, line.strip()[:500], limit=20, ignore_case=True):
            first, last = match.span
            for node in call.docs.get_nodes(group, document_ids=[root_uid(match.path)]):
                if node.span and node.span[0] < last and first < node.span[1]:
                    nodes.setdefault(node.uid, node)
    return list(nodes.values())
