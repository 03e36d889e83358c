"""The page of all matches: every document, passage or table row with the words of a query."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from lazyrag.errors import LazyRAGError
from lazyrag.server.api.search import Unit
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.set_request import Reading
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts
from lazyrag.server.page.query_bar import KnobsInQuery, query_bar

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

_AT_ONCE = 50


@router.get("/all")
async def matches_page(
    call: Reading, knobs: KnobsInQuery, per: Unit = "document", after: str = ""
) -> Response:
    """All matches with their number, page by page, and the files that were not looked at."""

    def find() -> Facts:
        facts = {**query_bar(call, knobs), "page": "search", "per": per, "matches": None}
        if knobs.q.strip() and not facts["problem"]:
            try:
                if per == "row":
                    call.ensure_tables()
                facts["matches"] = call.docs.collect(
                    knobs.q,
                    facts["filters"],
                    per=per,
                    group=knobs.group,
                    limit=_AT_ONCE,
                    after=after or None,
                )
            except (LazyRAGError, ProblemError) as exc:
                facts["problem"] = problem_of(exc)
        return facts

    facts = await call.run_slow(find)
    return await page.render_set(call, "all.html", after=after, **facts)
