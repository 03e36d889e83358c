"""Dify's external knowledge API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import And, Condition, Filter, Not, Or
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.retrieval.base import hits_of
from lazyrag.server.api.search import Question
from lazyrag.server.core.body import Name
from lazyrag.server.core.service import passage_url
from lazyrag.server.core.set_request import reply, validate_size
from lazyrag.server.openai.models import set_named
from lazyrag.server.openai.protocol import Reading, store_ids, unit_score
from lazyrag.types import JsonObject
from lazyrag.validation import without_none

router = APIRouter(prefix="/dify", tags=["dify"])

_OPERATORS = {
    "is": "eq",
    "=": "eq",
    "is not": "ne",
    "≠": "ne",
    ">": "gt",
    "≥": "ge",
    "<": "lt",
    "≤": "le",
    "before": "lt",
    "after": "gt",
    "not contains": "contains",
}


class MetadataComparison(BaseModel):
    """A comparison of a field, or of any of several ones."""

    name: str | Annotated[list[str], Field(min_length=1, max_length=100)]
    comparison_operator: Literal[
        "is",
        "is not",
        "=",
        "≠",
        ">",
        "<",
        "≥",
        "≤",
        "before",
        "after",
        "in",
        "not in",
        "contains",
        "not contains",
        "empty",
        "not empty",
    ]
    value: Any = None

    def filter(self) -> Filter:
        """The filter that means the same."""
        operator = self.comparison_operator
        names = [self.name] if isinstance(self.name, str) else self.name
        if operator.endswith("empty"):
            return Or(*(Condition(name, "exists", operator == "not empty") for name in names))
        op = _OPERATORS.get(operator, operator)
        conditions: list[Filter] = [Condition(name, op, self.value) for name in names]
        if operator == "not contains":
            conditions = [Not(condition) for condition in conditions]
        return Or(*conditions)


class Conditions(BaseModel):
    """Conditions on the metadata."""

    logical_operator: Literal["and", "or"] = "and"
    conditions: list[MetadataComparison] | None = Field(default=None, max_length=100)

    def filter(self) -> Filter | None:
        """The filter that means the same; None without conditions."""
        parts = [comparison.filter() for comparison in self.conditions or ()]
        if not parts:
            return None
        return Or(*parts) if self.logical_operator == "or" else And(*parts)


class RetrievalSetting(BaseModel):
    """How much to return."""

    top_k: Annotated[int, Field(ge=1, le=100)] = 6
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = 0.0


class RetrievalBody(BaseModel):
    """A query to a knowledge base: a set, by its name or by the id of its vector store."""

    knowledge_id: Name
    query: Question
    retrieval_setting: RetrievalSetting = RetrievalSetting()
    metadata_condition: Conditions | None = None


@router.post("/retrieval")
async def retrieve(body: RetrievalBody, call: Reading) -> Response:
    """Search a set. The metadata of a record is never null, and has the raw score and the
    location.
    """
    name = (await call.run(store_ids, call.service)).get(body.knowledge_id, body.knowledge_id)
    docs = await call.run(set_named, call, name, body.knowledge_id)
    setting = body.retrieval_setting
    where = body.metadata_condition.filter() if body.metadata_condition else None

    def find() -> JsonObject:
        retriever = call.service.default_retriever(docs, call.service.group_of(name))
        with retrieval_span(name, body.query, setting.top_k):
            hits = hits_of(retriever(body.query, where, setting.top_k))
        validate_size(hits, "The records have", "Ask for fewer.")
        records = []
        for hit in hits:
            score = unit_score(hit.score, by_keywords=not docs.reader.embed_keys)
            node_fields = {
                "path": hit.source,
                "document_id": hit.document_id,
                "node": hit.id,
                "raw_score": hit.score,
            }
            url = passage_url(call.request, name, hit.source, hit.id)
            fields = to_dict({"url": url, **hit.metadata, **node_fields})
            metadata = without_none(fields)
            if score >= (setting.score_threshold or 0.0):
                title = hit.source.rpartition("/")[2]
                records.append(
                    {"content": hit.text, "score": score, "title": title, "metadata": metadata}
                )
        return {"records": records}

    return reply(await call.run(find))
