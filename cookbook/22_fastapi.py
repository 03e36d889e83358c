"""Search and cited answers in an application of your own, by FastAPI: typed results, streaming, one
Document for all.

It calls its own routes once, without a server. To serve it, with the extra server:

    uvicorn --app-dir cookbook --factory 22_fastapi:create_app

`lazyrag serve` has all of this already, with tokens, uploads and a page; write a service where you
need other routes.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import httpx2
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from lazyrag import Document, RAGPipeline

CORPUS = Path(__file__).resolve().parent / "corpus"


class Found(BaseModel):
    """A hit as clients get it."""

    path: str
    location: str
    score: float
    text: str


class Answered(BaseModel):
    """An answer with the sources that it cites."""

    text: str
    sources: list[str]
    problems: list[str]


def create_app() -> FastAPI:
    """Open the Document once; its searches may run in any number of threads."""
    docs = Document(CORPUS)
    docs.activate_group("MediumChunk", analysers=["zh"])  # so that the first request is fast
    # answers are quotations; with a model: generator=HttpChatModel("http://localhost:8000/v1", ...)
    pipeline = RAGPipeline.over(docs, "MediumChunk")
    app = FastAPI(title="Tea")

    @app.get("/search")
    def search(
        q: Annotated[str, Query(max_length=500)], topk: Annotated[int, Query(ge=1, le=50)] = 5
    ) -> list[Found]:
        """Search. FastAPI runs plain functions in threads, so that the event loop stays
        responsive.
        """
        hits = docs.search(q, topk=topk)
        return [
            Found(path=hit.path, location=hit.location, score=hit.score, text=hit.text)
            for hit in hits
        ]

    @app.get("/answer")
    async def answer(q: str) -> Answered:
        """Answer. A client that disconnects cancels the request."""
        found = await pipeline.answer(q)
        return Answered(
            text=found.text,
            sources=[one.label for one in found.citations],
            problems=[*found.problems],
        )

    @app.get("/stream")
    def stream(q: str) -> StreamingResponse:
        """Stream the text of an answer."""
        pieces = (delta.text async for delta in pipeline.astream(q))
        return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")

    return app


async def main() -> None:
    """Call each route."""
    question = {"q": "What ratio of petrol and oil goes into a brush cutter?"}
    transport = httpx2.ASGITransport(create_app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://tea") as client:
        hits, answer, streamed = [
            await client.get(f"/{one}", params=question) for one in ("search", "answer", "stream")
        ]
        wrong = await client.get("/search", params={})
    print(hits.json()[0]["path"], answer.json(), streamed.text, sep="\n")
    assert hits.json()[0]["path"] == "handbook/tools-and-vehicles.txt"
    assert answer.json()["sources"][0].startswith("handbook/tools-and-vehicles.txt")
    assert streamed.text == answer.json()["text"]
    assert wrong.status_code == 422


if __name__ == "__main__":
    asyncio.run(main())
assert Answered.model_fields.keys() == {"text", "sources", "problems"}
