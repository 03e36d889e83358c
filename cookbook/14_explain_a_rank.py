"""Explain a rank: why is this passage first, and where is the one that should be?

A visitor asks how hot the water should be. The answer is in a table of the shop's brewing guide,
but not ranked first. So look at the stages, find the missing passage by its uid, improve the
retrieval step by step, and see what each step did. LAZYRAG_EMBED_MODEL names a folder with a real
embedding model.
"""

import json
import math
from pathlib import Path

from embedding import embedding_model

from lazyrag import Document, HybridRetriever, Reranker, RetrievalChain, Retriever, explain
from lazyrag.retrieval import MMR, Windows

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How hot should water for green tea be?"


docs = Document(CORPUS, embed=embedding_model())
wanted = next(
    node
    for node in docs.get_nodes("FineChunk", filters={"file_name": ["brewing-guide.html"]})
    if "Qingshan Maojian | 3 g" in node.text
)

# 1. Keyword search, explained. The table has a column per stage; here there is one.
by_keyword = Retriever(docs, "FineChunk", similarity="bm25", topk=2)
print(by_keyword.explain(QUESTION))

# 2. Where is the passage with the answer? Its true rank comes from ranking all passages.
reason = by_keyword.why_not(wanted.uid, QUESTION)
print(f"\nWhere is {wanted.path} {wanted.number}?\n{reason}")

# 3. Hybrid search. The contributions in brackets add up to the fused score.
hybrid = HybridRetriever(Retriever(docs, "FineChunk"), by_keyword, topk=3)
fused = explain(hybrid, QUESTION)
print(f"\n{fused}")

# 4. A chain: passages with a temperature, diversified, each with the passage after it.
chain = RetrievalChain(
    hybrid,
    Reranker("KeywordFilter", required_keys=["°C"]),
    MMR(lam=0.8, topk=4),
    Windows(before=0, after=1),
    topk=4,
    fetch=50,
)
explanation = chain.explain(QUESTION)
print(f"\n{explanation}")
print(f"\nIn one line:\n{explanation[0]}")

# 5. Where are the passage with the answer, and the one that keyword search ranked first?
found = chain.why_not(wanted.uid, QUESTION)
winner = by_keyword(QUESTION)[0]
fate = chain.why_not(winner.uid, QUESTION)
print(f"\nWhere is {wanted.path} {wanted.number} now?\n{found}")
print(f"Where is {winner.path} {winner.number}?\n{fate}")

# 6. A filter that excludes the answer is named, with the value of the passage.
filtered = by_keyword.why_not(wanted.uid, QUESTION, filters={"file_type": [".pdf", ".docx"]})
print(f"\nAnd with a filter?\n{filtered}")

# 7. The explanation as JSON, for a log or a page.
record = json.loads(explanation.to_json())
print(f"\nAs JSON: {len(explanation.to_json())} characters, {', '.join(record)}")

assert (reason.stage, reason.cause, reason.rank) == ("bm25", "depth", 8)
assert reason.score == by_keyword(QUESTION, topk=8)[-1].score
assert all(math.fsum(hit.contributions.values()) == hit.score for hit in fused)

assert [hit.node for hit in explanation] == chain(QUESTION)
[merged] = [hit.node for hit in explanation if wanted.uid in hit.node.merged_from]
assert "Qingshan Maojian | 3 g | 80 °C" in merged.text
assert found.cause == "merged"
assert (fate.stage, fate.cause) == ("Windows", "merged")
assert filtered.cause == "filter"
assert filtered.message.endswith("its file_type is 'text/html'.")
assert [hit["uid"] for hit in record["hits"]] == [hit.uid for hit in explanation]
