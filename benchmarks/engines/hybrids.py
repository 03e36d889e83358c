"""Hybrid search of others as their documentation has it, with vectors that are given: texts and
queries are looked up in a table, so that all have the same model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from lexical import version_of


class Hybrid:
    """What all of them share: the texts and their vectors."""

    def load(self, folder: str, topk: int) -> None:
        """Read texts, queries and vectors, and build the index."""
        data = json.loads(Path(folder, "texts.json").read_text("utf-8"))
        self.topk = topk
        self.texts: list[str] = data["texts"]
        vectors = np.load(Path(folder, "vectors.npy"))
        words = [*self.texts, *data["queries"]]
        self.vectors = dict(zip(words, vectors.astype("float32"), strict=True))
        self.build()

    def build(self) -> None:
        """Build the index."""
        raise NotImplementedError

    def rank(self, queries: list[str]) -> list[list[int]]:
        """For each query the numbers of the best texts."""
        return [self.search(query) for query in queries]

    def search(self, query: str) -> list[int]:
        """The numbers of the best texts."""
        raise NotImplementedError


class LlamaIndex(Hybrid):
    """QueryFusionRetriever over a vector index and BM25, by reciprocal ranks."""

    def versions(self) -> dict[str, str]:
        """Of its packages."""
        return version_of("llama-index-core", "llama-index-retrievers-bm25")

    def build(self) -> None:
        """Index the nodes."""
        from llama_index.core import VectorStoreIndex
        from llama_index.core.embeddings import BaseEmbedding
        from llama_index.core.llms import MockLLM
        from llama_index.core.retrievers import QueryFusionRetriever
        from llama_index.core.schema import TextNode
        from llama_index.retrievers.bm25 import BM25Retriever

        vectors = self.vectors

        class Table(BaseEmbedding):
            def _get_text_embedding(self, text: str) -> list[float]:
                return list(map(float, vectors[text]))

            def _get_query_embedding(self, query: str) -> list[float]:
                return list(map(float, vectors[query]))

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return self._get_query_embedding(query)

        nodes = [
            TextNode(text=text, id_=str(number), embedding=list(map(float, vectors[text])))
            for number, text in enumerate(self.texts)
        ]
        index = VectorStoreIndex(nodes, embed_model=Table())
        self.retriever = QueryFusionRetriever(
            [
                index.as_retriever(similarity_top_k=self.topk),
                BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=self.topk),
            ],
            llm=MockLLM(),
            mode="reciprocal_rerank",
            similarity_top_k=self.topk,
            num_queries=1,
            use_async=False,
        )

    def search(self, query: str) -> list[int]:
        """The numbers of the best texts."""
        return [int(hit.node.node_id) for hit in self.retriever.retrieve(query)]


class Haystack(Hybrid):
    """Both in-memory retrievers, joined by reciprocal ranks."""

    def versions(self) -> dict[str, str]:
        """Of its package."""
        return version_of("haystack-ai")

    def build(self) -> None:
        """Write the documents."""
        from haystack import Document
        from haystack.components.joiners import DocumentJoiner
        from haystack.components.retrievers.in_memory import (
            InMemoryBM25Retriever,
            InMemoryEmbeddingRetriever,
        )
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        store = InMemoryDocumentStore(embedding_similarity_function="cosine")
        store.write_documents(
            [
                Document(
                    id=str(number), content=text, embedding=list(map(float, self.vectors[text]))
                )
                for number, text in enumerate(self.texts)
            ]
        )
        self.words = InMemoryBM25Retriever(store, top_k=self.topk)
        self.meaning = InMemoryEmbeddingRetriever(store, top_k=self.topk)
        self.joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=self.topk)

    def search(self, query: str) -> list[int]:
        """The numbers of the best texts."""
        words = self.words.run(query=query)["documents"]
        meaning = self.meaning.run(query_embedding=list(map(float, self.vectors[query])))
        joined = self.joiner.run(documents=[words, meaning["documents"]])
        return [int(document.id) for document in joined["documents"]]


class LangChain(Hybrid):
    """EnsembleRetriever of BM25Retriever and a vector store, with equal weights."""

    def versions(self) -> dict[str, str]:
        """Of its packages."""
        return version_of("langchain-classic", "langchain-community")

    def build(self) -> None:
        """Fill both retrievers."""
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever
        from langchain_core.documents import Document
        from langchain_core.embeddings import Embeddings
        from langchain_core.vectorstores import InMemoryVectorStore

        vectors = self.vectors

        class Table(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return [list(map(float, vectors[text])) for text in texts]

            def embed_query(self, text: str) -> list[float]:
                return list(map(float, vectors[text]))

        documents = [
            Document(page_content=text, metadata={"number": number})
            for number, text in enumerate(self.texts)
        ]
        words = BM25Retriever.from_documents(documents, k=self.topk)
        store = InMemoryVectorStore.from_documents(documents, Table())
        meaning = store.as_retriever(search_kwargs={"k": self.topk})
        self.retriever = EnsembleRetriever(retrievers=[words, meaning], weights=[0.5, 0.5])

    def search(self, query: str) -> list[int]:
        """The numbers of the best texts."""
        hits = self.retriever.invoke(query)
        return [int(hit.metadata["number"]) for hit in hits[: self.topk]]


class Txtai(Hybrid):
    """An Embeddings with ``hybrid=True``."""

    def versions(self) -> dict[str, str]:
        """Of its package."""
        return version_of("txtai")

    def build(self) -> None:
        """Index the texts."""
        from txtai import Embeddings

        self.embeddings: Any = Embeddings(
            method="external",
            transform=lambda texts: np.stack([self.vectors[text] for text in texts]),
            hybrid=True,
        )
        self.embeddings.index(list(enumerate(self.texts)))

    def search(self, query: str) -> list[int]:
        """The numbers of the best texts."""
        return [int(number) for number, _ in self.embeddings.search(query, self.topk)]
