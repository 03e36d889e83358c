"""Six node groups over one folder: paragraphs, sentences, summaries, keywords and numbers, all in one tree.

The six groups of the specification's example, line by line. Two of them ask a large language model there; the models
here are stand-ins of a few lines, so that the script runs without one: `summary_llm` returns the first sentence,
`keyword_llm` the most frequent terms. With a real model only those two functions change.
"""

# ruff: noqa: PLW0108  the specification writes its lambdas out

from collections import Counter
from pathlib import Path

from lazyrag import DocNode, Document, Retriever
from lazyrag.text.analyzers import chinese_terms
from lazyrag.text.sentences import sentence_spans

CORPUS = Path(__file__).resolve().parent / "corpus"


def summary_llm(text: str) -> str:
    """Stands in for a model that sums a text up: its first sentence."""
    start, end = sentence_spans(text)[0]
    return text[start:end]


def keyword_llm(text: str) -> list[str]:
    """Stands in for a model that finds keywords: the most frequent terms of two characters or more, three at most."""
    counts = Counter(term for term in chinese_terms(text) if len(term) > 1 and not term.isdigit())
    return [term for term, _ in counts.most_common(3)]


docs = Document(CORPUS)
docs.create_node_group(name="block", transform=lambda d: d.split("\n"))
docs.create_node_group(name="doc-summary", transform=lambda d: summary_llm(d))
docs.create_node_group(name="sentence", transform=lambda b: b.split("。"), parent="block")
docs.create_node_group(name="block-summary", transform=lambda b: summary_llm(b), parent="block")
docs.create_node_group(name="keyword", transform=lambda b: keyword_llm(b), parent="block")
docs.create_node_group(name="sentence-len", transform=lambda s: len(s), parent="sentence")

# A group is built when something asks for it, here all six at once.
docs.activate_group("block", "doc-summary", "sentence", "block-summary", "keyword", "sentence-len")
sizes = {name: len(docs.get_nodes(name)) for name in ("block", "doc-summary", "sentence", "block-summary", "keyword")}
lengths = [node.content for node in docs.get_nodes("sentence-len")]
print(sizes, f"sentence-len: {len(lengths)}, from {min(lengths)} to {max(lengths)} characters")


def show_tree(node: DocNode, depth: int = 0) -> None:
    """Print a node and all beneath it."""
    print(f"{'    ' * depth}{node.group} #{node.number}: {' '.join(node.text.split())[:60]}")
    for children in node.children.values():
        for child in children:
            show_tree(child, depth + 1)


# Search single sentences. A sentence answers precisely, but says little of what stands around it.
question = "被毒蛇咬伤以后怎么送医院？"
by_sentence = Retriever(docs, "sentence", similarity="bm25_chinese", topk=5)
sentences = by_sentence(question)
print(f"\n{question}")
for node in sentences:
    print(f"  {node.score:5.2f}  {node.path}  {node.text}")

# The tree around the best one: its block, the block's other children, the whole document above.
block = sentences[0].parent
print(f"\nThe block of the best sentence stands in {block.path} [{block.place}]:")
show_tree(block)
print(f"Above it: {block.parent.group}, {len(block.parent.text)} characters")

# With target= the hits come back as nodes of another group: searched in sentences, answered in blocks.
to_block = Retriever(docs, "sentence", similarity="bm25_chinese", topk=5, target="block")
blocks = to_block(question)
print(f"\nThe {len(sentences)} sentences stand in {len(blocks)} blocks:")
for node in blocks:
    print(f"  {node.score:5.2f}  {node.path}  [{node.place}]  {node.text[:30]}...")

# Blocks and summaries are no ancestors of one another: target= goes over the group above both.
summaries = Retriever(docs, "sentence", similarity="bm25_chinese", topk=1, target="doc-summary")(question)

assert sizes["doc-summary"] == 20  # one for each file, also for a PDF of several pages
assert all(isinstance(length, int) for length in lengths)
assert [node.content for node in sentences[0].children["sentence-len"]] == [len(sentences[0].text)]
assert set(block.children) == {"sentence", "block-summary", "keyword"}
assert blocks[0] == block
assert len(blocks) == len({node.parent.uid for node in sentences})
assert block.parent == block.root == sentences[0].root
assert [node.path for node in summaries] == [block.path]
