"""Bytes to text: no encoding that people save text in may come out as other letters."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.errors import LoadError
from lazyrag.loaders.detect import decode, find_encoding

MIXED = "Green tea 绿茶, café, 茶\U0001f375\r\nsecond line\n"
CHINESE = (
    "绿茶是未经发酵的茶叶，采摘之后立刻高温杀青，所以汤色清绿，味道鲜爽。春天采的茶最好，夏天的茶味道苦一些。"
    "泡绿茶的水不要太热，八十度左右就可以。"
)
TRADITIONAL = (
    "綠茶是未經發酵的茶葉，採摘之後立刻高溫殺青，所以湯色清綠，味道鮮爽。春天採的茶最好，夏天的茶味道苦一些。"
    "泡綠茶的水不要太熱，八十度左右就可以。"
)
JAPANESE = (
    "緑茶は、摘んだ茶の葉をすぐに加熱して発酵を止めたお茶です。日本では蒸す方法が多く、中国では釜で炒る方法が多く"
    "使われています。コーヒーより少ないですが、カフェインも含まれています。"
)
KOREAN = (
    "녹차는 찻잎을 따서 바로 열을 가해 발효를 막은 차이다. 물의 온도는 팔십 도 정도가 좋으며, 너무 뜨거우면 쓴맛이 "
    "난다. 커피보다는 적지만 카페인도 들어 있다."
)
RUSSIAN = (
    "Зелёный чай не подвергают ферментации: сразу после сбора листья прогревают. Весенний чай считается лучшим, "
    "а вода для него не должна быть слишком горячей."
)
FRENCH = (
    "Le thé vert n’est pas fermenté : après la cueillette, les feuilles sont chauffées aussitôt. "
    "Ça coûte très cher à Noël."
)
GERMAN = "Grüner Tee wird nicht fermentiert: Die Blätter werden gleich nach der Ernte erhitzt. Schöne Grüße aus Köln."


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_byte_order_marks_decide(mark, encoding):
    """A text with a byte order mark is read as that mark says, without the mark, line ends as they
    are.
    """
    assert decode(mark + MIXED.encode(encoding)) == MIXED


LATIN = {
    "cp1254": "Türkçe metin burada yazılıyor. Güneş doğduğunda dağların üstü aydınlanır.",
    "cp1250": "Później pójdziemy na spacer, bo dziś jest ładna pogoda i świeci słońce.",
    "iso8859_2": "Zelený čaj se připravuje z čerstvých lístků, které se rychle zahřejí.",
    "cp852": "A tea nagyon forró, de jó ízű. Őszi esők után süt a nap.",
    "cp1257": "Žalioji arbata ruošiama iš šviežių lapų, kurie greitai pašildomi, kad liktų žalią spalvą išsaugoję.",
    "mac_roman": "L’été dernier, nous avons goûté un thé très fort à Orléans; la théière était dorée.",
    "cp850": "Größe und Gewicht der Kanne stehen auf der Rückseite. Er schmeckt süß.",
    "cp1252": "El niño comió piñas en el jardín español. ¿Mañana será otro día?",
}


@pytest.mark.parametrize("encoding", LATIN)
def test_latin_letters_are_those_of_a_language(encoding):
    """A sentence is read in the encoding whose languages have its letters, and so are its
    halves.
    """
    words = LATIN[encoding].split()
    for text in (
        LATIN[encoding],
        " ".join(words[: len(words) // 2]),
        " ".join(words[len(words) // 2 :]),
    ):
        assert find_encoding(text.encode(encoding)).text == text


def test_hebrew_whose_bytes_are_cyrillic_letters():
    """Words end with ъ, or have й after a consonant, in no language that is written in Cyrillic
    letters.
    """
    text = "טוב לכולם. המחיר כולל משלוח עד הבית. אנחנו"
    assert decode(text.encode("cp1255")) == text
    assert (
        decode("Выход, йогурт, подъезд, чайник".encode("cp1251"))
        == "Выход, йогурт, подъезд, чайник"
    )


@pytest.mark.parametrize("length", [5_000, 70_000])
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "The café was naïve."),
        ("cp1252", "It’s “fine”."),
        ("cp1251", "Чай растёт в горах. Это вкусный напиток."),
        ("cp1250", "Zażółć gęślą jaźń."),
        ("gb18030", "茶叶质量检验报告。"),
    ],
)
def test_what_is_not_ascii_may_come_late(encoding, text, length):
    """A long beginning in ASCII, as of HTML, says nothing of the rest."""
    text = "<p>Green tea</p>\n" * (length // 17) + text
    assert find_encoding(text.encode(encoding))[:2] == (text, encoding)


TYPED = [
    "It’s a long English text — with curly quotes “here”, and nothing else.",
    "“Hello,” she said. ‘No,’ he replied…",
    "Don’t worry.",
    "pages 5–10, §5, see “notes” ©2020",
    "Price: £5 and 20°C ± 3, ½ cup",
    "The fee is €5.00, or 6 €.",
    "Acme® and Foo™\n\n• one\n• two",
    "J.\xa0Smith",
]


@pytest.mark.parametrize("text", TYPED)
@pytest.mark.parametrize("repeated", [1, 30])
def test_english_with_marks_of_word_processors(text, repeated):
    """The most frequent text that is not UTF-8: no letter beyond ASCII says its language."""
    text = "\n".join([text] * repeated)
    assert find_encoding(text.encode("cp1252")) == (text, "cp1252", 0.9)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp850", "voilà là-bas"), ("cp932", "東京の本田"), ("gb18030", "他说：“茶。”")],
)
def test_letters_of_others_are_no_marks(encoding, text):
    """Their bytes are such marks, too, but elsewhere."""
    assert find_encoding(text.encode(encoding))[:2] == (text, encoding)


def test_one_letter_is_a_guess():
    """What a single letter cannot show is said to be a guess; nothing is refused where most letters
    are ASCII.
    """
    found = find_encoding("Labas rytas, kaip sekasi šiandien?".encode("cp1257"))
    assert found.confidence < 0.8
    assert "guessed" in found.metadata["notes"][0]
    assert decode("Where Ðß÷ means nothing in any language.".encode("cp1252"))


@pytest.mark.parametrize("declared", [None, "latin-1", "gbk", "no-such-encoding"])
def test_utf8_goes_before_what_is_declared(declared):
    """A text that is valid UTF-8 is read so, whatever it says of itself."""
    assert decode(MIXED.encode(), declared=declared) == MIXED


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", [GERMAN, FRENCH, "Tea.\r\n", "Tea 绿茶: green tea from Hangzhou.\r\n"]
)
def test_utf16_without_mark(encoding, text):
    """A text in Latin letters is read from UTF-16 without a byte order mark, too."""
    assert decode(text.encode(encoding)) == text


WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
LANGUAGES = [CHINESE, TRADITIONAL, JAPANESE, KOREAN, RUSSIAN, MIXED]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("encoding", "text"),
    [*((encoding, text) for encoding in WIDE for text in LANGUAGES), ("gb18030", TRADITIONAL)],
    ids=lambda value: value[:10],
)
def test_rare_encodings_are_read_or_refused(encoding, text):
    """UTF-16 and UTF-32 without a mark, and rare scripts in GB 18030, are read or refused, never
    misread.
    """
    try:
        assert decode(text.encode(encoding)) == text
    except LoadError as refused:
        assert "UTF-8" in str(refused)  # noqa: PT017  reading it right is as good


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", CHINESE),
        ("gbk", CHINESE),
        ("gb2312", CHINESE),
        ("big5", TRADITIONAL),
        ("shift_jis", JAPANESE),
        ("euc_jp", JAPANESE),
        ("euc_kr", KOREAN),
        ("cp1251", RUSSIAN),
        ("koi8_r", RUSSIAN),
        ("cp1252", FRENCH),
        ("latin-1", GERMAN),
        ("cp1252", GERMAN),
    ],
    ids=lambda value: value[:10],
)
@pytest.mark.parametrize("repeated", [1, 40])
def test_legacy_encodings(encoding, text, repeated):
    """Some sentences, or some pages of them, are read right from each legacy encoding that is
    common.
    """
    whole = "\r\n".join([text] * repeated)
    assert decode(whole.encode(encoding)) == whole


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", "春天采的茶最好，夏天的茶味道苦一些。"),
        ("big5", "春天採的茶最好，夏天的茶味道苦一些。"),
        ("shift_jis", "緑茶は発酵させていないお茶で、摘んだあとすぐに蒸して作ります。"),
        ("euc_jp", "緑茶は発酵させていないお茶で、摘んだあとすぐに蒸して作ります。"),
        ("euc_kr", "녹차는 발효시키지 않은 차로, 잎을 딴 뒤 바로 열을 가해 만든다."),
        ("cp1251", "Зелёный чай не подвергают ферментации."),
        ("cp1252", "Après la cueillette, les feuilles sont chauffées aussitôt."),
        ("latin-1", "Schöne Grüße"),
    ],
    ids=lambda value: value[:10],
)
def test_one_sentence_is_enough(encoding, text):
    """A single sentence is read right from a legacy encoding."""
    assert decode(text.encode(encoding)) == text


def test_mixed_chinese_and_english_in_gbk():
    """A few Chinese words in an English text are enough to read GBK."""
    text = (
        "Release notes, version 2.0\r\n- faster search\r\n- fixed login (登录问题已修复)\r\n" * 20
    )
    assert decode(text.encode("gbk")) == text


@pytest.mark.parametrize("word", ["绿茶", "北京", "数据", "深圳", "浏览", "尴尬", "深圳市", "瓷器"])
def test_a_chinese_word_in_gb18030(word):
    """A file of one common Chinese word is read right from GB 18030."""
    assert decode(word.encode("gb18030")) == word


def test_four_byte_characters_in_gb18030():
    """Characters that only GB 18030's four bytes can write, such as emoji, are read with the
    rest.
    """
    text = CHINESE + "\U0001f375 café"
    assert decode(text.encode("gb18030")) == text


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("gb2312", "gbk", "朱镕基总理"),  # 镕 is not in GB 2312, but pages say so
        ("big5", "big5", "綠茶"),
        ("Shift_JIS", "cp932", "①髙橋"),
        ("iso-8859-1", "cp1252", "“thé”"),
        ("us-ascii", "cp1252", "“thé”"),
        ("euc-kr", "cp949", "녹차"),
        ("koi8-r", "koi8_r", "чай"),
    ],
)
def test_the_declared_encoding_decides_short_texts(declared, encoding, text):
    """What a page says of itself is followed where the text is no UTF-8, in the superset that
    browsers use.
    """
    assert decode(text.encode(encoding), declared=declared) == text


@pytest.mark.parametrize("declared", ["", "no-such", "hex", "utf-8", "undefined", "x-user-defined"])
def test_a_wrong_declaration_does_no_harm(declared):
    """A declared encoding that is unknown, no text encoding or contradicted by the bytes is passed
    over.
    """
    assert decode(CHINESE.encode("gb18030"), declared=declared) == CHINESE


@pytest.mark.parametrize("byte", [b"\xff", b"\x80", b"\xe7", b"\xc3"])
def test_one_broken_byte_in_utf8(byte):
    """A broken byte in the middle of a UTF-8 text costs one character, U+FFFD, and no other."""
    before, after = CHINESE * 3, TRADITIONAL * 3
    assert decode(before.encode() + byte + after.encode()) == before + "\ufffd" + after


def test_utf8_cut_inside_a_character():
    """A UTF-8 text that was cut off inside a character keeps all whole characters."""
    cut = (CHINESE * 2).encode()[:-1]
    assert decode(cut) == (CHINESE * 2)[:-1] + "\ufffd"


def test_nul_and_control_characters_become_spaces():
    """NUL and other control characters each become a space; tabs and line ends stay, as does the
    length.
    """
    assert decode(b"al\x00pha\tbeta\x07\r\ngamma\x7f\x1f") == "al pha\tbeta \r\ngamma  "


def test_nul_bytes_in_chinese_text():
    """A NUL in a Chinese text does not keep it from being read, in UTF-8 and in GB 18030."""
    text = CHINESE + "\x00" + CHINESE
    assert decode(text.encode()) == text.replace("\x00", " ")
    assert decode((text * 3).encode("gb18030")) == (text * 3).replace("\x00", " ")


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
def test_no_bytes_are_no_text(data):
    """An empty file, or one that holds nothing but a byte order mark, is the empty text."""
    assert decode(data) == ""


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 8,
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x00\x00\x01\x00\x08\x06\x00\x00\x00\\r\xa8f",
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00" + bytes(range(128, 256)) * 4 + b"\x00" * 40,
        b"\x7fELF\x02\x01\x01" + b"\x00" * 57,
        b"\x00" * 100,
        b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xdb\x00C\x00\x08\x06\x06\x07\x06\x05",
    ],
    ids=["all bytes", "png", "zip", "elf", "zeros", "jpeg"],
)
def test_binary_is_refused(data):
    """Bytes that are no text are refused with a message that says what to do."""
    with pytest.raises(LoadError, match="save it again as UTF-8"):
        decode(data)


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE])
def test_a_mark_that_the_bytes_contradict(mark):
    """A byte order mark before bytes that are not of its encoding is reported with the place of the
    first one.
    """
    with pytest.raises(LoadError, match=r"which byte \d+ contradicts"):
        decode(mark + b"\xff\xff\xff")


def test_documents_read_every_encoding_alike(folder):
    """The same text saved in six encodings gives six documents with one text."""
    encodings = ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030", "gbk"]
    docs = Document(folder({f"{encoding}.txt": CHINESE.encode(encoding) for encoding in encodings}))
    assert {node.path: node.text for node in docs.get_nodes()} == {
        f"{one}.txt": CHINESE for one in encodings
    }


TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\r"), max_size=400
)


@given(TEXTS)
def test_utf8_round_trip(text):
    """Whatever text is saved as UTF-8 is read back character by character."""
    assume(not text.startswith("\ufeff"))  # that is the byte order mark
    assert decode(text.encode()) == text


@given(TEXTS, st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]))
def test_round_trip_with_a_mark(text, encoding):
    """Whatever text is saved with a byte order mark is read back character by character."""
    assert decode(text.encode(encoding)) == text


WORDS = (
    "我们 你们 他们 中国 北京 上海 公司 工作 时间 问题 数据 信息 管理 技术 服务 产品 市场 经济 社会 发展 国家 政府 "
    "人民 企业 项目 合同 文件 会议 报告 结果 方法 使用 可以 需要 进行 通过 如果 因为 所以 但是 以及 根据 关于 已经 "
    "没有 非常 今天 明天 昨天 上午 下午"
).split()
NOUNS = (
    "电话 地址 姓名 价格 数量 日期 说明 更新 版本 用户 密码 登录 网络 电脑 手机 绿茶 红茶 茶叶 春天 夏天 秋天 冬天 "
    "老师 孩子 朋友 医院 汽车 火车 飞机 房子 身体 健康 音乐 电影 新闻 历史 语言 汉语 英语 数学 科学 研究 分析 测试 "
    "程序 系统 设计 质量 安全 环境 保护 资源 能源"
).split()
LINKS = "的 了 是 在 和 不 这 那 有 也 都 就 很 ， 。 、 ： ； ！ ？ \n".split(" ")


def _is_utf8_as_well(data: bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(
    st.lists(st.sampled_from(WORDS + NOUNS) | st.sampled_from(LINKS), min_size=1, max_size=120).map(
        "".join
    )
)
def test_gb18030_round_trip(text):
    """Everyday Chinese of two characters and more is read back from GB 18030, unless its bytes are
    UTF-8 as well.
    """
    data = text.encode("gb18030")
    assume(len(text.strip()) >= 2 and not _is_utf8_as_well(data))
    assert decode(data) == text


@given(st.lists(st.sampled_from(NOUNS), min_size=1, max_size=60).map("\n".join))
def test_gb18030_lists_of_words(text):
    """A list of everyday nouns, without the little words of sentences, is read back from GB 18030,
    too.
    """
    data = text.encode("gb18030")
    assume(not _is_utf8_as_well(data))
    assert decode(data) == text


POOLS = {
    "cp932": (
        "緑茶は発酵させない茶葉で、",
        "お湯の温度は八十度です。",
        "京都の宇治で作られる。",
        "カタカナのテキスト、",
        "Tea 80",
    ),
    "euc_jp": (
        "緑茶は発酵させない茶葉で、",
        "お湯の温度は八十度です。",
        "京都の宇治で作られる。",
        "カタカナのテキスト、",
    ),
    "cp949": (
        "녹차는 발효하지 않은 찻잎이다. ",
        "물의 온도는 팔십 도가 좋다. ",
        "보성에서 만든 차를 마신다. ",
        "Tea 80 ",
    ),
    "big5": (
        "綠茶是未經發酵的茶葉，",
        "水溫以八十度為宜。",
        "產於台灣的山區。",
        "他們說這是好茶。",
        "Tea 80",
    ),
    "gb18030": (
        "绿茶是未经发酵的茶叶，",
        "水温以八十度为宜。",
        "产于浙江的山区。",
        "他们说这是好茶。",
        "Tea 80",
    ),
    "cp1252": (
        "Grüner Tee wächst in Höhen über 800 m, ",
        "le thé vert n’est pas fermenté ",
        "à la température de 80 °C. ",
        "El té verde señala ",
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("encoding", POOLS)
@given(data=st.data())
def test_round_trip_in_legacy_encodings(encoding, data):
    """Sentences come back from the encoding of their language, and the one that is told gives the
    bytes again.
    """
    pieces = data.draw(st.lists(st.sampled_from(POOLS[encoding]), min_size=2, max_size=30))
    assume(sum(not piece.isascii() for piece in pieces) >= 2)
    text = "".join(pieces)
    written = text.encode(encoding)
    found = find_encoding(written)
    assert found.text == text
    assert text.encode(found.encoding) == written
    assert found.metadata["encoding"] == found.encoding  # a note says that a short text was guessed


@pytest.mark.parametrize(
    "text",
    [
        "Grüße aus München.",
        "Die Größe der Flächen beträgt zwölf Quadratmeter.",
        "Le café est fermé à midi.",
    ],
)
@pytest.mark.parametrize("byte", [b"\xc3", b"\xe4"])
def test_one_broken_byte_in_a_sentence(text, byte):
    """A sentence of UTF-8 with few letters beyond ASCII stays UTF-8."""
    assert find_encoding(text.encode() + byte)[:2] == (text + "\ufffd", "utf-8")


@pytest.mark.parametrize("text", ["œuvre", "Le cœur de la forêt.", "père", "où", "français"])
def test_short_french(text):
    """A few French letters are not taken for those of Polish or Czech."""
    assert find_encoding(text.encode("cp1252"))[:2] == (text, "cp1252")
