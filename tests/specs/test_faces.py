"""One engine, several faces: a question through each of them finds the same nodes, with the same
scores.
"""

from __future__ import annotations

import asyncio

import pytest

from lazyrag import Document, HybridRetriever, RAGPipeline, Retriever
from lazyrag.evaluation import PipelineRAG, RetrieverRAG
from lazyrag.interop.dify import GroupVector
from lazyrag.interop.langchain import as_retriever
from lazyrag.operators import (
    ChromaRetriever,
    MilvusRetriever,
    RetrieveOperator,
    Wiki18FAISSRetriever,
)

TEXTS = {
    "绿茶.txt": "绿茶用八十度的水冲泡。水太热，茶汤会发苦。",
    "红茶.txt": "红茶用沸水冲泡，可以加奶。",
    "白茶.txt": "白茶可以泡，也可以煮。",
    "咖啡.txt": "咖啡用九十二度的水冲泡。",
    "山.txt": "山上有云，也有树。",
}
QUESTIONS = ["绿茶用几度的水冲泡?", "红茶加什么", "白茶怎么煮"]
TOP = 3


def embed(text):
    """Counts of some characters: enough to rank by."""
    return [0.1 + text.count(character) for character in "绿红白咖茶水泡煮山奶"]


@pytest.fixture
def docs():
    """One Document."""
    docs = Document(embed=embed)
    docs.add_texts(TEXTS)
    return docs


def of_rows(rows):
    """Ids and scores of an operator's results."""
    return [(row["id"], row["score"]) for row in rows]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", ["cosine", "bm25_chinese", "hybrid"])
def test_every_face_finds_the_same_nodes_with_the_same_scores(docs, question, kind):
    """Retriever (001), operator (000), interface V2 over retriever and pipeline (002), pipeline
    (003), LangChain.
    """
    vector, words = (
        Retriever(docs, "FineChunk", "cosine"),
        Retriever(docs, "FineChunk", "bm25_chinese"),
    )
    retriever = {"cosine": vector, "bm25_chinese": words, "hybrid": HybridRetriever(vector, words)}[
        kind
    ]
    expected = [(node.uid, node.score) for node in retriever(question, topk=TOP)]
    assert len(expected) == TOP
    pipeline = RAGPipeline(retriever=retriever)
    by_pipeline = pipeline.sync.retrieve(question, top_k=TOP)
    by_interface = RetrieverRAG(retriever, topk=TOP).retrieve_with_metadata(question)
    by_both = PipelineRAG(pipeline, top_k=TOP).retrieve_with_metadata(question)
    by_langchain = as_retriever(retriever, topk=TOP).invoke(question)
    found = {
        "000": of_rows(RetrieveOperator(retriever, TOP)({"query": question})["retrieval_results"]),
        "000 async": of_rows(
            asyncio.run(RetrieveOperator(retriever, TOP).aexecute({"query": question}))[
                "retrieval_results"
            ]
        ),
        "002": list(zip(by_interface.context_ids or [], by_interface.scores or [], strict=True)),
        "002 over 003": list(zip(by_both.context_ids or [], by_both.scores or [], strict=True)),
        "003": [(hit.id, hit.score) for hit in by_pipeline],
        "LangChain": [(one.id, one.metadata["score"]) for one in by_langchain],
    }
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_named_faces_by_meaning_find_the_same(docs, question):
    """Specification 000's three retrievers and specification 004's search by vector are the cosine
    of the Document.
    """
    expected = [
        (node.uid, node.score)
        for node in Retriever(docs, "FineChunk", "cosine", topk=TOP)(question)
    ]
    kinds = (Wiki18FAISSRetriever, ChromaRetriever, MilvusRetriever)
    found = {
        kind.__name__: of_rows(kind(docs, topk=TOP)({"query": question})["retrieval_results"])
        for kind in kinds
    }
    by_dify = GroupVector(docs, "FineChunk").search_by_vector(question, top_k=TOP)
    found["004"] = [(one.metadata["doc_id"], one.metadata["score"]) for one in by_dify]
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize("question", QUESTIONS)
def test_specification_004_divides_scores_by_words_by_the_best(docs, question):
    """The nodes are the same; its scores lie in [0, 1], which BM25's do not."""
    nodes = Retriever(docs, "FineChunk", "bm25_chinese", topk=TOP)(question)
    found = GroupVector(docs, "FineChunk").search_by_full_text(question, top_k=TOP)
    best = nodes[0].score
    assert [(one.metadata["doc_id"], one.metadata["score"]) for one in found] == [
        (node.uid, pytest.approx(node.score / best)) for node in nodes
    ]


def test_the_answer_is_of_the_same_contexts(docs):
    """What interface V2 has a pipeline's model read is, letter by letter, what the pipeline's own
    answer reads.
    """
    read = []

    def model(prompt):
        read.append(prompt)
        return "八十度 [1]。"

    pipeline = RAGPipeline(retriever=Retriever(docs, "FineChunk", "cosine"), generator=model)
    rag = PipelineRAG(pipeline, top_k=TOP)
    contexts = rag.retrieve_with_metadata(QUESTIONS[0]).contexts
    assert (
        rag.generate(QUESTIONS[0], contexts) == pipeline.sync.answer(QUESTIONS[0], top_k=TOP).text
    )
    assert [text for text in contexts if text in read[0]] == contexts
    assert [text for text in contexts if text in read[1]] == contexts
