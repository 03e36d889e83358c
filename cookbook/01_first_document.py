"""A first Document: load a folder, search it in English and in Chinese, see the location of each
hit.

The folder is cookbook/corpus: 20 files of a fictional tea cooperative, txt, md, html, docx and pdf,
in Chinese and English. Nothing is configured, no model is needed, nothing is downloaded.
"""

import json
from pathlib import Path

from lazyrag import Condition, DocNode, Document, Reranker, Retriever

HERE = Path(__file__).resolve().parent


def show(title: str, nodes: list[DocNode]) -> None:
    """Print ranked nodes: score, file, location, first words."""
    print(f"\n{title}")
    for rank, node in enumerate(nodes, start=1):
        print(
            f"  {rank}. {node.score:5.2f}  {node.path}  [{node.location}]  {' '.join(node.text.split())[:60]}..."
        )


# A Document reads nothing yet. The first query loads the files and builds the group that it
# searches.
docs = Document(HERE / "corpus")
before = docs.last_report

# One retriever per language: "bm25" stems English words, "bm25_chinese" segments Chinese text.
english = Retriever(docs, "FineChunk", similarity="bm25", topk=3)
chinese = Retriever(docs, "FineChunk", similarity="bm25_chinese", topk=3)

chimney = english("How often is the chimney of the dryer cleaned?")
show("How often is the chimney of the dryer cleaned?", chimney)

snake = chinese("被毒蛇咬伤以后，送到医院路上要花多长时间？")
show("被毒蛇咬伤以后，送到医院路上要花多长时间？", snake)

# The report lists every file.
report = docs.last_report
print(f"\nReport: {report}")

# A hit knows its location: its characters in the text of the file, which is the root of its tree.
best = snake[0]
start, end = best.span
print(
    f"\nThe best hit is chunk {best.number} of {best.path}, characters {start} to {end} of {len(best.root.text)}."
)

# Filters narrow the search. A mapping lists the allowed values of a field, a Condition compares.
in_pdf = english("cleaned every week", filters={"file_type": [".pdf"]})
show("cleaned every week, only in PDF files", in_pdf)
large = english("tea", filters=Condition("file_size", ">", 30_000))
show("tea, only in files of more than 30,000 bytes", large)

# A Reranker reorders or drops hits. This one keeps the nodes that contain a keyword.
candidates = english("damage to the spring buds", topk=10)
with_frost = Reranker("KeywordFilter", required_keys=["frost"])
frosty = with_frost(candidates, query="damage to the spring buds")
show(
    f"damage to the spring buds: the {len(frosty)} of {len(candidates)} hits that contain frost",
    frosty,
)

# How good is keyword search? 24 questions have known answers. Large chunks contain them more often.
questions = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
wide = {
    "en": Retriever(docs, "CoarseChunk", similarity="bm25", topk=5),
    "zh": Retriever(docs, "CoarseChunk", similarity="bm25_chinese", topk=5),
}
answered = 0
for one in questions:
    hits = [node for node in wide[one["language"]](one["question"]) if node.path == one["file"]]
    answered += any(one["answer"] in " ".join(node.text.split()) for node in hits)
print(f"\n{answered} of {len(questions)} known answers are in the top 5 chunks.")

assert before is None
assert (len(report.added), report.failed) == (20, ())
assert (chimney[0].path, chimney[0].location) == (
    "workshop/machine-maintenance-manual.pdf",
    "pages 2-3",
)
assert (best.path, best.location) == (
    "handbook/员工安全手册.docx",
    "四、野外作业 > 4.2 蛇与马蜂, line 24",
)
assert best.root.text[start:end] == best.text
assert "35分钟" in best.text
assert {Path(node.path).suffix for node in in_pdf} == {".pdf"}
assert {node.path for node in large} == {"reports/2024-annual-report.docx"}
assert {node.path for node in frosty} >= {
    "reports/2024-annual-report.docx",
    "garden/weather-log-2024.txt",
}
assert answered >= 22
