"""Six node groups over one folder: paragraphs, sentences, summaries, keywords and numbers, all in
one tree.

The six groups of the specification's example, line by line. Two of them call a large language model
there; a few lines take its place here, so that the script runs offline: `summary_llm` returns the
first sentence, `keyword_llm` the most frequent terms. With a real model only those two functions
change.
"""

# ruff: noqa: PLW0108  the specification writes its lambdas out

from collections import Counter
from pathlib import Path

from lazyrag import DocNode, Document, Retriever
from lazyrag.text.analyzers import chinese_terms
from lazyrag.text.sentences import sentence_spans

CORPUS = Path(__file__).resolve().parent / "corpus"


def summary_llm(text: str) -> str:
    """Takes the place of a model that summarises: the first sentence."""
    start, end = sentence_spans(text)[0]
    return text[start:end]


def keyword_llm(text: str) -> list[str]:
    """Takes the place of a model that extracts keywords: the three most frequent terms of two or
    more characters.
    """
    counts = Counter(term for term in chinese_terms(text) if len(term) > 1 and not term.isdigit())
    return [term for term, _ in counts.most_common(3)]


docs = Document(CORPUS)
docs.create_node_group(name="block", transform=lambda d: d.split("\n"))
docs.create_node_group(name="doc-summary", transform=lambda d: summary_llm(d))
docs.create_node_group(name="sentence", transform=lambda b: b.split("。"), parent="block")
docs.create_node_group(name="block-summary", transform=lambda b: summary_llm(b), parent="block")
docs.create_node_group(name="keyword", transform=lambda b: keyword_llm(b), parent="block")
docs.create_node_group(name="sentence-len", transform=lambda s: len(s), parent="sentence")

# A group is built when it is first used; build all six now.
docs.activate_group("block", "doc-summary", "sentence", "block-summary", "keyword", "sentence-len")
sizes = {
    name: len(docs.get_nodes(name))
    for name in ("block", "doc-summary", "sentence", "block-summary", "keyword")
}
lengths = [int(node.get_text()) for node in docs.get_nodes("sentence-len")]
print(sizes, f"sentence-len: {len(lengths)}, from {min(lengths)} to {max(lengths)} characters")


def show_tree(node: DocNode, depth: int = 0) -> None:
    """Print a node and everything below it."""
    print(f"{'    ' * depth}{node.group} #{node.number}: {' '.join(node.text.split())[:60]}")
    for children in node.children.values():
        for child in children:
            show_tree(child, depth + 1)


# Search single sentences. A sentence is precise, but has little context.
question = "被毒蛇咬伤以后怎么送医院？"
by_sentence = Retriever(docs, "sentence", similarity="bm25_chinese", topk=5)
sentences = by_sentence(question)
print(f"\n{question}")
for node in sentences:
    print(f"  {node.score:5.2f}  {node.path}  {node.text}")

# The tree around the best one: its block, the other children of the block, the document above.
block = sentences[0].parent
print(f"\nThe block of the best sentence is in {block.path} [{block.location}]:")
show_tree(block)
print(f"Above it: {block.parent.group}, {len(block.parent.text)} characters")

# target= maps hits to nodes of another group: search sentences, return blocks.
to_block = Retriever(docs, "sentence", similarity="bm25_chinese", topk=5, target="block")
blocks = to_block(question)
print(f"\nThe {len(sentences)} sentences are in {len(blocks)} blocks:")
for node in blocks:
    print(f"  {node.score:5.2f}  {node.path}  [{node.location}]  {node.text[:30]}...")

# Sentences and summaries are on different branches: target= goes through their common ancestor
# group.
summaries = Retriever(docs, "sentence", similarity="bm25_chinese", topk=1, target="doc-summary")(
    question
)

assert sizes["doc-summary"] == 20  # one per file, also for a PDF with several pages
assert all(isinstance(length, int) for length in lengths)
assert [node.content for node in sentences[0].children["sentence-len"]] == [len(sentences[0].text)]
assert set(block.children) == {"sentence", "block-summary", "keyword"}
assert blocks[0] == block
assert len(blocks) == len({node.parent.uid for node in sentences})
assert block.parent == block.root == sentences[0].root
assert [node.path for node in summaries] == [block.path]
