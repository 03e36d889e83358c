"""The query bar and the settings of the retrieval, which Ask and Search share."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from lazyrag.data.filters import OPERATORS, And, Condition
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document import Document
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.retrieval.explain import filter_text
from lazyrag.server.api.search import MAX_QUERY
from lazyrag.server.core.body import Name
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.set_request import SetRequest
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts
from lazyrag.types import JsonObject


class Knobs(BaseModel):
    """The query bar and the settings of the retrieval, which Ask and Search share."""

    q: str = Field("", max_length=MAX_QUERY)
    group: Name = ""
    retriever: Name = ""
    topk: int | None = Field(None, ge=1, le=100)
    rerank: Literal["", "mmr"] = ""
    filter: list[str] = Field([], max_length=50)
    field: Name = ""
    op: Name = "eq"
    value: str = Field("", max_length=2_000)
    explain: bool = False
    why_not: str = Field("", max_length=MAX_QUERY)
    infer_without: list[str] = Field([], max_length=50)
    words_only: bool = False  # not what the question names: `infer_filters` of the API

    def query(self, **changes: Any) -> dict[str, Any]:
        """The query of a URL with these settings; defaults are left out."""
        values = self.model_dump(exclude={"field", "op", "value"}) | changes
        return {name: 1 if value is True else value for name, value in values.items() if value}

    def conditions(self, docs: Document) -> list[Condition]:
        """The conditions, with the new one; its text becomes a value of the field's type."""
        conditions = [Condition(**json.loads(text)) for text in self.filter]
        text = self.value.strip()
        value: Any = True
        if not self.field or not (text or self.op == "exists"):
            return conditions
        if self.op in ("in", "not in"):
            words = filter(None, re.split(r"[\s,，]+", text))
            value = [_parse_value(docs, self.field, word) for word in words]
        elif self.op != "exists":
            value = _parse_value(docs, self.field, text)
        return [*conditions, Condition(self.field, self.op, value)]

    def options(self) -> JsonObject:
        """The options of the retrieval, as the API has them."""
        filters = {"and": [json.loads(text) for text in self.filter]} if self.filter else None
        return {
            "topk": self.topk,
            "group": self.group,
            "retriever": self.retriever,
            "filters": filters,
            "infer_filters": not self.words_only
            and ([f"-{value}" for value in self.infer_without] or True),
        }


KnobsInQuery = Annotated[Knobs, Query()]


def _parse_value(docs: Document, name: str, text: str) -> Any:
    kind = docs.reader.fields[name].data_type.value if name in docs.reader.fields else ""
    try:
        if "int" in kind:
            return int(text)
        return float(text) if kind in ("float", "double") else text
    except ValueError as exc:
        raise ConfigError(f"{name} must be a number; got {text!r:.80}.") from exc


def _groups(call: SetRequest) -> list[tuple[str, int]]:
    """The groups that can be searched, with their number of nodes as the principal sees them."""
    groups = [
        (group.name, group.nodes if call.principal.is_unrestricted else 0)
        for group in call.unrestricted.status().groups
        if group.nodes and group.name != LAZY_ROOT_NAME
    ]
    return groups or [("MediumChunk", 0)]


def query_bar(call: SetRequest, knobs: Knobs) -> Facts:
    """What the query bar and the knobs show; knobs without a value get the set's defaults."""
    groups = _groups(call)
    defaults = page.defaults_of(call.service, call.name)
    names = [name for name, _ in groups]
    chosen = (name for name in (knobs.group, defaults["group"]) if name in names)
    knobs.group = next(chosen, names[0])
    knobs.retriever = knobs.retriever or defaults["retriever"]
    knobs.topk = knobs.topk or defaults["topk"]
    conditions = []
    problem = None
    try:
        conditions = knobs.conditions(call.docs)
    except LazyRAGError as exc:
        problem = problem_of(exc)
    except (ValueError, TypeError, RecursionError):
        problem = ProblemError(422, "The filter is malformed.", "Add it with the button Filter.")
    knobs.filter = [
        json.dumps({"field": condition.field, "op": condition.op, "value": condition.value})
        for condition in conditions
    ]
    options = [(name, f"{name} ({count:,})" if count else name) for name, count in groups]
    descriptions = map(filter_text, conditions)
    return {
        "page": "ask",
        "given": knobs,
        "group_options": options,
        "retrievers": page.retrievers_of(call.docs),
        "conditions": list(zip(descriptions, knobs.filter, strict=True)),
        "problem": problem,
        "fields": sorted(call.docs.reader.fields),
        "operators": OPERATORS,
        "filters": And(*conditions) if conditions else None,
        "has_chat": call.service.chat is not None,
    }
