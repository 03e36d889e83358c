# The names of the package, for type checkers and editors.

from lazyrag.retrieval.bm25_retriever import BM25Retriever as BM25Retriever
from lazyrag.retrieval.dated import AsOfRetriever as AsOfRetriever
from lazyrag.retrieval.dated import Recency as Recency
from lazyrag.retrieval.explain import Explanation as Explanation
from lazyrag.retrieval.hybrid import FeedbackRetriever as FeedbackRetriever
from lazyrag.retrieval.hybrid import HybridRetriever as HybridRetriever
from lazyrag.retrieval.hybrid import RetrievalMethod as RetrievalMethod
from lazyrag.retrieval.hybrid import retriever_for as retriever_for
from lazyrag.retrieval.inferring import FieldRetriever as FieldRetriever
from lazyrag.retrieval.parts import PartsRetriever as PartsRetriever
from lazyrag.retrieval.postprocessors import MMR as MMR
from lazyrag.retrieval.postprocessors import AutoMerge as AutoMerge
from lazyrag.retrieval.postprocessors import Distinct as Distinct
from lazyrag.retrieval.postprocessors import RetrievalChain as RetrievalChain
from lazyrag.retrieval.postprocessors import ScoreThreshold as ScoreThreshold
from lazyrag.retrieval.postprocessors import Windows as Windows
from lazyrag.retrieval.postprocessors import auto_merge as auto_merge
from lazyrag.retrieval.query_rewriting import MultiQueryRetriever as MultiQueryRetriever
from lazyrag.retrieval.query_rewriting import QueryRewriter as QueryRewriter
from lazyrag.retrieval.reranker import Reranker as Reranker
from lazyrag.retrieval.reranker import register_reranker as register_reranker
from lazyrag.retrieval.reranker import rerankers as rerankers
from lazyrag.retrieval.retriever import Retriever as Retriever
from lazyrag.retrieval.similarity import register_similarity as register_similarity
from lazyrag.retrieval.similarity import similarities as similarities
