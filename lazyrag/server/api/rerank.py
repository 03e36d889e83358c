"""Rerank in the form of Jina and Cohere."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lazyrag.models.protocols import Usage, usage_of_calls
from lazyrag.server.api.search import MAX_QUERY
from lazyrag.server.core.body import Name
from lazyrag.server.core.set_request import reply
from lazyrag.server.openai.models import no_model, rerankers_of
from lazyrag.server.openai.protocol import LongText, Model, Reading, unit_score, unless_gone
from lazyrag.types import JsonObject

router = APIRouter(tags=["rerank"])


class TextDocument(Model):
    """A document as an object."""

    text: LongText


class RerankBody(Model):
    """Documents to order by how well they answer a query."""

    model: Name
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY, pattern=r"\S")]
    documents: Annotated[
        list[LongText | TextDocument],
        Field(min_length=1, max_length=2048),
    ]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: Annotated[
        bool | None, Field(description="By default only in /v1/rerank.")
    ] = None
    user: str | None = None


@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def rerank(body: RerankBody, call: Reading) -> Response:
    """Order documents by the configured rerank model, or by BM25, whose scores are mapped to the
    range from 0 to 1.
    """
    texts = [
        document if isinstance(document, str) else document.text for document in body.documents
    ]
    models = rerankers_of(call)
    if body.model not in models:
        raise no_model(body.model)
    model = models[body.model]
    is_v1 = call.request.scope["route"].path == "/v1/rerank"
    with_texts = is_v1 if body.return_documents is None else body.return_documents

    def work() -> JsonObject:
        calls: list[Usage] = []
        usage_of_calls.set(calls)
        results = []
        for index, score in model(body.query, texts, body.top_n):
            relevance = score
            # which gives a text without a word of the query more than 0, unless it is alone
            if body.model == "bm25":
                [(_, alone)] = model(body.query, [texts[index]])
                relevance = unit_score(score if alone else 0.0, by_keywords=True)
            result = {"index": index, "relevance_score": relevance, "raw_score": score}
            if with_texts:
                result["document"] = {"text": texts[index]}
            results.append(result)
        response: JsonObject = {"id": str(uuid.uuid4()), "results": results}
        tokens = sum(call_usage.prompt_tokens for call_usage in calls)
        if not is_v1:
            meta: JsonObject = {"api_version": {"version": "2"}}
            if calls:
                meta["tokens"] = {"input_tokens": tokens}
            return {**response, "meta": meta}
        response |= {"object": "list", "model": body.model}
        if calls or body.model == "bm25":
            response["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        return response

    return reply(await unless_gone(call.request, call.run(work)))
