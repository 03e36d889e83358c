"""Draw the diagrams of the documentation into docs/images: SVG, for light and dark pages, in
English and Chinese.

    python tools/make_diagrams.py [--check]

The tree and the bars show real values: the nodes of a sample file, and the fusion of two rankings
of docs/hybrid.md.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from pathlib import Path

import house

from lazyrag import LAZY_ROOT_NAME, Document
from lazyrag.ranking.fusion import rrf
from lazyrag.text.sentences import sentence_spans

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
FONT = "system-ui, 'Segoe UI', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
STYLE = """
svg{color-scheme:light dark;--back:#fff;--line:#8a94a3;--text:#1c2430;--soft:#5a6472;
--a:#dbe7ff;--b:#d9f2e3;--c:#fdeccb;
--d:#f1e4fb;--strong:#2f5fd0;--second:#14804a}
@media(prefers-color-scheme:dark){svg{--back:#14171d;--line:#79828f;--text:#e7eaf0;--soft:#aab3c0;
--a:#22345c;--b:#1c4530;--c:#4f3d14;
--d:#40295a;--strong:#86a8ff;--second:#62cf94}}
.back{fill:var(--back)}.a{fill:var(--a)}.b{fill:var(--b)}.c{fill:var(--c)}.d{fill:var(--d)}
.box{stroke:var(--line)}.line{stroke:var(--line);fill:none;stroke-width:1.5}.head{fill:var(--line)}
.strong{fill:var(--strong)}.second{fill:var(--second)}
text{fill:var(--text);font-size:14px}.soft{fill:var(--soft);font-size:12px}.bold{font-weight:600}
.mid{text-anchor:middle}
"""


class Drawing:
    """An SVG that is drawn piece by piece.

    Args:
        width: Its width.
        height: Its height.
        title: What it shows, in one sentence.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.pieces = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            f'role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<rect class="back" width="{width}" height="{height}" rx="10"/>',
            '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
            '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write a line."""
        self.pieces.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "a"
    ) -> None:
        """Draw a box with lines in its middle: the first is bold, the others are soft."""
        self.pieces.append(
            f'<rect class="box {kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
        )
        top = y + height / 2 - (len(lines) - 1) * 9 + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + number * 18, line, "mid soft" if number else "mid bold")

    def arrow(self, *points: tuple[float, float], head: bool = True) -> None:
        """Draw a line through points, with a head at its end."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        end = ' marker-end="url(#m)"' if head else ""
        self.pieces.append(f'<path class="line" d="M{path}"{end}/>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a bar."""
        self.pieces.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"/>'
        )

    def svg(self) -> str:
        """The whole picture."""
        return "\n".join([*self.pieces, "</svg>", ""])


def tree(zh: bool) -> str:
    """The groups of one sample file, each node as wide as its text is long."""
    drawing = Drawing(
        760, 350, "一个文件的节点组：一棵树" if zh else "The node groups of one file: a tree"
    )
    name = "茶园/采摘须知.txt" if zh else "handbook/tools-and-vehicles.txt"
    labels = {
        "root": ("整个文件", "the whole file", "a"),
        "CoarseChunk": ("读给模型", "to read", "b"),
        "MediumChunk": ("默认检索", "searched by default", "b"),
        "FineChunk": ("精确定位", "to pinpoint", "b"),
        "paragraph": ("自己的组", "a group of yours", "c"),
        "sentence": ("paragraph 的子组", "made from paragraph", "d"),
    }
    with Document(ROOT / "cookbook" / "corpus" / name) as docs:
        docs.create_node_group(
            "paragraph", transform=lambda text: text.replace("\r", "").split("\n\n")
        )
        docs.create_node_group(
            "sentence",
            transform=lambda text: [text[start:end] for start, end in sentence_spans(text)],
            parent="paragraph",
        )
        for row, (group, (chinese, english, kind)) in enumerate(labels.items()):
            y = 24 + row * 50
            nodes = docs.get_nodes(LAZY_ROOT_NAME if group == "root" else group)
            lengths = [len(node.text) for node in nodes]
            left = 60 if group == "sentence" else 40 if row else 20
            drawing.text(left, y + 14, group, "bold")
            drawing.text(left, y + 31, f"{len(nodes)} · {chinese if zh else english}", "soft")
            x = 230.0
            for length in lengths:
                width = 510 * length / sum(lengths)
                drawing.pieces.append(
                    f'<rect class="box {kind}" x="{x:.1f}" y="{y}" width="{max(width - 3, 1):.1f}" height="34" rx="4"/>'
                )
                x += width
            if not row:
                drawing.text(485, y + 22, name, "mid bold")
            else:
                top = 24 + 4 * 50 + 38 if group == "sentence" else 62
                side = 48 if group == "sentence" else 28
                drawing.arrow((side, top), (side, y + 10), (left - 4, y + 10), head=False)
        hint = (
            "检索任何一层；parent 与 children 通向上下各层"
            if zh
            else "Search any level; parent and children lead up and down."
        )
        drawing.text(380, 336, hint, "mid soft")
    return drawing.svg()


def file_life(zh: bool) -> str:
    """From a changed file to live builds."""
    drawing = Drawing(
        760,
        300,
        "一个文件的一生：从变化到可以检索"
        if zh
        else "The life of a file: from a change to searchable chunks",
    )
    steps = (
        [
            ("变化", "大小、时间、哈希"),
            ("加载器", "文本与位置"),
            ("转换", "文本块"),
            ("向量与词项", "按内容缓存"),
            ("存储", "节点与向量"),
        ]
        if zh
        else [
            ("change", "size, time, hash"),
            ("loader", "text + locations"),
            ("transforms", "chunks"),
            ("vectors, terms", "cached by content"),
            ("stores", "nodes, vectors"),
        ]
    )
    for number, (head, soft) in enumerate(steps):
        x = 20 + number * 148
        drawing.box(x, 30, 128, 60, head, soft, kind="aabbc"[number])
        if number:
            drawing.arrow((x - 20, 60), (x - 2, 60))
    drawing.box(
        500,
        140,
        240,
        60,
        *(
            ("账本", "一个事务使新版本生效")
            if zh
            else ("ledger", "one transaction: the new build is live")
        ),
        kind="d",
    )
    drawing.arrow((676, 90), (676, 138))
    drawing.box(
        250,
        140,
        200,
        60,
        *(
            ("生效的版本", "此前一直是旧版本")
            if zh
            else ("live version", "until then the previous one")
        ),
        kind="c",
    )
    drawing.arrow((500, 170), (452, 170))
    drawing.box(
        20,
        140,
        190,
        60,
        *(("查询", "读一个快照") if zh else ("queries", "read one snapshot")),
        kind="a",
    )
    drawing.arrow((210, 170), (248, 170))
    lines = (
        (
            "程序在任何一步被终止：下次启动继续，已完成的部分不再重做。",
            "文件读取失败：记入报告并说明原因，旧版本仍可检索。",
        )
        if zh
        else (
            "Killed at any step: the next start continues and repeats nothing that was finished.",
            "A file that fails is reported with the reason; its previous version stays searchable.",
        )
    )
    for number, line in enumerate(lines):
        drawing.text(380, 244 + number * 24, line, "mid soft")
    return drawing.svg()


STEPS = (
    ("question", "rewrite, embed"),
    ("keyword search", "BM25 term index"),
    ("vector search", "exact or approximate"),
    ("fusion", "one ranking"),
    ("reranker", "a second model"),
    ("context", "within a token budget"),
    ("chat model", "writes"),
    ("answer", "with citations"),
)
CHINESE_STEPS = (
    ("问题", "改写、嵌入"),
    ("关键词检索", "BM25 词项索引"),
    ("向量检索", "精确或近似"),
    ("融合", "一个排名"),
    ("重排", "第二个模型"),
    ("上下文", "不超过 token 预算"),
    ("对话模型", "生成"),
    ("回答", "带引用"),
)


def query_life(zh: bool) -> str:
    """From a question to a cited answer."""
    drawing = Drawing(
        760,
        320,
        "一个查询的一生：从问题到带引用的回答"
        if zh
        else "The life of a query: from a question to a cited answer",
    )
    label = CHINESE_STEPS if zh else STEPS
    drawing.box(20, 70, 130, 60, *label[0], kind="a")
    drawing.box(200, 24, 170, 60, *label[1], kind="b")
    drawing.box(200, 116, 170, 60, *label[2], kind="b")
    drawing.box(420, 70, 130, 60, *label[3], kind="c")
    drawing.box(600, 70, 140, 60, *label[4], kind="c")
    drawing.arrow((150, 92), (198, 58))
    drawing.arrow((150, 108), (198, 142))
    drawing.arrow((370, 54), (418, 90))
    drawing.arrow((370, 146), (418, 110))
    drawing.arrow((550, 100), (598, 100))
    drawing.box(580, 210, 160, 60, *label[5], kind="d")
    drawing.box(390, 210, 140, 60, *label[6], kind="d")
    drawing.box(190, 210, 150, 60, *label[7], kind="a")
    drawing.arrow((670, 130), (670, 208))
    drawing.arrow((580, 240), (532, 240))
    drawing.arrow((390, 240), (342, 240))
    hint = (
        "所有步骤读同一个快照；explain() 给出每一步的名次和得分，why_not() 说明少了谁、为什么"
        if zh
        else "All steps read one snapshot. explain() shows each step's ranks and scores, why_not() what is missing."
    )
    drawing.text(380, 304, hint, "mid soft")
    return drawing.svg()


def fusion(zh: bool) -> str:
    """Reciprocal rank fusion of the two rankings of docs/hybrid.md, as bars."""
    vectors = [("doc1", 0.9), ("doc3", 0.8), ("doc2", 0.7)]
    words = [("doc2", 12.0), ("doc1", 7.5), ("doc4", 3.0)]
    drawing = Drawing(
        760,
        290,
        "RRF：每个排名对得分的贡献" if zh else "RRF: what each ranking contributes to the score",
    )
    for column, (title, ranking, kind) in enumerate(
        (
            ("向量检索" if zh else "vector search", vectors, "strong"),
            ("关键词检索" if zh else "keyword search", words, "second"),
        )
    ):
        x = 20 + column * 150
        drawing.bar(x, 20, 12, 12, kind)
        drawing.text(x + 18, 31, title, "bold")
        for rank, (uid, score) in enumerate(ranking, start=1):
            drawing.text(x, 40 + rank * 26, f"{rank}.  {uid}")
            drawing.text(x + 70, 40 + rank * 26, f"{score:g}", "soft")
    drawing.text(330, 31, "得分 = Σ 1 / (60 + 名次)" if zh else "score = Σ 1 / (60 + rank)", "bold")
    scale = 330 / max(score for _, score in rrf([vectors, words]))
    for row, (uid, score) in enumerate(rrf([vectors, words])):
        y = 52 + row * 44
        drawing.text(330, y + 18, uid)
        x = 380.0
        for ranking, kind in ((vectors, "strong"), (words, "second")):
            places = [rank for rank, (one, _) in enumerate(ranking, start=1) if one == uid]
            for rank in places:
                drawing.bar(x, y + 4, scale / (60 + rank) - 2, 20, kind)
                x += scale / (60 + rank)
        drawing.text(380, y + 38, f"{score:.5f}", "soft")
    hint = (
        "doc1 与 doc2 在两个排名中都有，因此领先；得分的单位不必可比"
        if zh
        else "doc1 and doc2 are in both rankings and lead; the scores need not be comparable."
    )
    drawing.text(380, 268, hint, "mid soft")
    return drawing.svg()


def versions(zh: bool) -> str:
    """What readers see while a new version of a document is written."""
    drawing = Drawing(
        760,
        290,
        "写入、切换与清理：读者看到旧版本或新版本"
        if zh
        else "Write, flip, purge: readers see one version or the other",
    )
    steps = (
        (
            ("写入", "新构建，写在旁边"),
            ("确认", "各存储已收到"),
            ("切换", "一个事务"),
            ("清理", "十秒之后"),
        )
        if zh
        else (
            ("write", "new builds beside"),
            ("acknowledge", "all stores"),
            ("flip", "one transaction"),
            ("purge", "after 10 s"),
        )
    )
    drawing.text(20, 62, "写入的程序" if zh else "writer", "bold")
    for number, step in enumerate(steps):
        drawing.box(120 + number * 160, 28, 140, 60, *step, kind="aadc"[number])
        if number:
            drawing.arrow((100 + number * 160, 58), (118 + number * 160, 58))
    drawing.text(20, 146, "查询" if zh else "queries", "bold")
    drawing.box(120, 116, 386, 50, "构建 7" if zh else "build 7", kind="b")
    drawing.box(514, 116, 226, 50, "构建 8" if zh else "build 8", kind="c")
    drawing.text(20, 222, "被终止之后" if zh else "after a kill", "bold")
    drawing.box(
        120,
        192,
        386,
        50,
        *(("构建 7 有效", "下次启动继续") if zh else ("build 7 is live", "the next start goes on")),
        kind="b",
    )
    drawing.box(
        514,
        192,
        226,
        50,
        *(
            ("构建 8 有效", "下次同步清理旧的")
            if zh
            else ("build 8 is live", "a later sync purges 7")
        ),
        kind="c",
    )
    drawing.arrow((510, 88), (510, 254), head=False)
    drawing.text(510, 274, "切换的提交" if zh else "the commit of the flip", "mid soft")
    return drawing.svg()


def layers(zh: bool) -> str:
    """Which package imports which, read from the code."""
    packages = sorted(house.RANKS, key=lambda name: house.RANKS[name])
    modules = house.read_package()
    imports = house.Imports()
    for module in modules.values():
        imports.add(module, modules)
    edges: set[tuple[str, str]] = set()
    for source, targets in imports.dependencies().items():
        edges.update((house.package_of(source), house.package_of(target)) for target in targets)
    cell = 17
    left = 104
    top = 92
    side = cell * len(packages)
    title = "哪个包导入哪个包" if zh else "Which package imports which"
    drawing = Drawing(left + side + 20, top + side + 40, title)
    for number, name in enumerate(packages):
        y = top + number * cell
        if number % 2 == 0:
            drawing.bar(left, y, side, cell, "a")
        drawing.pieces.append(
            f'<text class="soft" text-anchor="end" x="{left - 8}" y="{y + 13}">{name}</text>'
        )
        x = left + number * cell + 12
        drawing.pieces.append(
            f'<text class="soft" transform="translate({x:g} {top - 6:g}) rotate(-60)">{name}</text>'
        )
        for column, target in enumerate(packages):
            if column == number:
                drawing.bar(left + column * cell + 3, y + 3, cell - 6, cell - 6, "head")
            elif (name, target) in edges:
                drawing.bar(left + column * cell + 4, y + 4, cell - 8, cell - 8, "strong")
    hint = (
        "每行的包导入方块所在列的包；方块都在对角线右侧：导入只向下"
        if zh
        else "A row imports the columns with a square. All are right of the diagonal."
    )
    drawing.text(left + side / 2, top + side + 24, hint, "mid soft")
    return drawing.svg()


def which_retriever(zh: bool) -> str:
    """Questions from the top to the bottom, each with the call that a yes leads to."""
    rows = (
        (
            ("All matches, or how many?", "全部匹配，或数量？"),
            "docs.collect(query)",
            ("every passage with the words, counted", "含有这些词的每个段落，并计数"),
            "c",
        ),
        (
            ("Sums over rows of tables?", "对表格的行求和？"),
            "docs.tables.sql(statement)",
            ("rows with their cells as sources", "结果带有所依据的单元格"),
            "c",
        ),
        (
            ("No model, or only names and codes?", "没有向量模型，或只查名称和编号？"),
            'Retriever(…, "bm25_chinese")',
            ("keyword search, 0.5 ms", "关键词检索，0.5 毫秒"),
            "b",
        ),
        (
            ("Only other words for the same thing?", "只查意思相同、用词不同的内容？"),
            "Retriever(docs, group)",
            ("vector search, 6 ms", "向量检索，6 毫秒"),
            "a",
        ),
        (
            ("Must the first hit be right, slowly?", "第一条必须对，可以慢一些？"),
            "RetrievalChain.over(docs, group)",
            ("hybrid, feedback and reranker, 0.25 s", "混合检索、反馈与重排，0.25 秒"),
            "d",
        ),
    )
    drawing = Drawing(
        760, 450, "何时用哪种检索器" if zh else "Which retriever when: five questions, six calls"
    )
    yes, no = ("是", "否") if zh else ("yes", "no")
    for number, (question, call, gives, kind) in enumerate(rows):
        y = 20 + number * 72
        drawing.box(20, y, 330, 44, question[zh], kind="back")
        drawing.box(430, y - 3, 310, 50, call, gives[zh], kind=kind)
        drawing.arrow((350, y + 22), (428, y + 22))
        drawing.text(378, y + 16, yes, "soft")
        drawing.arrow((185, y + 44), (185, y + 70))
        drawing.text(194, y + 62, no, "soft")
    hybrid = "HybridRetriever.over(docs, group)"
    last = "docs.search(query)；混合检索，8 毫秒" if zh else "docs.search(query): hybrid, 8 ms"
    drawing.box(20, 380, 330, 50, hybrid, last)
    hint = (
        ("问句写出名称与年份时，", "docs.search 自动优先相应的文档")
        if zh
        else ("Where the question names a document,", "docs.search prefers it by itself.")
    )
    for number, line in enumerate(hint):
        drawing.text(585, 400 + number * 18, line, "mid soft")
    return drawing.svg()


DIAGRAMS = {
    "layers": layers,
    "tree": tree,
    "file": file_life,
    "versions": versions,
    "query": query_life,
    "fusion": fusion,
    "which-retriever": which_retriever,
}


def main() -> int:
    """Write or check the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit with 1 if a picture is out of date",
    )
    is_check = parser.parse_args().check
    drawn = {
        IMAGES / f"{name}{suffix}.svg": draw(bool(suffix))
        for name, draw in DIAGRAMS.items()
        for suffix in ("", "-zh")
    }
    stale = [
        path
        for path, svg in drawn.items()
        if not path.exists() or path.read_text(encoding="utf-8") != svg
    ]
    for path in stale:
        if is_check:
            print(
                f"{path.name} is out of date. Run: python tools/make_diagrams.py", file=sys.stderr
            )
        else:
            path.write_text(drawn[path], encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
