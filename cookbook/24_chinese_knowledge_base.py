"""中文知识库：自定义词典与同义词、混合检索、带引用的回答，并用已知答案的问题比较改动前后。

A Chinese knowledge base: words of the trade and synonyms, hybrid search, cited answers, and
questions with known answers that show what a change does. LAZYRAG_EMBED_MODEL names a folder with
an embedding model that reads Chinese, such as multilingual-e5-small; without it, pairs of letters
take its place.
"""

import json
from pathlib import Path

from embedding import embedding_model

from lazyrag import Document, HybridRetriever, RAGPipeline, Retriever
from lazyrag.text import register_chinese_analyser
from lazyrag.text.analyzers import chinese_terms

HERE = Path(__file__).resolve().parent
QUESTIONS = [
    one
    for one in json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
    if one["language"] == "zh"
]

# 1. 词典：默认分词不认识的行业术语；同义词：用户的说法与文件的说法不同。
WORDS = ["青山毛尖", "老丛红茶", "杀青", "单芽"]
SYNONYMS = {"工钱": ["工价", "工资"], "采茶工": ["采摘工"], "退货": ["退换货", "退款"]}
analyse = register_chinese_analyser("zh-tea", words=WORDS, synonyms=SYNONYMS)
print("默认：", chinese_terms("青山毛尖的杀青温度"))
print("词典：", analyse.terms("青山毛尖的杀青温度"))

# 2. 一个 Document，中英文文件都在其中；索引记住它用的是哪个分词器。
docs = Document(HERE / "corpus", embed=embedding_model())
plain = Retriever(docs, "MediumChunk", similarity="bm25_chinese", topk=5)
tea = Retriever(docs, "MediumChunk", similarity="bm25_chinese", analyser="zh-tea", topk=5)
hybrid = HybridRetriever(Retriever(docs, "MediumChunk", topk=50), tea, topk=5, weights=[0.3, 0.7])


def hits_of(retriever):
    """已知答案的问题中，有多少个在前五条结果里找到了正确的文件。"""
    return sum(
        one["file"] in [node.path for node in retriever(one["question"])] for one in QUESTIONS
    )


for name, retriever in (("关键词，默认", plain), ("关键词，词典", tea), ("混合检索", hybrid)):
    print(f"{name}：{hits_of(retriever)} / {len(QUESTIONS)}")

# 3. 同义词：文件里写的是“工价”，用户问的是“工钱”。
query = "采茶工的工钱"
for name, retriever in (("默认", plain), ("词典", tea)):
    print(f"\n{query}（{name}）")
    for node in retriever(query, topk=3):
        print(f"  {node.score:5.2f}  {node.path}，{node.location}")

# 4. 摘自原文的回答。使用模型：generator=HttpChatModel(url, "qwen3")
pipeline = RAGPipeline(retriever=tea)
answer = pipeline.sync.answer("采摘工采一公斤单芽能拿多少钱？")
print(f"\n{answer.query}\n  {answer.text}")
for citation in answer.citations:
    print(f"  [{citation.index}] {citation.source}，{citation.location}")

assert "青山毛尖" in analyse.terms("青山毛尖的杀青温度")
assert set(analyse.terms("工钱")) & set(analyse.terms("工价"))
assert tea(query)[0].path == "茶园/采摘须知.txt"
assert hits_of(tea) >= hits_of(plain)
assert hits_of(hybrid) >= len(QUESTIONS) - 2
assert answer.citations[0].source == "茶园/采摘须知.txt"
