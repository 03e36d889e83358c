"""What retrievers answer, as rows of the golden files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.behaviour import canonical
from tests.behaviour.goldens import RECORD, load
from tests.behaviour.library import Library
from tests.behaviour.queries import BLOCKS, FILTERS, QUERIES
from tests.behaviour.retrievers import CASES, RESTRICTED, ROUNDED, SCOPES, Case

SHOWN = {"none": 10}
"""How many queries have their hits in full, by filter."""
SHOWN_ELSE = 2
RESTRICTED_BLOCKS = range(5)
EXPLAINED = (*QUERIES[:10], *QUERIES[40:50])
NOBODY = "f" * 32


def fits(lib: Library, case: Case) -> bool:
    """Whether the golden answers of a retriever hold on a store."""
    return (lib.sparse is not None or not case.is_sparse) and (lib.is_map or not case.is_native)


def fitting(lib: Library) -> dict[str, Case]:
    """The retrievers whose golden answers hold on a store."""
    return {name: case for name, case in CASES.items() if fits(lib, case)}


def block_digest(case: Case, retriever: Any, filters: Any, number: int) -> str:
    """The digest of all that a retriever gives for the queries of one block."""
    found = (
        canonical.result(
            retriever(query, filters=filters) if case.filters else retriever(query), case.decimals
        )
        for query in BLOCKS[number]
    )
    return canonical.digest(found)[:8]


def shown(case: Case, retriever: Any, filters: Any, count: int) -> list[Any]:
    """The hits of the first queries, short enough to be read."""
    return [
        canonical.brief(
            retriever(query, filters=filters) if case.filters else retriever(query), case.decimals
        )
        for query in QUERIES[:count]
    ]


def filters_of(case: Case) -> Mapping[str, Any]:
    """The filters that a retriever is asked with."""
    return FILTERS if case.filters else {"none": None}


def hit_rows(lib: Library, blocks: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Rows with the digests of blocks, and the first hits."""
    wanted = list(blocks)
    for name, case in fitting(lib).items():
        retriever = case.make(lib)
        for label, filters in filters_of(case).items():
            yield {
                "key": f"{name} / {label}",
                "blocks": " ".join(
                    block_digest(case, retriever, filters, number) for number in wanted
                ),
                "hits": shown(case, retriever, filters, SHOWN.get(label, SHOWN_ELSE)),
            }


def check_hits(lib: Library, name: str, label: str, blocks: Iterable[int]) -> None:
    """Compare one retriever under one filter with the golden hits."""
    case = CASES[name]
    _check(case, case.make(lib), FILTERS[label], load("hits")[f"{name} / {label}"], blocks)


def _check(
    case: Case, retriever: Any, filters: Any, row: Mapping[str, Any], blocks: Iterable[int]
) -> None:
    now = shown(case, retriever, filters, len(row["hits"]))
    for query, was, found in zip(QUERIES, row["hits"], now, strict=False):
        assert found == was, f"{row['key']}: {query!r}\n  then {was}\n  now  {found}"
    then = row["blocks"].split()
    for number in blocks:
        assert block_digest(case, retriever, filters, number) == then[number], (
            f"{row['key']}: other hits for a query of block {number}. On this commit and on one that passes, compare "
            f"the output of: {RECORD} --show {row['key']!r} {number}"
        )


def in_scope(lib: Library, scope: str) -> Library:
    """The library with its Documents restricted to a scope."""
    wanted = SCOPES[scope]
    return replace(lib, docs=lib.docs.restricted(wanted), notes=lib.notes.restricted(wanted))


def restricted_rows(
    lib: Library, blocks: Iterable[int] = RESTRICTED_BLOCKS
) -> Iterator[dict[str, Any]]:
    """Rows for restricted Documents."""
    wanted = list(blocks)
    for scope in SCOPES:
        scoped = in_scope(lib, scope)
        for name in RESTRICTED:
            case = CASES[name]
            retriever = case.make(scoped)
            for label in ("none", "range"):
                yield {
                    "key": f"{name} / {scope} / {label}",
                    "blocks": " ".join(
                        block_digest(case, retriever, FILTERS[label], number) for number in wanted
                    ),
                    "hits": shown(case, retriever, FILTERS[label], 4),
                }


def check_restricted(lib: Library, name: str, scope: str, blocks: Iterable[int]) -> None:
    """Compare one retriever over restricted Documents with the golden hits."""
    case = CASES[name]
    retriever = case.make(in_scope(lib, scope))
    wanted = list(blocks)
    for label in ("none", "range"):
        _check(
            case,
            retriever,
            FILTERS[label],
            load("restricted")[f"{name} / {scope} / {label}"],
            wanted,
        )


def _looked_for(lib: Library, found: list[Any], number: int) -> list[str]:
    """Nodes to ask `why_not` of: the first hit, one that may be far behind, and one that does not
    exist.
    """
    lines = lib.docs.get_nodes("line", limit=1, offset=(number * 37) % 140)
    return [*(node.uid for node in found[:1]), *(node.uid for node in lines), NOBODY]


def explanation_rows(lib: Library, names: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """Rows with digests of explanations, traces and reasons, and one of each in full."""
    for name in names if names is not None else fitting(lib):
        case = CASES[name]
        if case.explains:
            yield _explained(lib, name, case)


def _explained(lib: Library, name: str, case: Case) -> dict[str, Any]:
    retriever = case.make(lib)
    explained, traced, reasons, sentences, printed = [], [], [], [], []
    sample: dict[str, Any] = {}
    first: list[Any] = []
    for number, query in enumerate(EXPLAINED):
        filters = list(FILTERS.values())[number % 4] if case.filters else None
        explanation = retriever.explain(query, filters)
        found = canonical.plain(explanation.to_dict(), ROUNDED)
        explained.append(canonical.as_json(found))
        printed += canonical.printed(str(explanation))
        stage = retriever.trace(query, filters)
        traced.append(canonical.as_json(canonical.stage(stage, ROUNDED)))
        causes = [
            retriever.why_not(uid, query, filters)
            for uid in _looked_for(lib, list(stage.nodes), number)
        ]
        reasons += [canonical.as_json(canonical.reason(one, ROUNDED)) for one in causes]
        sentences += [str(one) for one in causes]
        if number == 0:
            sample = _readable(found)
            first = [_short(canonical.reason(one, ROUNDED)) for one in causes]
    return {
        "key": name,
        "explain": canonical.digest(explained),
        "trace": canonical.digest(traced),
        "why_not": canonical.digest(reasons),
        "sample": sample,
        "reasons": first,
        "wording": {"explain": canonical.digest(printed), "why_not": canonical.digest(sentences)},
    }


def _readable(explanation: dict[str, Any]) -> dict[str, Any]:
    """The best hit of an explanation, and its stages."""
    standings = [
        [standing[field] for field in ("stage", "rank", "score", "share")]
        for hit in explanation["hits"][:1]
        for standing in hit["standings"]
    ]
    stages = [
        [stage[field] for field in ("number", "kind", "name", "inputs", "given", "dropped")]
        for stage in explanation["stages"]
    ]
    return {
        "standings": standings,
        "stages": stages,
        "contributions": explanation["hits"][0]["contributions"] if explanation["hits"] else {},
    }


def _short(reason: dict[str, Any]) -> list[Any]:
    return [
        reason["stage"],
        reason["cause"],
        reason["rank"],
        reason["score"],
        *map(_short, reason["inputs"]),
    ]
