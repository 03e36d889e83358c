"""OpenAI's models and embeddings."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

import lazyrag.server.openai.protocol as openai
from lazyrag.document import Document
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import Usage, usage_of_calls
from lazyrag.models.rerank import Bm25RerankModel
from lazyrag.server.core.body import Name
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.set_request import SetRequest, reply
from lazyrag.server.openai.protocol import LongText
from lazyrag.text.tokens import EstimatedTokenCounter
from lazyrag.types import JsonObject

router = APIRouter(prefix="/v1", tags=["openai"])

# Models


def model_name(model: Any, default: str) -> str:
    """The name of a model, by which requests call it."""
    for attribute in ("model", "name"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return default


def rerankers_of(call: SetRequest) -> JsonObject:
    """The models that rerank, by name: the configured one, and BM25, which needs none."""
    rerankers: JsonObject = {"bm25": Bm25RerankModel()}
    if call.service.rerank is not None:
        rerankers[model_name(call.service.rerank, "reranker")] = call.service.rerank
    return rerankers


def _embedders(sets: dict[str, Document]) -> dict[str, CheckedEmbedder]:
    embedders = {}
    for name, docs in reversed(sets.items()):
        for embedder in docs.reader.embedders(None) if docs.reader.embed_keys else ():
            embedders[model_name(embedder.embedder, f"{name}.{embedder.key}")] = embedder
    return embedders


def _sets(call: SetRequest) -> dict[str, Document]:
    return {
        name: call.service.view(name, call.principal) for name in call.service.names(call.principal)
    }


def set_named(call: SetRequest, name: str, requested: str | None = None) -> Document:
    """The set that the principal sees under a name, which was given as another text perhaps.

    Raises:
        ProblemError: 404 if there is none, 503 until it is open.
    """
    try:
        return call.service.view(name, call.principal)
    except ProblemError as problem:
        if problem.status == 503:
            raise
        raise no_model(requested or name) from None


def no_model(name: str) -> ProblemError:
    """The error for a model that does not exist, or that the principal does not see."""
    msg = f"The model {name!a:.100} does not exist or you do not have access to it."
    return ProblemError(
        404, msg, "GET /v1/models lists them.", param="model", code="model_not_found"
    )


def _models(call: SetRequest) -> dict[str, JsonObject]:
    sets = _sets(call)
    kinds = {"rerank": rerankers_of(call), "embedding": _embedders(sets), "set": sets}
    common = {"object": "model", "created": 0, "owned_by": "lazyrag"}
    models: dict[str, JsonObject] = {}
    for kind, names in kinds.items():
        models |= {name: {"id": name, **common, "kind": kind} for name in names}
    return models


@router.get("/models")
async def list_models(call: openai.Reading) -> Response:
    """List the models: the sets that the principal sees, which answer, and models that embed and
    rerank.
    """
    models = await call.run(_models, call)
    return reply({"object": "list", "data": [models[name] for name in sorted(models)]})


@router.get("/models/{model:path}")
async def get_model(model: str, call: openai.Reading) -> Response:
    """Get a model."""
    models = await call.run(_models, call)
    if model not in models:
        raise no_model(model)
    return reply(models[model])


# Embeddings


class EmbeddingBody(openai.Model):
    """Texts to embed."""

    model: Name
    input: (
        Annotated[LongText, Field(min_length=1)]
        | Annotated[list[LongText], Field(min_length=1, max_length=2048)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    input_type: Annotated[
        Literal["query", "document"], Field(description="Beside OpenAI's fields.")
    ] = "document"
    user: str | None = None


@router.post("/embeddings")
async def embed(body: EmbeddingBody, call: openai.Reading) -> Response:
    """Embed texts by the model of a set. Only the model's own number of `dimensions` is
    possible.
    """
    texts = [body.input] if isinstance(body.input, str) else body.input
    calls = list[Usage]()
    if not all(text.strip() for text in texts):
        raise ProblemError(
            400, "input must have no blank text.", "Leave blank texts out.", param="input"
        )

    def work() -> JsonObject:
        sets = _sets(call)
        embedder = _embedders(sets).get(body.model)
        if embedder is None and body.model in sets:
            msg = f"{body.model} is a set, which answers and does not embed."
            remedy = "GET /v1/models lists the models of the kind 'embedding'."
            raise ProblemError(400, msg, remedy, param="model")
        if embedder is None:
            raise no_model(body.model)
        usage_of_calls.set(calls)
        vectors: Any = embedder.embed(texts, input_type=body.input_type)
        length = None if isinstance(vectors, list) else vectors.shape[1]
        if length is None or body.dimensions not in (None, length):
            has = "are sparse" if length is None else f"have {length} dimensions"
            raise ProblemError(
                400, f"The vectors of the model {has}.", "Leave dimensions out.", param="dimensions"
            )
        rows = vectors.astype("<f4")
        if body.encoding_format == "float":
            embeddings = rows.tolist()
        else:
            embeddings = [base64.b64encode(row).decode() for row in rows]
        tokens = sum(usage.prompt_tokens for usage in calls)
        if not tokens:  # a function as a model reports none: they are estimated
            tokens = sum(map(EstimatedTokenCounter().count, texts))
        data = [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(embeddings)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return reply(await openai.unless_gone(call.request, call.run(work)))
