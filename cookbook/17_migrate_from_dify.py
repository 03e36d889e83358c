"""Code written for Dify's data structures, on this package's engine: only the imports change.

Parts 1, 3 and 4 are the examples of specification 004; the others add files, a data set and a query.
"""

import tempfile
from pathlib import Path

from lazyrag.interop.dify import (
    CacheEmbedding,
    Document,
    ExtractSetting,
    KeywordSetting,
    RerankRunnerFactory,
    RetrievalMethod,
    Rule,
    Segmentation,
    Vector,
    VectorSetting,
    Weights,
    extract,
    retrieve,
    transform,
)

CORPUS = Path(__file__).resolve().parent / "corpus"


def embed_query(text):
    """Count some characters as a vector; replace it with a model."""
    return [float(text.count(character)) for character in "茶水温泡火电机药蛇山"] + [0.1]


# 1. Document
# 创建文档对象
doc = Document(
    page_content="Dify 是一个开源的 LLM 应用开发平台。",
    metadata={"source": "README.md", "title": "Dify 简介", "doc_id": "uuid-1234", "dataset_id": "dataset-5678"},
)
# 访问字段
print(doc.page_content)  # "Dify 是一个开源的 LLM 应用开发平台。"
print(doc.metadata["source"])  # "README.md"
# 比较相等性
doc2 = Document(page_content="Dify 是一个开源的 LLM 应用开发平台。", metadata={"source": "README.md"})
print(doc == doc2)  # False（metadata 不同）

# 2. From files to a data set: ExtractSetting, Rule, Vector.create
files = sorted(CORPUS.rglob("*.md"))
documents = [one for file in files for one in extract(ExtractSetting("upload_file", upload_file=file))]
chunks = transform(documents, Rule(segmentation=Segmentation(max_tokens=200, chunk_overlap=20)), "dataset-5678")
print(f"{len(documents)} documents, {len(chunks)} chunks")

# 3. Weights
# 创建权重配置（70% 向量，30% 关键词）
weights = Weights(
    vector_setting=VectorSetting(
        vector_weight=0.7, embedding_provider_name="openai", embedding_model_name="text-embedding-3-small"
    ),
    keyword_setting=KeywordSetting(keyword_weight=0.3),
)
# 计算加权分数
vector_score, keyword_score = 0.8, 0.4
final_score = (
    vector_score * weights.vector_setting.vector_weight + keyword_score * weights.keyword_setting.keyword_weight
)

# 4. RetrievalMethod
# 判断检索方法是否需要向量化
query, method = "杀青的锅温是多少？", "hybrid_search"
if RetrievalMethod.is_support_semantic_search(method):
    query_vector = embed_query(query)

# 5. The same query, on the engine
with (
    tempfile.TemporaryDirectory() as folder,
    CacheEmbedding(embed_query, Path(folder, "embeddings.db"), identity="toy:characters") as embeddings,
    Vector("dataset-5678", ["source"], embeddings, vector_type="map", uri=str(Path(folder, "dataset.db"))) as vector,
):
    vector.create(chunks)
    reranker = RerankRunnerFactory.create_rerank_runner("weighted_score", weights, embeddings)
    found = retrieve(vector, query, method, top_k=3, reranker=reranker)

for one in found:
    print(f"{one.metadata['score']:.3f}  {one.metadata['source']}  {one.page_content[:30]!r}")

assert doc != doc2
assert abs(final_score - 0.68) < 1e-9
assert found[0].metadata["source"] == "绿茶炒制工艺.md"
assert "杀青" in found[0].page_content
