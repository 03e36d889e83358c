"""What every splitter promises of any text: places, nothing lost, sizes, overlaps, order, whole
characters.
"""

from __future__ import annotations

import itertools
import json
import re
from contextlib import nullcontext, suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, SentenceSplitter
from lazyrag.errors import TransformError
from lazyrag.text.structure import html_tags, html_text
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import (
    CharacterSplitter,
    CodeSplitter,
    HTMLSplitter,
    JSONSplitter,
    MarkdownSplitter,
    RecursiveSplitter,
    SectionSplitter,
    SemanticSplitter,
    SentenceWindow,
    TokenSplitter,
    XMLSplitter,
    YAMLSplitter,
)
from lazyrag.transforms.base import run_transform

UTF8 = token_counters["utf8"]


class Words:
    """Counts words and cannot fit: splitters have to search."""

    name = "words"

    def count(self, text: str) -> int:
        """Words in a text."""
        return len(text.split())


def _vector(text):
    """Some direction that depends on the text and nothing else."""
    return [1 + len(text) % 5, sum(map(ord, text)) % 7, text.count("茶")]


def _semantic(size, overlap, counter):
    return SemanticSplitter(
        _vector, size, threshold=0.1, window=0, min_size=size // 3, counter=counter
    )


SPLITTERS = {
    "character": lambda size, overlap, counter: CharacterSplitter(
        "\n\n", size, overlap, counter=counter
    ),
    "code": lambda size, overlap, counter: CodeSplitter(
        size, overlap, language="python", counter=counter
    ),
    "code, C#": lambda size, overlap, counter: CodeSplitter(
        size, overlap, language="csharp", counter=counter
    ),
    "code by lines": lambda size, overlap, counter: CodeSplitter(size, overlap, counter=counter),
    "comma": lambda size, overlap, counter: CharacterSplitter("，", size, overlap, counter=counter),
    "html": lambda size, overlap, counter: HTMLSplitter(size, overlap, counter=counter),
    "langchain": lambda size, overlap, counter: RecursiveSplitter(
        ["\n\n", "\n", " ", ""], size, overlap, keep_separator=True, counter=counter
    ),
    "markdown": lambda size, overlap, counter: MarkdownSplitter(size, overlap, counter=counter),
    "recursive": lambda size, overlap, counter: RecursiveSplitter(
        ("\n\n", "\n", "。", " "), size, overlap, counter=counter
    ),
    "semantic": _semantic,
    "by function": lambda size, overlap, counter: RecursiveSplitter(
        [lambda text: text.split("。"), "\n"], size, overlap, counter=counter
    ),
    "section": lambda size, overlap, counter: SectionSplitter(size, overlap, counter=counter),
    "sentence": lambda size, overlap, counter: SentenceSplitter(size, overlap, counter=counter),
    "token": lambda size, overlap, counter: TokenSplitter(size, overlap, counter=counter),
}
WITHOUT_OVERLAP = {"semantic"}

# A text is made of characters as people see them, so where it may be cut is known without the
# package's rules.
WHOLES = [
    "\r\n",
    "e\u0301",  # a letter and a combining mark
    "o\u0323\u0302",
    "ب\u064e",  # Arabic with a vowel mark
    "か\u3099",  # kana and a voiced mark
    "👨‍👩‍👧‍👦",  # joined by ZWJ
    "👩🏽‍🔬",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🇨🇳",
    "\u1112\u1161\u11ab",  # a Hangul syllable in parts
    "👍🏽",
]
RUNS = [
    "茶",
    "绿茶很好。",
    "他走了，然后",
    "お茶は熱い。",
    "コーヒー、",
    "차를 마신다. ",
    "한국어",
    "الشاي أخضر. ",
    "مرحبا؟ ",
    "Dr. Li left. ",
    "word ",
    "tea,",
    "3.14",
    "x" * 30,
    "🍵",
    "…",
    "!!! ",
    "\n",
    "\n\n",
    "\t",
    "\u3000",
    " ",
]
MARKUP = [
    "<p>",
    "</p>",
    '<a title="x > y">',
    "<h2>茶</h2>",
    "<br/>",
    "# Tea\n",
    "```\n",
    "def f():\n",
    "    return 1\n",
    "}\n",
]


def _characters(pieces):
    """The pieces as characters as people see them: a whole stays whole, the others fall apart."""
    return [one for piece in pieces for one in ([piece] if piece in WHOLES else piece)]


plain = st.lists(st.sampled_from(WHOLES) | st.sampled_from(RUNS), max_size=40).map(_characters)
marked = st.lists(
    st.sampled_from(WHOLES) | st.sampled_from(RUNS) | st.sampled_from(MARKUP), max_size=40
).map(_characters)
sizes = st.integers(1, 30).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))
counters = st.sampled_from([UTF8, Words()])
each_splitter = pytest.mark.parametrize("name", SPLITTERS)


def _split(name, text, sizes, counter):
    size, overlap = sizes
    return run_transform(SPLITTERS[name](size, overlap, counter), DocNode(text=text))


@pytest.mark.sample(3)
@each_splitter
@given(marked, sizes, counters)
def test_chunks_stand_where_they_say_and_nothing_is_lost(name, characters, sizes, counter):
    """The text at each span is the chunk's; spans go forward; what is in none of them is white
    space.
    """
    text = "".join(characters)
    done = 0
    previous = -1
    for draft in _split(name, text, sizes, counter):
        start, end = draft.span
        assert text[start:end] == draft.content
        assert previous < start
        assert end > done
        assert not text[done:start].strip()
        previous, done = start, end
    assert not text[done:].strip()


@pytest.mark.sample(3)
@each_splitter
@given(marked, sizes, counters)
def test_chunks_keep_to_the_size_and_neighbours_to_the_overlap(name, characters, sizes, counter):
    """In tokens of the chosen counter; only a single character may have more than fit."""
    text = "".join(characters)
    spans = [draft.span for draft in _split(name, text, sizes, counter)]
    for start, end in spans:
        assert counter.count(text[start:end]) <= sizes[0] or end - start == 1
    for (_, done), (start, _) in itertools.pairwise(spans):
        assert counter.count(text[start:done]) <= (0 if name in WITHOUT_OVERLAP else sizes[1])


@pytest.mark.slow
@each_splitter
@given(marked, sizes, counters)
def test_characters_as_people_see_them_are_not_cut(name, characters, sizes, counter):
    """No combining mark, joined emoji, flag, syllable or line end is torn, unless that alone does
    not fit.
    """
    text = "".join(characters)
    positions = [0, *itertools.accumulate(map(len, characters))]
    torn = {
        inside: text[at:upto]
        for at, upto in itertools.pairwise(positions)
        for inside in range(at + 1, upto)
    }
    for draft in _split(name, text, sizes, counter):
        for position in draft.span:
            assert position not in torn or counter.count(torn[position]) > sizes[0]


@pytest.mark.sample(2)
@each_splitter
@given(plain, sizes, counters)
def test_a_chunk_split_again_is_itself(name, characters, sizes, counter):
    """What fits stays whole, with all that was read of it."""
    for draft in _split(name, "".join(characters), sizes, counter):
        again = _split(name, draft.content, sizes, counter)
        if counter.count(draft.content) <= sizes[0]:
            assert [one.content for one in again] == [draft.content]


@pytest.mark.sample(3)
@each_splitter
@given(st.text(max_size=60), sizes)
def test_any_unicode_is_split(name, text, sizes):
    """Control characters, lone marks and lone surrogates as well."""
    drafts = _split(name, text, sizes, UTF8)
    covered = {at for draft in drafts for at in range(*draft.span)}
    assert all(at in covered for at, character in enumerate(text) if not character.isspace())


@given(plain, st.integers(0, 3), st.integers(0, 3))
def test_windows_lose_nothing(characters, before, after):
    """Sentences with windows cover the text, in order, and each stands in its window."""
    text = "".join(characters)
    drafts = run_transform(SentenceWindow(before, after), DocNode(text=text))
    done = 0
    for draft in drafts:
        assert draft.span[0] >= done
        assert not text[done : draft.span[0]].strip()
        assert draft.content in draft.metadata["window"]
        done = draft.span[1]
    assert not text[done:].strip()


@given(marked, st.integers(1, 30), counters)
def test_the_text_of_html_keeps_what_readers_see(characters, size, counter):
    """Chunks of text only have all the characters that the whole page's text has, and keep to the
    size.
    """
    text = "".join(characters)
    chunks = [
        one.content
        for one in run_transform(
            HTMLSplitter(size, text_only=True, counter=counter), DocNode(text=text)
        )
    ]
    assert _ink("".join(chunks)) == _ink(html_text(text))
    assert all(counter.count(one) <= size or len(one) == 1 for one in chunks)


@given(marked, st.integers(12, 40))
def test_tags_that_fit_are_not_cut(characters, size):
    """No chunk of HTML begins or ends inside a tag, which are all shorter than a chunk."""
    text = "".join(characters)
    inside = {
        at
        for tag in html_tags(text)
        for at in range(tag.start + 1, tag.end)
        if tag.end - tag.start < size
    }
    for draft in run_transform(HTMLSplitter(size), DocNode(text=text)):
        assert not inside.intersection(draft.span)


json_texts = st.lists(st.sampled_from([*WHOLES, *RUNS, '"', "\\", "😀"]), max_size=8).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | json_texts,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(["a", "茶", "a b", "'"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values, st.integers(4, 40), st.sampled_from([None, 2]), st.booleans())
def test_pieces_of_json_are_json(value, size, indent, ascii_only):
    """Each chunk is JSON again, fits, and says where it stands; leaves come in order and all of
    them.
    """
    source = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    drafts = run_transform(JSONSplitter(size), DocNode(text=source))
    found = []
    for draft in drafts:
        assert UTF8.count(draft.content) <= size
        assert draft.span is None or source[slice(*draft.span)] == draft.content
        assert draft.metadata["path"].startswith("$")
        found += _leaves(json.loads(draft.content))
        again = [
            one.content for one in run_transform(JSONSplitter(size), DocNode(text=draft.content))
        ]
        assert again == [draft.content]
    assert _joined(found) == _joined(_leaves(value))


@given(json_values, st.integers(1, 40), counters)
def test_lines_of_json_keep_every_leaf(value, size, counter):
    """Each text, number and literal is there, in order; no chunk is above the size."""
    source = json.dumps(value, ensure_ascii=False)
    drafts = run_transform(JSONSplitter(size, form="lines", counter=counter), DocNode(text=source))
    assert all(counter.count(one.content) <= size or len(one.content) == 1 for one in drafts)
    position = 0
    whole = _ink("".join(draft.content for draft in drafts))
    for leaf in _leaves(value):
        for character in _ink(leaf if isinstance(leaf, str) else json.dumps(leaf)):
            position = whole.find(character, position) + 1
            assert position


@given(
    st.lists(
        st.sampled_from([*RUNS, *MARKUP, "<script>a < b</script>", "<STYLE>p {}</STYLE >"]),
        max_size=30,
    ),
    sizes,
)
def test_scripts_and_styles_are_in_no_chunk(pieces, sizes):
    """All else is, in order; a chunk has its span unless one was cut from its middle."""
    text, rest = (
        "".join(pieces),
        "".join(piece for piece in pieces if not piece.startswith(("<script", "<STYLE"))),
    )
    drafts = run_transform(HTMLSplitter(sizes[0], 0), DocNode(text=text))
    assert _ink("".join(draft.content for draft in drafts)) == _ink(rest)
    assert all(text[slice(*draft.span)] == draft.content for draft in drafts if draft.span)
    assert all(draft.span for draft in drafts) or rest != text


elements = st.recursive(
    st.sampled_from([*WHOLES, *RUNS]),
    lambda inner: st.tuples(st.sampled_from("ab"), st.lists(inner, max_size=5)),
    max_leaves=25,
)


def _xml(one):
    if isinstance(one, str):
        return one
    name, inner = one
    return f"<{name}>{''.join(map(_xml, inner))}</{name}>" if inner else f"<{name}/>"


structured = st.one_of(
    st.tuples(
        st.just(YAMLSplitter),
        st.tuples(json_values, st.sampled_from([None, False]), st.booleans()).map(
            lambda one: yaml.safe_dump(
                one[0], default_flow_style=one[1], allow_unicode=one[2], width=30
            )
        ),
    ),
    st.tuples(
        st.just(XMLSplitter),
        st.lists(elements, max_size=6).map(lambda inner: _xml(("root", inner))),
    ),
)


@given(structured, sizes, counters)
def test_yaml_and_xml_are_covered_by_chunks_that_fit(given_text, sizes, counter):
    """Spans are right, go forward, lose no ink, hold the size and the overlap, and name a path."""
    splitter, text = given_text
    size, overlap = sizes
    done = previous = 0
    for draft in run_transform(splitter(size, overlap, counter=counter), DocNode(text=text)):
        start, end = draft.span
        assert text[start:end] == draft.content
        assert counter.count(draft.content) <= size or len(draft.content) == 1
        assert previous <= start <= done < end or not text[done:start].strip()
        assert counter.count(text[start:done]) <= overlap
        assert draft.metadata.get("path", "$")[0] in "$/"
        previous, done = start, end
    assert not text[done:].strip()


@given(
    st.text(max_size=80),
    st.sampled_from([JSONSplitter, XMLSplitter, YAMLSplitter, HTMLSplitter, CodeSplitter]),
)
def test_any_text_is_split_or_refused(text, splitter):
    """A clear error for what is malformed; HTML and code take any text."""
    always = splitter in (HTMLSplitter, CodeSplitter)
    with nullcontext() if always else suppress(TransformError):
        assert run_transform(splitter(10), DocNode(text=text)) is not None


@given(marked, st.integers(1, 30), counters)
def test_separators_can_be_left_out(characters, size, counter):
    """All but separators is there, in order; no chunk ends with one."""
    text = "".join(characters)
    splitter = RecursiveSplitter(["。", "，"], size, 0, keep_separator=False, counter=counter)
    done = 0
    for draft in run_transform(splitter, DocNode(text=text)):
        assert not text[done : draft.span[0]].strip("。，\u3000 \t\r\n")
        assert not draft.content.endswith(("。", "，"))
        done = draft.span[1]


def _ink(text):
    return re.sub(r"\s", "", text)


def _leaves(value):
    """The texts, numbers and literals in a value; of an empty container, itself."""
    if isinstance(value, dict) and value:
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, list) and value:
        return [leaf for one in value for leaf in _leaves(one)]
    return [value]


def _joined(leaves):
    """Leaves as one text, for which it does not matter where texts are cut."""
    return "".join(one if isinstance(one, str) else json.dumps(one) for one in leaves)


class Counted:
    """The counter of bytes without its way to fit; it notes how much it counts."""

    name = "utf8"

    def __init__(self):
        self.characters = 0

    def count(self, text: str) -> int:
        """A third of the bytes."""
        self.characters += len(text)
        return UTF8.count(text)


@pytest.mark.parametrize(
    "kind", [SentenceSplitter, SectionSplitter, RecursiveSplitter, TokenSplitter]
)
@given(
    st.lists(
        st.sampled_from([*"aé 茶。.!,\n👩", "Green tea. ", "绿茶。", "\n\n", " " * 40, "x" * 90]),
        max_size=60,
    ),
    st.integers(1, 40),
    st.integers(0, 39),
)
def test_a_counter_that_only_counts_gives_the_same_chunks(kind, parts, size, overlap):
    """Guessing where a chunk ends changes nothing about where it ends."""
    text, overlap = "".join(parts), min(overlap, size - 1)
    expected = kind(chunk_size=size, chunk_overlap=overlap, counter="utf8").split(text)
    assert kind(chunk_size=size, chunk_overlap=overlap, counter=Counted()).split(text) == expected


@pytest.mark.parametrize(
    "sentence", ["Green tea is steeped at 80 degrees. ", "绿茶用八十度的水冲泡。"]
)
def test_a_text_is_counted_a_few_times(sentence):
    """Halving by characters counted it 25 times."""
    counter, text = Counted(), sentence * 500
    assert len(SentenceSplitter(256, 50, counter=counter).split(text)) > 10
    assert counter.characters < 6 * len(text)
