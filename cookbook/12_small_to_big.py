"""Small to big: find by small pieces, read large ones. Parents and children, auto-merge, windows of neighbours.

A small piece is found precisely and says too little; a large one says enough and is found badly. Here the tree of node
groups has both, and four ways lead from one to the other. Nothing has to be configured, no model is called.
"""

from pathlib import Path

from lazyrag import Document, Retriever, Rule, Segmentation, auto_merge

CORPUS = Path(__file__).resolve().parent / "corpus"
SNAKE, LAMP = "被毒蛇咬伤以后怎么送医院？", "茶园里的杀虫灯一个晚上应该开多久？"


def show(title, nodes):
    """Print nodes: score, place, the beginning of the text."""
    print(f"\n{title}")
    for node in nodes:
        score = "     " if node.score is None else f"{node.score:5.2f}"
        text = " ".join(node.text.split())
        print(f"  {score}  {node.path} [{node.place}] {len(node.text)} characters: {text[:40]}...")


docs = Document(CORPUS)

# A rule writes the two groups: paragraphs packed into parents of up to 300 tokens, each cut into children of up to 60.
rule = Rule(
    Segmentation(300, 0, "\n\n"),
    pre_processing_rules=["remove_extra_spaces"],
    parent_mode="paragraph",
    subchunk_segmentation=Segmentation(60, 0, "。"),
)
part = rule.create_groups(docs, "part")

# 1. Search children, read their parents.
children = Retriever(docs, part.child, similarity="bm25_chinese", topk=3)(SNAKE)
parents = Retriever(docs, part.child, similarity="bm25_chinese", topk=3, target=part.parent)(SNAKE)
show(f"{SNAKE} Found in children of a part:", children)
show("... read in the part itself:", parents)

# 2. The same, with the whole document as the parent: for short documents that only make sense as a whole.
whole_rule = Rule(parent_mode="full-doc", subchunk_segmentation=Segmentation(60, 0, "。"))
whole = whole_rule.create_groups(docs, "whole")
documents = Retriever(docs, whole.child, similarity="bm25_chinese", topk=3, target=whole.parent)(SNAKE)
show("... or in the whole document:", documents)

# 3. Auto-merge: a parent only where half of its children were found, and single children elsewhere.
hits = Retriever(docs, part.child, similarity="bm25_chinese", topk=12)(LAMP)
merged = auto_merge(hits, ratio=0.5, up_to=part.parent)
show(f"{LAMP} Twelve children, of which some became their parent:", merged)

# 4. A window: the best child between its neighbours, as one text. It may reach over the parents' bounds.
window = docs.window(hits[0], before=1, after=2, merge=True)
show("The best of them between its neighbours:", [window])

assert "抗蛇毒血清" in parents[0].text
assert all(child.parent in parents for child in children)
assert [parent.score for parent in parents] == sorted({*[node.score for node in parents]}, reverse=True)
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
