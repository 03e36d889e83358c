"""Splitters by separators, tokens, headings and sentences: what every one of them promises, and
what each is for.
"""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, Retriever
from lazyrag.errors import ConfigError, TransformError
from lazyrag.groups.fingerprint import fingerprint
from lazyrag.text.sentences import is_boundary, sentence_spans
from lazyrag.text.structure import markdown_blocks
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import (
    CharacterSplitter,
    MarkdownSplitter,
    RecursiveSplitter,
    SentenceWindow,
    TokenSplitter,
)
from lazyrag.transforms.base import run_transform

UTF8 = token_counters["utf8"]
MAKERS = {
    "character": lambda size, overlap: CharacterSplitter("\n\n", size, overlap),
    "comma": lambda size, overlap: CharacterSplitter("，", size, overlap),
    "recursive": lambda size, overlap: RecursiveSplitter(("\n\n", "\n", "。", " "), size, overlap),
    "token": TokenSplitter,
}
PIECES = [
    "茶",
    "Tea. ",
    "\n",
    "\n\n",
    "，",
    "。",
    "绿茶很好。",
    "e\u0301",
    "👩🏽‍🔬",
    "🇨🇳",
    "\r\n",
    " ",
    "word ",
    "한국어 ",
    "مرحبا ",
    "が",
    "x" * 30,
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=60)
sizes = st.integers(1, 30).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size // 2)))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@given(texts, sizes)
def test_no_character_is_lost_and_none_is_torn(make, text, sizes):
    """Spans cover any text in order; sizes and overlaps are kept; no character as people see it is
    cut if it fits.
    """
    size, overlap = sizes
    splitter = make(size, overlap)
    spans = splitter.split(text)
    assert [start for start, _ in spans[:1]] + [end for _, end in spans[-1:]] == (
        [0, len(text)] if text else []
    )
    for (_, done), (start, end) in itertools.pairwise([(0, 0), *spans]):
        assert start <= done < end
        assert UTF8.count(text[start:done]) <= overlap
    for start, end in spans:
        assert UTF8.count(text[start:end]) <= size or end - start == 1
        if size >= 10:  # every whole one of the pieces fits
            assert (is_boundary(text, start) and is_boundary(text, end)) or _long_cluster(
                text, start, end, size
            )
    assert make(size, overlap).split(text) == spans


def _long_cluster(text, start, end, size):
    """Whether a character as people see it, at one of the ends, is larger than a chunk."""
    for position in (start, end):
        low = next(at for at in range(position, -1, -1) if is_boundary(text, at))
        high = next(at for at in range(position, len(text) + 1) if is_boundary(text, at))
        if UTF8.count(text[low:high]) > size:
            return True
    return False


@given(texts, st.integers(1, 60))
def test_a_chunk_ends_with_the_coarsest_piece_that_fits(text, size):
    """Where a paragraph's end fits in, a recursive chunk ends with the last one that does; else
    with a line's.
    """
    splitter = RecursiveSplitter(("\n\n", "\n"), size, 0)
    for start, end in splitter.split(text):
        for pattern in ("(?:\n\n)+", "\n+"):
            ends = [
                match.end()
                for match in re.finditer(pattern, text)
                if is_boundary(text, match.end())
            ]
            fits = [
                one
                for one in [*ends, len(text)]
                if one > start and UTF8.count(text[start:one]) <= size
            ]
            if fits:
                assert end == fits[-1]
                break


@pytest.mark.parametrize(
    ("splitter", "text", "expected"),
    [
        (CharacterSplitter("|", 2, 0), "ab|cd|ef", ["ab|cd|", "ef"]),
        (CharacterSplitter("\n", 3, 0), "a\n\n\nb", ["a\n\n\nb"]),
        (CharacterSplitter("\n", 2, 0), "ab\n\n\ncd", ["ab\n\n\n", "cd"]),
        (CharacterSplitter("，", 4, 0), "绿茶，红茶，", ["绿茶，", "红茶，"]),
        (CharacterSplitter("，", 4, 1), "绿茶，红茶，", ["绿茶，", "，红茶，"]),
        (RecursiveSplitter(["。"], 4, 0), "绿茶。红茶，白茶。", ["绿茶。", "红茶，", "白茶。"]),
        (TokenSplitter(2, 0), "绿茶好 tea time", ["绿茶", "好 ", "tea ", "time"]),
        (TokenSplitter(4, 2), "one two three four", ["one two ", "two three ", "three four"]),
    ],
)
def test_chunks_by_hand(splitter, text, expected):
    """What the rules give on texts that one can check by eye."""
    assert [text[start:end] for start, end in splitter.split(text)] == expected


TEXT = """Before all.

# Tea

It keeps. It is green.

```python
# no heading

print("tea")
```

| kind | heat |
|---|---|
| green | 80 |
| black | 95 |

Water
-----

Soft water.

### 泡茶

绿茶用八十度的水。
"""


def test_markdown_is_split_at_its_headings():
    """Each section is a chunk with the path of its headings; code in fences has none; the text is
    all there.
    """
    nodes = run_transform(MarkdownSplitter(400), DocNode(text=TEXT))
    assert [(node.metadata.get("heading"), node.content.split("\n")[0]) for node in nodes] == [
        (None, "Before all."),
        ("Tea", "# Tea"),
        ("Tea > Water", "Water"),
        ("Tea > Water > 泡茶", "### 泡茶"),
    ]
    assert "".join(node.content for node in nodes) == TEXT
    assert all(TEXT[node.span[0] : node.span[1]] == node.content for node in nodes)


def test_blocks_of_a_long_section_stay_whole_where_they_fit():
    """Code and tables are one chunk if they fit, and are cut between lines if not; a heading is
    never alone.
    """
    chunks = [node.content for node in run_transform(MarkdownSplitter(22), DocNode(text=TEXT))]
    assert '```python\n# no heading\n\nprint("tea")\n```\n\n' in chunks
    assert "| kind | heat |\n|---|---|\n| green | 80 |\n| black | 95 |\n\n" in chunks
    assert "# Tea\n\nIt keeps. It is green.\n\n" in chunks
    small = [node.content for node in run_transform(MarkdownSplitter(10), DocNode(text=TEXT))]
    assert "| kind | heat |\n|---|---|\n" in small
    assert "# Tea\n\nIt keeps. " in small


@given(
    st.lists(
        st.sampled_from(
            ["# A\n", "## 茶\n", "```\n", "~~~\n", "a\n", "| b |\n", "\n", "茶。好。", "===\n", "x"]
        ),
        max_size=25,
    ),
    sizes,
)
def test_markdown_of_any_shape_is_all_there(lines, sizes):
    """Blocks and chunks cover the text without a gap; chunks keep to the size, overlap only within
    a section.
    """
    text = "".join(lines)
    assert "".join(text[block.start : block.end] for block in markdown_blocks(text)) == text
    size, overlap = sizes
    position = 0
    for section, spans in MarkdownSplitter(size, overlap).split(text):
        assert section.start == position
        for start, end in spans:
            assert section.start <= start <= position < end <= section.end
            assert UTF8.count(text[start:end]) <= size or end - start == 1
            assert UTF8.count(text[start:position]) <= overlap
            position = end
        assert position == section.end
    assert position == len(text)


def test_a_sentence_carries_its_window():
    """Found by its own words, it brings what stands around it."""
    docs = Document()
    docs.add_texts({"tea.txt": "先采摘。再萎凋！……\n然后揉捻。最后干燥。"})
    docs.create_node_group("window", transform=SentenceWindow, before=1, after=1)
    nodes = docs.get_nodes("window")
    assert [node.text for node in nodes] == ["先采摘。", "再萎凋！……\n", "然后揉捻。", "最后干燥。"]
    [found] = Retriever(docs, "window", similarity="bm25_chinese", topk=1)("揉捻")
    assert found.metadata["window"] == "再萎凋！……\n然后揉捻。最后干燥。"


@given(texts, st.integers(0, 3), st.integers(0, 3))
def test_windows_hold_their_sentences(text, before, after):
    """Sentences cover the text but for blank ones; each stands in its window, which is a stretch of
    the text.
    """
    nodes = list(SentenceWindow(before, after)(DocNode(text=text)))
    assert "".join("".join(node.text.split()) for node in nodes) == "".join(text.split())
    assert all(
        node.text in node.metadata["window"] and node.metadata["window"] in text for node in nodes
    )
    assert len(nodes) <= max(1, len(sentence_spans(text)))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: CharacterSplitter(""), "separator must be"),
        (lambda: CharacterSplitter(3), "separator must be"),
        (lambda: RecursiveSplitter("\n"), r"separators must be a list"),
        (lambda: RecursiveSplitter(["", "\n"]), "separators must be a list"),
        (lambda: CharacterSplitter(keep_separator="middle"), "keep_separator must be"),
        (lambda: TokenSplitter(0), "chunk_size"),
        (lambda: MarkdownSplitter(10, 10), "chunk_overlap"),
        (lambda: SentenceWindow(-1), "before"),
        (lambda: TokenSplitter(chunk_sise=3), "chunk_sise.*chunk_size"),
    ],
)
def test_wrong_arguments_are_told(make, told):
    """The error names the argument and what is allowed."""
    with pytest.raises((ConfigError, TypeError), match=told):
        make()


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("end", ["one, ", "two, ", "six"]),
        ("start", ["one", ", two", ", six"]),
        (True, ["one", ", two", ", six"]),
        (False, ["one", "two", "six"]),
    ],
)
def test_a_separator_stays_where_it_is_told(keep, expected):
    """At the end of its piece, at the start of the next one, or nowhere at the end of a chunk."""
    text = "one, two, six"
    for splitter in (
        CharacterSplitter(", ", 2, 0, keep_separator=keep),
        RecursiveSplitter([", "], 2, 0, keep_separator=keep),
    ):
        assert [text[start:end] for start, end in splitter.split(text)] == expected


def test_the_separators_of_langchain():
    """An empty separator at the end cuts at characters, and never inside one as people see it."""
    splitter = RecursiveSplitter(["\n\n", "\n", " ", ""], 4, 0)
    text = "One two\n\nthree\nfour fivesixseveneight 👍🏽"
    assert [text[start:end] for start, end in splitter.split(text)] == [
        "One two\n\n",
        "three\n",
        "four ",
        "fivesixseven",
        "eight ",
        "👍🏽",
    ]


def test_functions_among_separators():
    """A function returns the pieces of its text; its code is part of the group's fingerprint."""

    def clauses(text):
        return re.split(r";\s*", text)

    text = "green; black\nred; white"
    splitter = RecursiveSplitter(["\n", clauses], 3, 0)
    assert [text[start:end] for start, end in splitter.split(text)] == [
        "green; ",
        "black\n",
        "red; ",
        "white",
    ]
    other = RecursiveSplitter(["\n", lambda text: [text]], 3, 0)
    assert fingerprint(splitter).value != fingerprint(other).value
    with pytest.raises(TransformError, match="must return pieces of its text"):
        run_transform(RecursiveSplitter([str.upper], 3, 0), DocNode(text="green tea"))
    with pytest.raises(TransformError, match="must return pieces of its text, in order; got None"):
        run_transform(RecursiveSplitter([lambda text: None], 3, 0), DocNode(text="green tea"))


def test_whatever_decides_about_chunks_is_in_the_identity():
    """Two that give other chunks are other definitions."""
    made = [
        CharacterSplitter("\n"),
        CharacterSplitter("|"),
        RecursiveSplitter(["\n"]),
        RecursiveSplitter(["\n", "|"]),
        RecursiveSplitter(["\n", ""]),
        RecursiveSplitter(["\n"], keep_separator=True),
        RecursiveSplitter(["\n"], keep_separator=False),
        TokenSplitter(10),
        TokenSplitter(10, 1),
        MarkdownSplitter(10),
        MarkdownSplitter(10, 1),
        SentenceWindow(1),
        SentenceWindow(1, 1),
    ]
    assert len({one.identity for one in made}) == len(made)
