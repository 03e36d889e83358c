"""Small to big: search small chunks, return large ones. Parents and children, auto-merge, windows
of neighbours.

A small chunk is found precisely and says too little; a large one says enough and is found badly.
The tree of node groups has both, and four methods lead from one to the other. No configuration, no
model.
"""

from pathlib import Path

from lazyrag import Document, Retriever
from lazyrag.retrieval import auto_merge
from lazyrag.transforms import Rule, Segmentation

CORPUS = Path(__file__).resolve().parent / "corpus"
SNAKE, LAMP = "被毒蛇咬伤以后怎么送医院？", "茶园里的杀虫灯一个晚上应该开多久？"


def show(title, nodes):
    """Print nodes: score, location, the beginning of the text."""
    print(f"\n{title}")
    for node in nodes:
        score = "     " if node.score is None else f"{node.score:5.2f}"
        text = " ".join(node.text.split())
        print(
            f"  {score}  {node.path} [{node.location}] {len(node.text)} characters: {text[:40]}..."
        )


docs = Document(CORPUS)

# A rule makes two groups: paragraphs packed into parents of up to 300 tokens, each split into
# children of up to 60.
rule = Rule(
    Segmentation(300, 0, "\n\n"),
    pre_processing_rules=["remove_extra_spaces"],
    parent_mode="paragraph",
    subchunk_segmentation=Segmentation(60, 0, "。"),
)
part = rule.create_groups(docs, "part")

# 1. Search children, return their parents.
children = Retriever(docs, part.child, similarity="bm25_chinese", topk=3)(SNAKE)
parents = Retriever(docs, part.child, similarity="bm25_chinese", topk=3, target=part.parent)(SNAKE)
show(f"{SNAKE} Children found:", children)
show("... and their parents:", parents)

# 2. The same with the complete document as parent: for short documents that only make sense as a
# whole.
whole_rule = Rule(parent_mode="full-doc", subchunk_segmentation=Segmentation(60, 0, "。"))
whole = whole_rule.create_groups(docs, "whole")
documents = Retriever(docs, whole.child, similarity="bm25_chinese", topk=3, target=whole.parent)(
    SNAKE
)
show("... or the complete document:", documents)

# 3. Auto-merge: a parent if half of its children were found, otherwise single children.
hits = Retriever(docs, part.child, similarity="bm25_chinese", topk=12)(LAMP)
merged = auto_merge(hits, ratio=0.5, up_to=part.parent)
show(f"{LAMP} Twelve children, some replaced by their parent:", merged)

# 4. A window: the best child with its neighbours, as one text. It may cross the bounds of a parent.
window = docs.window(hits[0], before=1, after=2, merge=True)
show("The best child with its neighbours:", [window])

assert "抗蛇毒血清" in parents[0].text
assert all(child.parent in parents for child in children)
assert [parent.score for parent in parents] == sorted(
    {*[node.score for node in parents]}, reverse=True
)
assert documents[0].text == documents[0].root.text
assert documents[0].path == parents[0].path

lifted = [node for node in merged if node.merged_from]
assert lifted
assert all(node.group == part.parent for node in lifted)
assert sum(len(node.merged_from) or 1 for node in merged) == len(hits)
assert all(2 * len(node.merged_from) >= len(node.children[part.child]) for node in lifted)

assert "三个小时" in window.text
assert len(window.merged_from) == 4
assert window.source.text[window.span[0] : window.span[1]] == window.text
