"""The sentence splitter: what its chunks cover, how large they are, where they begin and end."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyrag import DocNode, SentenceSplitter
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.text.sentences import sentence_ends
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import TokenSplitter
from lazyrag.transforms.base import run_transform

UTF8 = token_counters["utf8"]


class Words:
    """Counts words and cannot fit: the splitter has to search."""

    name = "words"

    def count(self, text: str) -> int:
        """Words in a text."""
        return len(text.split())


# A text is generated as a list of characters as people see them, so where it may be cut is known
# without our rules.
WHOLES = [
    "\r\n",
    "e\u0301",
    "o\u0323\u0302",
    "👨‍👩‍👧‍👦",
    "👩🏽‍🔬",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🇨🇳",
    "\u1112\u1161\u11ab",
    "👍🏽",
]
PLAIN = [
    "茶",
    "叶",
    "绿",
    "a",
    "b",
    "Q",
    "7",
    "🍵",
    "。",
    "！",
    "？",
    "，",
    "；",
    "…",
    ".",
    "!",
    "?",
    ",",
    "(",
    ")",
    "“",
    "”",
    " ",
    "  ",
    "\n",
    "\t",
    "\u3000",
]
SPELT = [
    "Dr. ",
    "3.14",
    "tea ",
    "leaves ",
    "他走了。",
    "She left. ",
    "。。。",
    "!!! ",
    "\n\n",
    "，然后",
]


def _characters(pieces: list[str]) -> list[str]:
    """The pieces as characters as people see them: a whole stays whole, the others fall apart."""
    return [one for piece in pieces for one in ([piece] if piece in WHOLES else piece)]


_piece = st.sampled_from(WHOLES) | st.sampled_from(PLAIN) | st.sampled_from(SPELT)
_texts = st.lists(_piece, max_size=40).map(_characters)
_sizes = st.integers(1, 30).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(0, size // 2))
)
_counters = st.sampled_from([UTF8, Words()])


def _check(text: str, characters: list[str], splitter: SentenceSplitter) -> list[tuple[int, int]]:
    """Everything that the splitter promises of a text; returns the spans."""
    count, size, overlap = splitter.counter.count, splitter.chunk_size, splitter.chunk_overlap
    spans = splitter.split(text)
    if not text:
        assert spans == []
        return spans

    # They cover the text, in order.
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    for (before, done), (start, end) in itertools.pairwise(spans):
        assert before < start <= done < end
        # Neighbours share at most the overlap.
        assert count(text[start:done]) <= overlap

    positions = [0, *itertools.accumulate(map(len, characters))]
    cut = {
        inside: text[at:upto]
        for at, upto in itertools.pairwise(positions)
        for inside in range(at + 1, upto)
    }
    sentences = list(sentence_ends(text))
    done = 0
    for start, end in spans:
        # No chunk is too large, unless one character alone is.
        assert count(text[start:end]) <= size or end - start == 1
        # No character as people see it is cut, unless that alone does not fit.
        for position in (start, end):
            assert position not in cut or count(cut[position]) > size
        # It ends with a sentence where one fits in, with the overlap or without it, and with the
        # last one that fits.
        fits = [one for one in sentences if one > done and count(text[start:one]) <= size]
        alone = [one for one in sentences if one > done and count(text[done:one]) <= size]
        if fits or alone:
            assert end in sentences
            assert fits
            assert end == fits[-1]
        done = end
    return spans


@given(_texts, _sizes, _counters)
@example(["，", "茶", "👩🏽‍🔬", "叶"], (5, 1), UTF8)
def test_chunks_keep_every_promise_on_any_text(characters, sizes, counter):
    """Coverage, order, size, overlap, whole characters and whole sentences, for any text, sizes and
    counter.
    """
    size, overlap = sizes
    text = "".join(characters)
    splitter = SentenceSplitter(size, overlap, counter=counter)
    spans = _check(text, characters, splitter)
    assert SentenceSplitter(size, overlap, counter=counter).split(text) == spans


def _long_text(seed: int) -> list[str]:
    """About 6,000 characters of sentences, long and short, in both languages, with what else there
    is in texts.
    """
    rng = random.Random(seed)
    pieces: list[str] = []
    while len(pieces) < 3000:
        kind = rng.random()
        if kind < 0.4:
            pieces += [
                *rng.choices("茶叶绿山水春天人们采摘", k=rng.randint(1, 60)),
                rng.choice("。！？；，"),
            ]
        elif kind < 0.8:
            for _ in range(rng.randint(1, 30)):
                pieces += [
                    *rng.choices("abcdefghij", k=rng.randint(1, 9)),
                    rng.choice([" ", " ", " ", ", "]),
                ]
            pieces += [rng.choice([". ", "! ", "? ", " "])]
        elif kind < 0.9:
            pieces += rng.choices(WHOLES, k=rng.randint(1, 4))
        elif kind < 0.95:
            pieces += rng.choices(PLAIN, k=rng.randint(1, 40))
        else:
            pieces += ["\n\n"]
    return _characters(pieces)


@pytest.mark.parametrize(
    ("size", "overlap"), [(128, 12), (256, 25), (1024, 100), (64, 32), (20, 0)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_chunks_keep_every_promise_on_a_long_text(seed, size, overlap):
    """The sizes of the built-in groups, and others, on a long mixed text."""
    characters = _long_text(seed)
    spans = _check("".join(characters), characters, SentenceSplitter(size, overlap))
    assert len(spans) > 1


@pytest.mark.parametrize("seed", [3])
def test_chunks_keep_every_promise_with_a_counter_that_cannot_fit(seed):
    """A counter that only counts obeys the same bounds, found by searching."""
    characters = _long_text(seed)
    spans = _check("".join(characters), characters, SentenceSplitter(40, 8, counter=Words()))
    assert len(spans) > 10


@given(st.text(max_size=60), _sizes)
def test_any_unicode_is_split_without_loss(text, sizes):
    """Control characters, lone marks and lone surrogates as well: spans cover the text and keep to
    the size.
    """
    size, overlap = sizes
    spans = SentenceSplitter(size, overlap).split(text)
    position = 0
    for start, end in spans:
        assert start <= position < end
        assert UTF8.count(text[start:end]) <= size or end - start == 1
        position = end
    assert position == len(text)


@pytest.mark.parametrize(
    ("text", "size", "overlap", "chunks"),
    [
        ("他走了。她也走了。", 6, 0, ["他走了。", "她也走了。"]),
        ("他走了。她也走了。", 9, 0, ["他走了。她也走了。"]),
        ("One. Two. Three. Four.", 4, 0, ["One. Two. ", "Three. Four."]),
        ("One. Two. Three. Four.", 4, 2, ["One. Two. ", "Two. Three. ", "Four."]),
        ("第一句。第二句。第三句。", 8, 4, ["第一句。第二句。", "第二句。第三句。"]),
        ("第一句。第二句。第三句。", 8, 3, ["第一句。第二句。", "二句。第三句。"]),
        ("第一句。第二句。第三句。", 4, 2, ["第一句。", "第二句。", "第三句。"]),  # an overlap would break sentences
        ("他走了", 1, 0, ["他", "走", "了"]),
        ("一二，三四，五六", 3, 0, ["一二，", "三四，", "五六"]),
        ("one two three four five six seven", 6, 3, ["one two three ", "three four five ", "five six seven"]),
        ("one two three\nfour five six seven", 10, 0, ["one two three\nfour five six ", "seven"]),
        ("one two three\nfour five six seven", 8, 0, ["one two three\n", "four five six seven"]),
        ("好。\n\nYes! 👍", 4, 0, ["好。\n\n", "Yes! 👍"]),
        ("👍", 1, 0, ["👍"]),  # two tokens: one character alone is too large
        ("e\u0301e\u0301e\u0301", 1, 0, ["e\u0301", "e\u0301", "e\u0301"]),
        ("", 5, 2, []),
        (" \n ", 5, 2, [" \n "]),
    ],
)  # fmt: skip
def test_chunks_by_hand(text, size, overlap, chunks):
    """What the rules give on texts that one can check by eye."""
    assert [text[start:end] for start, end in SentenceSplitter(size, overlap).split(text)] == chunks


def test_the_overlap_is_given_up_for_a_whole_character():
    """A joined emoji that fits alone is not cut because the overlap before it leaves too little
    room.
    """
    scientist = "👩🏽‍🔬"
    splitter = SentenceSplitter(5, 1)
    assert UTF8.count(scientist) == 5
    text = "茶茶茶茶茶" + scientist + "茶"
    assert [text[start:end] for start, end in splitter.split(text)] == [
        "茶茶茶茶茶",
        scientist,
        "茶",
    ]


def test_words_bound_chunks_by_words():
    """A user's counter decides what a token is."""
    splitter = SentenceSplitter(4, 2, counter=Words())
    text = "One two three. Four five. Six seven eight nine ten eleven."
    assert [text[start:end] for start, end in splitter.split(text)] == [
        "One two three. ",
        "two three. Four five. ",
        "Four five. Six seven ",
        "eight nine ten eleven.",
    ]


def test_chunks_know_their_place():
    """The nodes hold the text at their span; a chunk of white space only makes no node."""
    text = "他走了。\n\n\n\n\n\nShe left. Then she came back."
    drafts = run_transform(SentenceSplitter(5, 0), DocNode(text=text))
    assert len(drafts) > 3
    assert all(text[draft.span[0] : draft.span[1]] == draft.content for draft in drafts)
    assert all(draft.content.strip() for draft in drafts)
    assert "".join("".join(draft.content.split()) for draft in drafts) == "".join(text.split())


def test_the_identity_tells_whatever_decides_about_the_chunks():
    """Another size, overlap or counter is another transform; the same ones are the same."""
    splitters = [
        SentenceSplitter(128, 12),
        SentenceSplitter(128, 13),
        SentenceSplitter(129, 12),
        SentenceSplitter(128, 12, counter=Words()),
    ]
    assert len({one.identity for one in splitters}) == 4
    assert SentenceSplitter(128, 12, counter="utf8").identity == splitters[0].identity


@pytest.mark.parametrize("size", [0, -1, 1.5, "128", None, True])
def test_a_chunk_has_at_least_one_token(size):
    """The error shows what was given and what is allowed."""
    with pytest.raises(ConfigError, match=r"chunk_size"):
        SentenceSplitter(size, 0)


@pytest.mark.parametrize("overlap", [-1, 10, 11, 1.5, "2", True])
def test_an_overlap_is_smaller_than_a_chunk(overlap):
    """Else no chunk would end after the one before it; the error gives the bound."""
    with pytest.raises(ConfigError, match=r"chunk_overlap \(below chunk_size\)"):
        SentenceSplitter(10, overlap)
    assert SentenceSplitter(10, 9).chunk_overlap == 9


def test_a_large_overlap_leaves_room_for_the_next_part():
    """Chunks share as many whole sentences as leave room for one more, and creep forward word by
    word at most.
    """
    text = "Aa bb. Cc dd ee. Ff. Gg hh ii jj. Kk. Ll mm."
    splitter = SentenceSplitter(8, 7, counter=Words())
    assert [text[start:end] for start, end in splitter.split(text)] == [
        "Aa bb. Cc dd ee. Ff. ",
        "Cc dd ee. Ff. Gg hh ii jj. ",
        "Ff. Gg hh ii jj. Kk. Ll mm.",
    ]
    words = TokenSplitter(3, 2, counter=Words())
    assert [text[start:end] for start, end in words.split(text)][:2] == ["Aa bb. Cc ", "bb. Cc dd "]


@pytest.mark.parametrize(
    ("size", "overlap"), [(1, 0), (10, 2), (256, 51), (1024, 200), (4096, 200)]
)
def test_an_overlap_that_is_not_given_suits_the_size(size, overlap):
    """A fifth of the chunk, at most 200 tokens: whoever says chunk_size alone gets chunks of that
    size.
    """
    assert SentenceSplitter(size).chunk_overlap == overlap


class _Nameless:
    def count(self, text: str) -> int:
        return len(text)


class _Numbered(_Nameless):
    name = 5


@pytest.mark.parametrize(
    "counter",
    [5, None, len, _Nameless(), _Numbered(), ["utf8"]],
    ids=lambda one: type(one).__name__,
)
def test_a_counter_has_a_name_and_counts(counter):
    """What is no counter is refused when the splitter is made; the name takes part in
    fingerprints.
    """
    with pytest.raises(ConfigError, match="an object with name and count"):
        SentenceSplitter(10, 0, counter=counter)


def test_a_counter_may_be_named():
    """A registered counter is found by its name; an unknown name lists the known ones."""
    with token_counters.isolated():
        token_counters.register("words", Words())
        assert SentenceSplitter(4, 0, counter="words").counter.name == "words"
    with pytest.raises(
        NotRegisteredError,
        match=r"No token counter is registered as 'gpt'\. Known: average, estimate, utf8",
    ):
        SentenceSplitter(10, 0, counter="gpt")


class Merges:
    """Counts as byte pair encoding does: a longer text may have fewer tokens."""

    name = "merges"

    def count(self, text: str) -> int:
        """Tokens of a text of the first letters."""
        return len(re.findall("abcdefgh|abcd|ab|茶叶合作社|.", text))


def test_chunks_do_not_depend_on_the_texts_before():
    """What a splitter has learnt of a counter's tokens does not move the end of a chunk."""
    rng = random.Random(1)
    pieces = ["茶叶合作社", "茶", "叶合", "abcd", "ab", "c"]
    texts = [
        "".join(rng.choices(pieces + ["abcdefgh"] * rng.randrange(9), k=100)) for _ in range(90)
    ]
    used = TokenSplitter(chunk_size=5, chunk_overlap=1, counter=Merges())
    for text in texts:
        fresh = TokenSplitter(chunk_size=5, chunk_overlap=1, counter=Merges())
        assert run_transform(used, DocNode(text=text)) == run_transform(fresh, DocNode(text=text))
