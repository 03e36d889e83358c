"""Analysers: which terms a text has in an index and in a query."""

from __future__ import annotations

import importlib
import random
import re
import sys
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.segment import digest
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.text import analyzers
from lazyrag.text.analyzers import (
    analysers,
    chinese_terms,
    english_terms,
    matching_function,
    query_terms,
    term_function,
    term_spans,
)
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.text.term_codes import TermCodes
from tests.shared import read_squad, shared

_PIECES = [
    "the ",
    "und ",
    "der ",
    "là ",
    "trà ",
    "teas",
    "FileName",
    "FY18",
    "1,234",
    "茶叶",
    "哪里",
    "ชา",
]

BOTH = pytest.mark.parametrize("terms", [english_terms, chinese_terms], ids=["en", "zh"])


@BOTH
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ("...!?", []),
        ("Green TEA", ["green", "tea"]),
        ("tea tea", ["tea", "tea"]),
        ("the tea of an emperor", ["tea", "emperor"]),
        ("The What which IS", []),
        ("teas dried drying running", ["tea", "dri", "dri", "run"]),
        ("3.14 2024-05-01", ["3", "14", "2024", "05", "01"]),
        ("snake_case and-dashes/slashes", ["snake", "case", "dash", "slash"]),
        ("e-mail@example.com", ["e", "mail", "exampl", "com"]),
        ("C3PO x86", ["c3po", "x86"]),
        ("Zürich ZÜRICH zu\u0308rich", ["zurich"] * 3),
        ("Straße STRASSE", ["strass"] * 2),
        ("naïve Ελλάδα Москва", ["naiv", "ελλαδ", "москв"]),
        ("\ufb01ne \uff34\uff25\uff21 ２０２４ Ⅷ", ["fine", "tea", "2024", "viii"]),
        ("$4,200 1,234,567.89", ["4200", "200", "1234567", "234", "567", "89"]),
        ("1,234km 1，234", ["1234km", "234km", "1234", "234"]),
        ("1234,567 1,2345 0,123 1,23", ["1234", "567", "1", "2345", "0", "123", "1", "23"]),
        ("FY2018 Q4FY18 3M2018", ["fy2018", "2018", "q4fy18", "2018", "3m2018", "2018"]),
        ("FY98 Q42018 2018E 1990s", ["fy98", "1998", "q42018", "2018", "2018e", "1990s"]),
        ("ISO12018 FY20189 FY188 x86", ["iso12018", "fy20189", "fy188", "x86"]),
        ("👍 tea 🍵", ["tea"]),
    ],
)
def test_words_are_folded_stemmed_and_sifted(terms, text, expected):
    """Case, width, accents' encoding and endings do not count; stop words and marks are left out,
    repetitions kept.
    """
    assert terms(text) == expected


@BOTH
def test_an_apostrophe_is_one_however_it_is_written(terms):
    """The typewriter's and the printer's apostrophe give the same terms, at the end of a word and
    within it.
    """
    assert terms("don't the dog's dogs'") == terms("don’t the dog’s dogs’")
    assert terms("dog's") == terms("dogs") == terms("dog") == ["dog"]


IGNORABLE = [
    *map(
        chr,
        (
            0xAD,
            0x34F,
            0x61C,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            0x3164,
            0xFEFF,
            0xFFA0,
            0x1D173,
            0x1BCA3,
            0xE0001,
        ),
    ),
    *map(
        chr,
        [
            *range(0x180B, 0x1810),
            *range(0x200B, 0x2010),
            *range(0x202A, 0x202F),
            *range(0x2060, 0x2070),
        ],
    ),
    *map(chr, [*range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), 0xE0100, 0xE01EF, 0xE0FFF]),
]
PIECES = [
    "tea",
    "Kühl",
    "Tränke",
    "e\u0301",
    "don't",
    "1,234",
    "FY2018",
    "绿茶叶",
    "合作社",
    "谁",
    "各가",
    "Ｔea",
    " ",
    ".",
]


def terms_in_index(name, text):
    """The terms that an index has of a text."""
    codes = TermCodes(name)
    return Counter(codes.terms(codes.encode(["first", text, "绿\u200b茶"])[0]))


@pytest.mark.parametrize("name", ["en", "zh"])
@given(st.data())
def test_characters_that_nobody_sees_change_no_term(name, data):
    """Soft hyphens, zero-width characters and marks of direction anywhere in a text; in indexes and
    in queries.
    """
    text = "".join(data.draw(st.lists(st.sampled_from(PIECES), max_size=6)))
    pieces = [data.draw(st.sampled_from(["", "", *IGNORABLE])) + character for character in text]
    inserted = "".join(pieces) + data.draw(st.sampled_from(["", *IGNORABLE]))
    terms_of = term_function(name, stop_words=True)
    assert terms_of(inserted) == terms_of(text)
    assert terms_in_index(name, inserted) == terms_in_index(name, text)


def test_every_character_that_unicode_ignores_is_ignored():
    """Of all format characters, only those that Unicode shows change a word."""
    shown = [
        chr(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) == "Cf" and english_terms(f"te{chr(code)}a") != ["tea"]
    ]
    assert not [
        one
        for one in shown
        if unicodedata.name(one).startswith(("ZERO WIDTH", "LEFT-TO", "RIGHT-TO", "TAG"))
    ]
    assert {unicodedata.name(one).split()[0] for one in shown} <= {
        "ARABIC",
        "SYRIAC",
        "KAITHI",
        "EGYPTIAN",
        "INTERLINEAR",
    }
    assert all(english_terms(f"te{one}a") == ["tea"] for one in IGNORABLE)


@pytest.mark.parametrize("name", ["en", "zh"])
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=6).map("".join))
def test_composed_and_decomposed_texts_have_equal_terms(name, text):
    """NFC and NFD, as Windows and macOS write them."""
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    terms_of = term_function(name, stop_words=True)
    assert terms_of(composed) == terms_of(decomposed)
    assert terms_in_index(name, composed) == terms_in_index(name, decomposed)


@pytest.mark.parametrize(
    ("name", "query", "texts"),
    [
        ("en", "The Who", ["The Who played in Leeds"]),
        ("en", "to be or not to be", ["To be or not to be, that is the question"]),
        ("zh", "IT", ["The IT department"]),
        ("zh", "为什么", ["他问为什么"]),
        ("zh", "谁", ["谁写了茶经"]),
    ],
)
def test_a_query_of_stop_words_is_compared_by_them(name, query, texts):
    """They are terms of an index under a name of their own; other queries do not see them."""
    terms_of = matching_function(name, query)
    assert terms_of(query)
    for text in texts:
        assert {*terms_of(query)} <= {*terms_of(text)}
        assert {*terms_of(query)} <= terms_in_index(name, text).keys()
    assert not {*terms_of(query)} & {*term_function(name)(f"{query} its bees tea")}


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("4200", "It costs $4,200 per seat", ["4,200"]),
        ("4,200", "It costs 4200 dollars", ["4200"]),
        ("1234567", "共计1,234,567元", ["1,234,567"]),
        ("2018", "in FY2018 and Q4FY18", ["FY2018", "Q4FY18"]),
        ("refrigerator", "The Refri\xadgerator", ["Refri\xadgerator"]),
        ("Kühlschrank", "Ku\u0308hlschra\u200bnk ist kalt", ["Ku\u0308hlschra\u200bnk"]),
        ("Kühlschrank", "Straße: İ Kühlschrank", ["Kühlschrank"]),
        ("绿茶", "好的绿\u200b茶叶 和（绿茶）…绿茶", ["绿\u200b茶", "绿茶", "绿茶"]),
        ("The Who", "I saw The Who", ["The", "Who"]),
        ("为什么", "他问为什么", ["为什么"]),
        ("teas", "用Tea写", ["Tea"]),
    ],
)
def test_marks_cover_what_the_terms_found(query, text, marked):
    """The words as they are written: with separators, invisible and decomposed characters."""
    spans = sorted({(start, end) for start, end, _ in term_spans(text, query_terms(query))})
    assert {text[start:end] for start, end in spans} >= {*marked}
    assert all(any(start >= text.find(one) >= 0 for one in marked) for start, _ in spans)


@BOTH
@given(st.text(st.characters(max_codepoint=127), max_size=30))
def test_the_way_for_ascii_gives_what_the_general_way_gives(terms, text):
    """One Chinese character behind a text changes nothing about the terms before it."""
    assert sorted(terms(text + " 茶")) == sorted([*terms(text), "茶"])


@BOTH
@given(st.text(max_size=30))
def test_any_text_has_terms_that_are_found_again(terms, text):
    """Any Unicode: terms are not empty and hold no white space, the same each time, for upper and
    lower case alike.
    """
    found = terms(text)
    assert terms(text) == found
    assert all(term and not any(character.isspace() for character in term) for term in found)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fileNames", ["file", "name"]),
        ("HTTPServer", ["http", "server"]),
        ("getUserById2", ["get", "user", "byid"]),
        ("iPhone", []),
        ("PDFs", []),
        ("LazyRAG", ["lazi", "rag"]),
    ],
)
@BOTH
def test_names_in_camel_case_have_their_parts_as_terms(terms, name, parts):
    """Once in a text, beside the whole name, in ASCII and other texts."""
    whole = terms(name.lower())
    assert terms(f"{name} {name}") == [*whole, *whole, *parts]
    assert sorted(terms(f"{name} 茶")) == sorted([*whole, *parts, "茶"])


def test_parts_of_names_tell_no_language():
    """A German text stays German beside a name of English words."""
    terms = english_terms("Die Methode isInTheList liefert alle Häuser")
    assert {"haus", "isinthelist", "list"} <= {*terms}


def test_names_of_many_letters_take_linear_time():
    """A megabyte of letters with many parts, and one without a second part."""
    assert set(english_terms("aaB" * 300_000)[1:]) == {"aa", "baa", "b"}
    assert english_terms("a" * 1_000_000 + "B")[1:] == ["a" * 1_000_000, "b"]


def test_a_part_marks_its_name():
    """In a result, the whole name is marked."""
    assert term_spans("A DiffExecutor", query_terms("executor")) == [(2, 14, "executor")]
    assert term_spans("\u200b", query_terms("executor")) == []


CHINESE_TEXTS = [
    "绿茶",
    "茶叶合作社",
    "中国科学院计算技术研究所",
    "他来到了网易杭研大厦",
    "龙井茶产于西湖",
    "𠮷野家",
    "哪吒闹海",
]


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("text", CHINESE_TEXTS)
def test_every_single_chinese_character_is_findable(terms, text):
    """A query of one character finds the texts that hold it, under either analyser; only asking
    ones ask in vain.
    """
    found = terms(text)
    for character in text:
        assert character in found
        assert terms(character) == [character] or (terms is chinese_terms and character == "哪")


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("text", CHINESE_TEXTS)
def test_every_pair_of_neighbours_is_findable(terms, text):
    """Two characters side by side are a term, whether a dictionary knows them or not."""
    assert {text[at : at + 2] for at in range(len(text) - 1)} <= set(terms(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("茶叶合作社", {"合作社"}),
        ("中国科学院计算技术研究所", {"中国科学院计算技术研究所", "科学院", "研究所"}),
        ("西红柿炒鸡蛋", {"西红柿"}),
    ],
)
def test_long_words_are_terms_of_the_chinese_analyser(text, words):
    """Jieba's search-mode words of three characters and more are terms; the English analyser knows
    none of them.
    """
    assert words <= set(chinese_terms(text))
    assert not words & set(english_terms(text))


def test_a_word_counts_once():
    """A text of one word has each character and each pair once, so that length normalisation stays
    honest.
    """
    assert chinese_terms("绿茶") == ["绿", "茶", "绿茶"]
    assert chinese_terms("合作社") == ["合", "作", "社", "合作", "作社", "合作社"]
    assert english_terms("合作社") == ["合", "作", "社", "合作", "作社"]


@pytest.mark.parametrize(
    ("name", "identity", "expected"),
    [
        ("en", "en/4", "1fa907e1f6f40b55c56fd83c086fe835"),
        ("zh", "zh/4", "462cd1c356c87e5c2bb0fa6c95c4facf"),
    ],
)
def test_other_terms_need_another_identity(name, identity, expected):
    """Indexes on disk are taken for those of the identity: where this fails, raise its number with
    the digest.
    """
    letters = "".join(map(chr, [*range(0x20, 0x250), *range(0x370, 0x500), *range(0x3040, 0x3100)]))
    letters += "".join(map(chr, [*range(0x600, 0x700), *range(0x900, 0x980), *range(0xE00, 0xE80)]))
    characters = "".join(map(chr, range(0x4E00, 0x9FA6)))
    words = "茶叶合作社 中国科学院计算技术研究所 绿茶怎么泡 什么是绿茶 谁写了茶经 南京市长江大桥 研究生命的起源"
    english = "The dogs' running DOG’s don't 3.14 e-mail@example.com which relational universities are dried, naïve ﬁne"
    english += " $4,200 FY18 Q42018 te\u00ada HTTPServer fileNames"
    other = "Wer baut die Häuser? ¿Dónde están las montañas? Trà xanh là của Việt Nam"
    texts = [letters, other, characters, characters[::-1], words, english, f"{english}{words}"]
    assert analysers[name].identity == identity
    terms_of = term_function(name, stop_words=True)
    assert digest([term for text in texts for term in terms_of(text)]) == expected


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("绿茶怎么泡", ["绿", "茶", "绿茶", "泡"]),
        ("什么是绿茶", ["是", "绿", "茶", "是绿", "绿茶"]),
        ("谁写了茶经", ["写", "了", "茶", "经", "写了", "了茶", "茶经"]),
        ("为什么", []),
    ],
)
def test_asking_words_are_left_out_of_chinese_terms(question, kept):
    """Words that only ask are rare in answers; pairs do not reach across them."""
    assert sorted(chinese_terms(question)) == sorted(kept)
    assert {"绿茶怎么泡": "怎", "什么是绿茶": "么", "谁写了茶经": "谁", "为什么": "为"}[
        question
    ] in english_terms(question)


@BOTH
def test_traces_of_mixed_text_are_found(terms):
    """Latin words inside Chinese text and Chinese inside English are terms of their own, without
    spaces too.
    """
    assert {"用", "python3", "写", "茶", "写茶"} <= set(terms("用Python3写茶"))
    assert {"龙", "井", "龙井", "tea"} <= set(terms("Longjing (龙井) teas"))


@BOTH
@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("ＧＲＥＥＮ　ｔｅａ", "GREEN tea"),
        ("绿茶１２３", "绿茶123"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        ("⼤⼩", "大小"),
        ("㈱", "(株)"),
    ],
)
def test_full_width_and_compatible_forms_are_one(terms, written, plain):
    """NFKC: what looks the same is found by either way of writing."""
    assert terms(written) == terms(plain) != []


@BOTH
@pytest.mark.parametrize("text", ["ひらがな", "カタカナ", "한국어", "ー"])
def test_japanese_and_korean_are_taken_apart_like_chinese(terms, text):
    """Every character is a term."""
    assert set(text) <= set(terms(text))


@BOTH
@given(
    st.lists(
        st.sampled_from(["绿茶", "合作社", "tea ", "Dr. ", "，", "。", " ", "２", "谁", "西湖"]),
        max_size=8,
    ).map("".join)
)
def test_a_sentence_is_found_by_its_own_words(terms, text):
    """Each piece between marks gives terms that are terms of the whole: a quotation finds its
    source.
    """
    whole = set(terms(text))
    for piece in text.replace("。", "，").split("，"):
        assert set(terms(piece)) <= whole


_CODED = "茶叶合作社中国科学院是否什么哪吗谁多少カナ한글𠀀\u9fd6\u3400，。…～’' abTHE9_é\u0301\ud800ﬁ－Ａ々\n"
_NUMBERS = [
    "1,234",
    "a1,234",
    "'1,234",
    "1,234's",
    "12,345,678km",
    "FY2018",
    "0,123",
    "1，234",
    ",567",
]


@pytest.mark.parametrize(("name", "terms"), [("en", english_terms), ("zh", chinese_terms)])
@given(
    st.lists(
        st.text(st.sampled_from(_CODED), max_size=30)
        | st.text(max_size=30)
        | st.lists(st.sampled_from([*_NUMBERS, " ", "'", "7", "a", "茶"]), max_size=6).map("".join),
        max_size=6,
    )
)
def test_the_numbers_of_an_index_stand_for_the_terms(name, terms, texts):
    """Each text gets its own terms, as often as it has them, in any script; also of texts that come
    later.
    """
    codes = TermCodes(name)
    for some in (texts, texts[::-1]):
        numbers, rows = codes.encode(some)
        found = Counter(zip(rows.tolist(), codes.terms(numbers), strict=True))
        terms_of = term_function(name, stop_words=True)
        assert found == Counter(
            (at, term) for at, text in enumerate(some) for term in terms_of(text)
        )
        assert all({*terms(text)} <= {*terms_of(text)} for text in some)


@pytest.mark.parametrize(
    "text",
    ["a''b c", "'tis the dogs' rock'n'roll '' '", "DON'T_x\x1cy\x00z"],
    ids=["double", "around", "control"],
)
def test_numbers_of_ascii_words_with_apostrophes(text):
    """They are found by splitting at spaces, where the analyser uses a pattern."""
    numbers, _ = (codes := TermCodes("en")).encode([text])
    assert Counter(codes.terms(numbers)) == Counter(term_function("en", stop_words=True)(text))


def test_jiebas_words_are_the_text():
    """Joined, the words of a run are the run; nothing is lost or normalised on the way."""
    for text in CHINESE_TEXTS:
        assert "".join(analyzers.words(text)) == text


@pytest.mark.slow
def test_words_an_application_adds_to_jieba_do_not_change_our_terms(jieba):
    """Our tokenizers are our own: the terms of an index depend on our release, not on who else uses
    jieba.
    """
    # which the fixture has loaded: its source warns on some Pythons
    shared = importlib.import_module("jieba")
    before = chinese_terms("绿茶园丁科技"), jieba.words("绿茶园丁科技")
    try:
        shared.add_word("绿茶园丁科技", freq=10**9)
        assert shared.lcut("绿茶园丁科技") == ["绿茶园丁科技"]
        assert (chinese_terms("绿茶园丁科技"), jieba.words("绿茶园丁科技")) == before
    finally:
        shared.del_word("绿茶园丁科技")


@pytest.fixture(scope="module")
def jieba() -> analyzers.PythonSegmenter:
    """Jieba itself, which says what the words are."""
    return analyzers.PythonSegmenter()


@pytest.fixture(scope="module")
def rust() -> analyzers.RustSegmenter:
    """The same in Rust."""
    return analyzers.RustSegmenter()


def same_words(jieba, rust, runs):
    """The runs of which the two make different words."""
    return [run for run in runs if jieba.words(run) != rust.words(run)]


@pytest.mark.slow
@pytest.mark.shared
def test_the_words_in_rust_are_jiebas_on_all_shared_texts(jieba, rust):
    """An index made with rjieba is searched with jieba, and the other way round: their words are
    the same.
    """
    texts = []
    for name in ("xquad/xquad.zh.json", "cmrc2018/cmrc2018_dev_half0.json"):
        paragraphs, questions = read_squad(shared("data", "retrieval", *name.split("/")))
        texts += [*paragraphs, *(question for question, _ in questions)]
    for path in sorted(shared("data", "docs").glob("*.txt")):
        with suppress(LoadError):  # one of them is empty
            texts.append(load_file(path).text)
    runs = sorted({run for text in texts for run in re.findall(f"[{CJK_LETTERS}]+", text)})
    assert len(runs) > 20_000
    assert same_words(jieba, rust, runs) == []


@pytest.mark.slow
def test_the_words_in_rust_are_jiebas_on_any_run(jieba, rust):
    """Words of the dictionary one after the other, frequent characters, any characters: they are
    cut alike.
    """
    chance = random.Random(11)
    known = [
        word
        for word, times in jieba._tokenizer.FREQ.items()
        if times and re.fullmatch(f"[{CJK_LETTERS}]+", word)
    ]
    letters = sorted({letter for word in known for letter in word})
    frequent = sorted(letters, key=lambda one: -jieba._tokenizer.FREQ.get(one, 0))[:1500]
    rare = [*"䲟㐀𠮷々〇かなカナ한글ㄅ", *"可当的是"]
    runs = [
        "".join(chance.choices(pool, k=chance.randint(1, most)))
        for pool, most in ((known, 5), (letters, 12), (frequent, 12), (rare, 8))
        for _ in range(5_000)
    ]
    assert same_words(jieba, rust, runs) == []


@pytest.mark.slow
def test_the_dictionary_in_rust_is_jiebas(jieba, rust):
    """Every word that jieba knows is one, and no beginning of a word that it lists beside them."""
    assert [
        text for text, times in jieba._tokenizer.FREQ.items() if bool(times) != rust.is_word(text)
    ] == []


@pytest.mark.slow
def test_jieba_serves_where_there_is_no_rjieba(monkeypatch, jieba):
    """Where nobody built rjieba, the same analyser works on jieba itself."""
    monkeypatch.setitem(sys.modules, "rjieba", None)
    served = analyzers._loaded.__wrapped__()
    assert isinstance(served, analyzers.PythonSegmenter)
    assert [served.words(text) for text in CHINESE_TEXTS] == [
        jieba.words(text) for text in CHINESE_TEXTS
    ]


def test_analysers_are_found_by_the_name_that_an_index_stores():
    """The name leads to the function, and the analyser carries its name."""
    assert {name: analysers[name].name for name in ("en", "zh")} == {"en": "en", "zh": "zh"}
    assert analysers["en"].terms is english_terms
    assert analysers["zh"].terms is chinese_terms


@pytest.mark.slow
@BOTH
def test_many_threads_get_the_terms_that_one_gets(terms):
    """Snowball and jieba are not made for several threads; the analysers are."""
    rng = random.Random(7)
    words = [
        "running",
        "dried",
        "teas",
        "emperors",
        "nationally",
        "绿茶",
        "合作社",
        "科学院",
        "怎么",
        "quickly",
        "ponies",
    ]
    texts = [" ".join(rng.choices(words, k=40)) + str(number) for number in range(200)]
    expected = [terms(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(terms, texts * 4)) == expected * 4


@pytest.mark.parametrize(
    "text", ["The HTTPServer's teas", "L’école des fenêtres", "哪里有茶 the tea"]
)
def test_a_text_is_parsed_once_for_all_analysers(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are found once for the terms and stop words of both."""
    parsed = []

    def parse(text: str) -> str:
        parsed.append(text)
        return joined(text)

    joined = analyzers.with_joined_numbers
    monkeypatch.setattr(analyzers, "with_joined_numbers", parse)
    english_terms("Another text.")
    parsed.clear()
    for name in ("en", "zh"):
        assert term_function(name, stop_words=True)(text)
    assert len(parsed) == 1


@given(
    st.lists(st.sampled_from([*_PIECES, " ", "’", "，"]), max_size=12).map("".join), st.randoms()
)
def test_terms_depend_on_the_text_alone(text: str, order: random.Random) -> None:
    """In whatever order the functions of an analyser are called."""
    functions = [
        function
        for name in ("en", "zh")
        for function in (
            analysers[name].terms,
            analysers[name].query_terms,
            analysers[name].stop_words,
        )
    ]
    expected = []
    for function in functions:
        english_terms("Another text.")
        expected.append(function(text))
    numbers = order.choices(range(len(functions)), k=12)
    assert [functions[number](text) for number in numbers] == [
        expected[number] for number in numbers
    ]
