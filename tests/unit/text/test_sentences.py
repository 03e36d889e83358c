"""Where sentences end, and where text may be broken."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.text import sentences
from lazyrag.text.sentences import (
    first_word,
    is_boundary,
    last_break,
    sentence_ends,
    sentence_spans,
)

# Each text is written as its sentences, one after the other.
CHINESE = [
    ["他走了。", "她也走了。"],
    ["真的吗？", "真的！", "好。"],
    ["真的吗？！", "当然。"],
    ["等等……", "我想想。"],
    ["先说一点；", "再说一点。"],
    ["他说：“好。”", "然后走了。"],
    ["他说：「走吧！」", "大家就走了。"],
    ["（他走了。）", "她留下了。"],
    ["《茶经》。", "陆羽著。"],
    ["版本2.0已发布。", "价格3.14元。"],
    ["他问：“去吗？”", "“不去。”", "她说。"],
    ["第一段。\n", "第二段。"],
    ["没有句号的标题\n\n", "正文。"],
    ["一、茶叶，二、水。", "三、火。"],
    ["。。。", "好"],
    ["｡", "好"],
    ["没有句号"],
]

OTHER = [
    ["गंगा नदी है। ", "वह बड़ी है॥"],
    ["أين المدرسة؟ ", "هنا."],
    ["یہ کتاب ہے۔ ", "وہ میز ہے۔"],
]

ENGLISH = [
    ["He left. ", "She left."],
    ["Really? ", "Really! ", "Yes."],
    ["What?! ", "No."],
    ["Dr. Li came. ", "Mrs. Wu left."],
    ["Mr. Smith met Prof. Jones vs. the rest."],
    ["See Fig. 3 and pp. 12 to 14. ", "Then stop."],
    ["J. K. Rowling wrote it. ", "R. Li read it."],
    ["We, i.e. all of us, e.g. you, left."],
    ["Use tea, water, etc. ", "Then wait."],
    ["Use tea, water, etc. and wait."],
    ["It grew in the U.S. and in China."],
    ["It costs 3.14 or .5 units. ", "Cheap."],
    ["Open a.txt or www.example.com/x.html now. ", "Done."],
    ["Version 1.2.3 is out. ", "Get it."],
    ["It was in 1998. ", "Then it ended."],
    ["1. Boil water.\n", "2. Add tea.\n", "3. Wait."],
    ["# 1. Tea\n\n", "Text."],
    ["No. 5 is best. ", "No. ", "It is not."],
    ["Wait... ", "What?"],
    ["Well... so he left."],
    ["Hmm… ", "Right."],
    ['He said "Go." ', "Then he went."],
    ["(He left.) ", "She stayed."],
    ["“Go!” ", "He went."],
    ["So did I. ", "Then we ate."],
    ["A heading\n\n", "a paragraph in lower case."],
    ["One line\nand its end."],
    ["He came to Acme Inc. ", "Then he left."],
    ["He came to Acme Inc. yesterday."],
    ["CRLF one.\r\n", "CRLF two.\r\n\r\n", "End."],
    ["Tail.   \n\t"],
    ["no end"],
    ["!"],
]

MIXED = [
    ["Dr. Li came. ", "他走了。", "Bye"],
    ["他用 Python 3.11 写。", "It works. ", "很好！"],
    ["Tea is 茶.", "茶 is tea."],
    ["好。", "Yes! ", "好吧。"],
    ["他说 OK.", "然后走了。"],
    ["绿茶 e.g. 龙井。", "Next."],
]


@pytest.mark.parametrize(
    "sentences", [*CHINESE, *ENGLISH, *MIXED, *OTHER], ids=lambda one: "".join(one)[:30]
)
def test_a_text_is_cut_into_its_sentences(sentences):
    """Quotes and white space stay with the sentence before; abbreviations, numbers and names end
    none.
    """
    text = "".join(sentences)
    assert [text[start:end] for start, end in sentence_spans(text)] == sentences


@pytest.mark.parametrize("text", ["", " ", "\n", "\n\n\n", "。", "...", "\r\n\r\n", '"', "\u0301"])
def test_texts_without_words_are_covered_too(text):
    """Nothing is lost and nothing raises; an empty text has no sentence."""
    assert "".join(text[start:end] for start, end in sentence_spans(text)) == text
    assert list(sentence_ends(text)[-1:]) == ([len(text)] if text else [])


_alphabet = [
    *"ab A1。！？；…．.!?,，、：“”\"'()）」 \n\r\t茶",
    "Dr. ",
    "e.g. ",
    "1. ",
    "3.14",
    "\r\n",
    "\n\n",
    "é",
    "e\u0301",
    "👨‍👩‍👧",
    "🇨🇳",
]


@given(st.lists(st.sampled_from(_alphabet), max_size=25).map("".join))
def test_spans_cover_the_text_and_cut_no_character(text):
    """Spans follow one another without a gap, none is empty, and every end is a boundary between
    characters.
    """
    spans = sentence_spans(text)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert all(start < end for start, end in spans)
    assert (spans[-1][1] if spans else 0) == len(text)
    assert all(is_boundary(text, end) for _, end in spans)
    assert [end for _, end in spans] == list(sentence_ends(text))


@given(st.text(max_size=40))
def test_any_text_has_sentences(text):
    """Any Unicode text, control characters included, is covered."""
    assert "".join(text[start:end] for start, end in sentence_spans(text)) == text


_CLOSED = [sentences for sentences in [*CHINESE, *ENGLISH] if sentences[-1][-1] in "。 "] + [
    ["He left. "],
    ["真的吗？"],
]


@given(st.lists(st.sampled_from(_CLOSED), min_size=2, max_size=5))
def test_sentences_end_where_they_end_alone(texts):
    """A text that is closed ends there also with more text behind it: looking ahead does not move
    earlier ends.
    """
    text = "".join("".join(sentences) for sentences in texts)
    expected = [sentence for sentences in texts for sentence in sentences]
    assert [text[start:end] for start, end in sentence_spans(text)] == expected


WHOLE = {
    "CRLF": "\r\n",
    "combining acute": "e\u0301",
    "two marks": "e\u0323\u0302",
    "enclosing keycap": "1\ufe0f\u20e3",
    "variation selector": "❤\ufe0f",
    "Chinese variation": "葛\U000e0100",
    "skin tone": "👍🏽",
    "joined family": "👨‍👩‍👧‍👦",
    "joined with tone": "👩🏽‍🔬",
    "rainbow flag": "🏳️‍🌈",
    "flag": "🇨🇳",
    "flag of England": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "Hangul syllable": "\u1112\u1161\u11ab",
    "syllable and final": "하\u11ab",
    "Devanagari vowel": "कि",
    "Thai vowel": "กำ",
    "half-width voiced": "ｶﾞ",
}


@pytest.mark.parametrize("cluster", WHOLE.values(), ids=WHOLE.keys())
def test_a_character_as_people_see_it_is_not_cut(cluster):
    """Boundaries lie around it, none within it, whatever its neighbours (UAX 29, extended grapheme
    clusters).
    """
    for before, after in [("", ""), ("a", "b"), ("茶", "茶"), (" ", "\n"), ("👍", "👍")]:
        text = before + cluster + after
        inside = range(len(before) + 1, len(before) + len(cluster))
        assert [at for at in inside if is_boundary(text, at)] == []
        assert is_boundary(text, len(before))
        assert is_boundary(text, len(before) + len(cluster))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("ab", 1),
        ("茶叶", 1),
        ("\n\r", 1),
        ("\n\n", 1),
        ("👍👍", 1),
        ("a1", 1),
        ("🇨🇳🇩🇪", 2),
        ("하하", 1),
        ("é茶", 1),
        ("", 0),
        ("a", 1),
    ],
)
def test_two_characters_may_be_parted(text, at):
    """Between two of them there is a boundary, and so is each end of the text."""
    assert is_boundary(text, at)


def test_flags_are_counted_in_pairs():
    """In a row of flags, only every second place is a boundary."""
    text = "x" + "🇨🇳" * 20
    assert [at for at in range(1, len(text)) if is_boundary(text, at)] == list(
        range(1, len(text), 2)
    )


@pytest.mark.parametrize(
    ("text", "high", "kept"),
    [
        ("one two three, four five six", 20, "one two three, "),
        ("first line\nsecond line, and more", 20, "first line\n"),
        # the line's end lies in the first half
        ("a\nbbbbbbbbb ccccccccc ddd", 18, "a\nbbbbbbbbb "),
        ("一二三，四五六七八", 6, "一二三，"),
        ("一二三四五六七八", 5, "一二三四五"),
        ("alpha beta gamma", 12, "alpha beta "),
        ("tea茶叶and more", 5, "tea茶叶"),
        ("abcdefghij", 4, "abcd"),
        ("cafe\u0301s", 4, "caf"),
        ("a👨‍👩‍👧b", 4, "a"),
        ("ab\r\ncd", 3, "ab"),
        ("one, two,   next", 11, "one, "),  # white space that goes on past the limit ends no clause
        ("e\u0301" * 3, 1, "e"),  # the first character alone does not fit
    ],
)
def test_the_last_break_is_the_best_one_there_is(text, high, kept):
    """A line's end in the second half, else a clause there, else a word, else a character, else the
    limit.
    """
    assert text[: last_break(text, 0, high)] == kept


@given(st.lists(st.sampled_from(_alphabet), min_size=1, max_size=25).map("".join), st.data())
def test_a_break_moves_on_and_does_not_go_too_far(text, data):
    """Any break lies behind its lower bound and not behind its upper one, at a boundary where there
    is one.
    """
    low = data.draw(st.integers(0, len(text) - 1))
    high = data.draw(st.integers(low + 1, len(text)))
    position = last_break(text, low, high)
    assert low < position <= high
    if any(is_boundary(text, at) for at in range(low + 1, high + 1)):
        assert is_boundary(text, position)
    assert low <= first_word(text, low, high) <= high


@pytest.mark.parametrize(
    ("text", "low", "high", "found"),
    [
        ("watering cans", 2, 13, 9),
        ("watering cans", 0, 13, 0),
        ("watering", 2, 8, 8),
        ("茶叶合作", 1, 4, 1),
        ("ab  cd", 1, 6, 4),
        ("tea茶", 1, 4, 3),
    ],
)
def test_the_first_word_begins_behind_white_space_or_beside_chinese(text, low, high, found):
    """A word is not begun in its middle; without one the upper bound is returned."""
    assert first_word(text, low, high) == found


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("In 1998. Then. " * 13334, 2 * 13334),
        ("." * 100_000 + "a", 1),
        ("!" * 100_000 + "a", 1),
        ("?." * 50_000 + "a", 1),
        ("Then. " + "." * 100_000 + "a", 2),
        ("1. " * 50_000 + "a", 49_999),
        ("a" * 200_000, 1),
        ("\n" * 200_000, 1),
        ("." * 100_000 + " A", 2),
    ],
    ids=lambda one: repr(one[:20]) if isinstance(one, str) else None,
)
def test_long_lines_and_long_runs_take_linear_time(text, ends):
    """A hundred thousand signs of one kind, and a line with as many sentences, are done at once;
    quadratic is hours.
    """
    assert len(sentence_ends(text)) == ends


# The patterns as one would write them: alternatives that each begin with their own characters.
PLAIN = {
    "_candidate": rf"""
        (?:
            [。！？；｡]+ | …+
            | (?<! [.!?] ) [.!?]+ (?= [{sentences._CLOSERS}]* (?: \s | \Z | [{sentences.CJK_LETTERS}] ) )
        )
        (?: [。！？；…!?] )* [{sentences._CLOSERS}]* \s*
        | \n [^\S\n]* \n \s*
    """,
    "_clause": r"""[，、：][”’」』）】》]*\s* | [,;:]["')\]]*\s+ | \s[-–—]+\s | —+""",
}


@pytest.mark.parametrize("name", PLAIN)
@given(
    text=st.text("a.!?。！？；｡…\n \t\"”)』，、：,;:-–—1好\\'", max_size=20),
    start=st.integers(0, 5),
)
def test_the_quick_pattern_finds_what_the_plain_one_finds(name, text, start):
    """Patterns are written for speed, and match the same stretches as their plain forms, wherever
    one begins.
    """
    plain = re.compile(PLAIN[name], re.VERBOSE)
    quick = getattr(sentences, name)()
    assert [one.span() for one in quick.finditer(text, start)] == [
        one.span() for one in plain.finditer(text, start)
    ]
