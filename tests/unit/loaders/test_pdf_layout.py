"""Text of PDF pages in reading order."""

from __future__ import annotations

import io
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf.generic import NameObject, NumberObject
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from lazyrag.loaders.pdf import PdfLoader
from lazyrag.loaders.pdf_layout import gap_text, joint, without_repeated_lines
from lazyrag.loaders.pdf_lines import is_chinese, logical_text
from tests.unit.loaders.test_pdf import changed, read_as

SONG, BATANG = "STSong-Light", "HYSMyeongJo-Medium"
for _font in (SONG, BATANG):
    pdfmetrics.registerFont(UnicodeCIDFont(_font))

HAN = st.sampled_from("茶绿红水温度发酵的是一あア々")
HANGUL = st.sampled_from("차녹홍물온도의")
LATIN = st.sampled_from("abcXYZ019.,-()éß")
LETTERS = st.one_of(HAN, HANGUL, LATIN)


def drawn(*texts, font="Helvetica", size=10) -> bytes:
    """A PDF of one page with texts at places: (across, up, text), or with a font of their own after
    these.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    for across, up, text, *own in texts:
        canvas.setFont(own[0] if own else font, own[1] if len(own) > 1 else size)
        canvas.drawString(across, up, text)
    canvas.showPage()
    canvas.save()
    return data.getvalue()


@pytest.fixture
def text_of(tmp_path):
    """A function that writes a PDF and returns its text."""

    def written_and_read(data: bytes, **arguments) -> str:
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        return PdfLoader(**arguments).load(path).text

    return written_and_read


def column(across, lines, top=700, step=12):
    """Lines beneath one another."""
    return [(across, top - step * at, line) for at, line in enumerate(lines)]


LEFT = [
    f"Left {word} line of the column that is filled."
    for word in ("first", "second", "third", "fourth")
]
RIGHT = [
    f"Right {word} line of the other column, too."
    for word in ("first", "second", "third", "fourth")
]


def test_columns_are_read_one_after_the_other(text_of):
    """Lines of two columns that stand side by side do not mix, in whichever order they were
    drawn.
    """
    rows = [one for pair in zip(column(60, LEFT), column(320, RIGHT), strict=True) for one in pair]
    title = (
        60,
        740,
        "A title that goes over both of the columns beneath it, and not over one of them alone.",
    )
    foot = (
        60,
        500,
        "What stands beneath both columns goes over the whole width of the page and is read last.",
    )
    assert text_of(drawn(title, *rows, foot)).split("\n") == [
        title[2],
        "",
        *LEFT,
        "",
        *RIGHT,
        "",
        foot[2],
    ]


def test_columns_need_not_be_level(text_of):
    """A right column whose lines stand between those of the left one is read after it."""
    read = text_of(drawn(*column(60, LEFT), *column(320, RIGHT, top=694)))
    assert read.split("\n") == [*LEFT, "", *RIGHT]


def narrow(word, count):
    """Lines of a narrow column."""
    return [f"{word} column, line {at}, as wide as all" for at in range(count)]


@pytest.mark.parametrize("count", [3, 4])
def test_any_number_of_columns(text_of, count):
    """Columns of different heights are read in turn, the first of which begins lower, beneath its
    title.
    """
    words = ["First", "Second", "Third", "Fourth"][:count]
    columns = [narrow(word, 9 - at) for at, word in enumerate(words)]
    placed = [(30, 733, "A title of the first", "Helvetica", 14), *column(30, columns[0])]
    for at, lines in enumerate(columns[1:], start=1):
        placed += column(30 + at * 140, lines, top=724)
    lines = text_of(drawn(*placed, size=8)).split("\n")
    expected = [placed[0][2]]
    for part in columns:
        expected += ["", *part]
    assert lines == expected


def test_a_heading_over_some_of_the_columns(text_of):
    """What is above a heading over two of three columns is read before it, in all columns."""
    words = ["First", "Second", "Third"]
    heading = (30, 600, "A heading over two of the columns that parts the page", "Helvetica", 11)
    placed = [heading]
    for at, word in enumerate(words):
        placed += column(30 + at * 150, narrow(word, 6))
        placed += column(30 + at * 150, narrow(f"{word} lower", 6), top=580)
    read = text_of(drawn(*placed, size=8))
    places = [read.index(f"{word} column, line 5") for word in words]
    places.append(read.index(heading[2]))
    places += [read.index(f"{word} lower column, line 0") for word in words]
    assert places == sorted(places)


def test_a_table_of_sentences_is_no_text_in_columns(text_of):
    """Cells of several lines that begin at the same heights are rows of a table."""
    placed = []
    for row, name in enumerate(["sencha", "assam", "oolong", "matcha"]):
        top = 700 - 50 * row
        placed += column(60, [f"What is said of {name} in a", f"cell, and more of {name}"], top)
        placed += column(320, [f"Another cell about {name}", f"that goes on with {name}"], top)
    lines = text_of(drawn(*placed)).split("\n")
    assert [line.count("|") > 0 for line in lines if line] == [True] * len([*filter(None, lines)])


TABLE = [
    ["Tea", "Degrees", "Minutes"],
    ["Sencha", "70", "2"],
    ["Assam", "", "4"],
    ["Pu-erh", "100", ""],
]


def table(rows, lefts=(60, 200, 330)):
    """Cells of a table without lines."""
    return [
        (left, 700 - 18 * at, cell)
        for at, row in enumerate(rows)
        for left, cell in zip(lefts, row, strict=True)
        if cell
    ]


def test_a_narrow_gap_is_one_between_columns(text_of):
    """Values of two columns that all but touch in some rows stay apart, as other rows show."""
    rows = [["1,117", "904"], ["2", "18"], ["36,947", "21"], ["8", "5"], ["41", "7"]]
    placed = []
    for at, (first, second) in enumerate(rows):
        up = 700 - 14 * at
        right = 160 - pdfmetrics.stringWidth(first, "Helvetica", 10)
        placed += [(60, up, "row"), (right, up, first), (166, up, second)]
    read = text_of(drawn(*placed))
    assert read.split("\n") == [f"row | {first} | {second}" for first, second in rows]


def test_blanks_in_one_string_part_columns(text_of):
    """A row drawn as one string, with several blanks between its values, has cells."""
    rows = [
        "Sencha        70          2",
        "Assam         95          4",
        "Gyokuro       60          2",
    ]
    read = text_of(drawn(*column(60, rows), font="Courier"))
    assert read.split("\n") == [" | ".join(row.split()) for row in rows]


def test_a_row_of_one_cell_is_part_of_its_table(text_of):
    """A name above some rows of a table does not part it."""
    rows = [["Green", "", ""], ["Sencha", "70", "2"], ["Black", "", ""], ["Assam", "95", "4"]]
    placed = table([TABLE[0], TABLE[1], *rows[2:]])
    assert text_of(drawn(*placed)).split("\n") == [
        "Tea | Degrees | Minutes",
        "Sencha | 70 | 2",
        "Black |",
        "Assam | 95 | 4",
    ]


def test_justified_lines_are_no_table(text_of):
    """Words that a justified line draws far apart are no cells."""
    texts = ["A line that is", "as wide as all", "far apart here", "wide apart too", "its last one"]
    full = "These lines are as wide as"
    wide = pdfmetrics.stringWidth(full, "Helvetica", 10)
    placed = column(60, [full] * 10, top=580)
    for at, text in enumerate(texts * 2):
        words = text.split()
        width = sum(pdfmetrics.stringWidth(word, "Helvetica", 10) for word in words)
        across = 60.0
        for word in words:
            placed.append((across, 700 - 12 * at, word))
            across += pdfmetrics.stringWidth(word, "Helvetica", 10)
            across += (wide - width) / (len(words) - 1)
    assert "|" not in text_of(drawn(*placed))


def test_sentences_that_end_with_two_blanks_are_no_table(text_of):
    """Two blanks of a typewriter after each sentence are no gap between cells."""
    lines = [
        "Green tea is not fermented.  The leaves are heated after they",
        "are picked and rolled. They are dried.  Black tea is fermented",
        "in moist air, and dried then.  Oolong is between both of them",
    ]
    read = text_of(drawn(*column(60, lines), font="Courier"))
    assert "|" not in read


def test_rows_of_a_table_are_lines(text_of):
    """A table without borders has a line for each row, and a value stays in its column where a cell
    is empty.
    """
    assert text_of(drawn(*table(TABLE))).split("\n") == [
        "Tea | Degrees | Minutes",
        "Sencha | 70 | 2",
        "Assam |  | 4",
        "Pu-erh | 100",
    ]


def test_a_table_stands_apart_from_text(text_of):
    """Sentences above and beneath a table have no bars."""
    above, beneath = (
        (60, 740, "How the teas are brewed:"),
        (60, 600, "Water has to boil first, of course."),
    )
    lines = text_of(drawn(above, *table(TABLE), beneath)).split("\n")
    assert (lines[0], lines[-1]) == (above[2], beneath[2])
    assert [line.count("|") for line in lines if line] == [0, 2, 2, 2, 1, 0]


def test_a_cell_of_several_lines_is_one_cell(text_of):
    """The second line of a cell joins the first one, as the table's rows are further apart than its
    lines.
    """
    cells = [
        *[(60, 700, "Tea"), (200, 700, "Where it grows")],
        *[
            (60, 670, "Assam"),
            (200, 670, "in the north-east of India,"),
            (200, 658, "along the Brahmaputra"),
        ],
        *[(60, 628, "Sencha"), (200, 628, "in Shizuoka")],
    ]
    assert text_of(drawn(*cells)).split("\n") == [
        "Tea | Where it grows",
        "Assam | in the north-east of India, along the Brahmaputra",
        "Sencha | in Shizuoka",
    ]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_values_level_with_any_line_of_a_cell(text_of, level):
    """Values beside the last, the middle or the first line of a cell of several are in its row."""
    placed = [(60, 700, "No"), (120, 700, "Tea"), (330, 700, "kg")]
    for row, name in enumerate(["sencha", "assam", "oolong"]):
        top = 670 - 60 * row
        lines = [f"What is said of {name}", f"goes on: {name} is", f"in its cell ({name})"]
        placed += column(120, lines, top)
        placed += [(60, top - 12 * level, str(row)), (330, top - 12 * level, "17")]
    rows = text_of(drawn(*placed)).split("\n")
    expected = ["No | Tea | kg"]
    for row, name in enumerate(["sencha", "assam", "oolong"]):
        cell = f"What is said of {name} goes on: {name} is in its cell ({name})"
        expected.append(f"{row} | {cell} | 17")
    assert rows == expected


@pytest.mark.parametrize("levels", [(0, 2), (0.5, 2.5), (1, 3)], ids=["top", "between", "bottom"])
def test_rows_beside_a_cell_that_spans_them(text_of, levels):
    """A merged cell is in one of its rows, and each of them is a line, however near they are."""
    rows = [("Sencha", "12", "480"), ("Bancha", "7", "90"), ("Assam", "30", "60"), ("Pu", "9", "8")]
    names = [(60, 700, "Kind"), (150, 700, "Tea"), (250, 700, "kg"), (330, 700, "EUR")]
    cells = [
        (left, 686 - 12 * at, cell)
        for at, row in enumerate(rows)
        for left, cell in zip((150, 250, 330), row, strict=True)
    ]
    kinds = [
        (60, 686 - 12 * level, kind) for level, kind in zip(levels, ["Green", "Black"], strict=True)
    ]
    lines = text_of(drawn(*names, *cells, *kinds)).splitlines()
    at_most_one = [line.replace("Green", "").replace("Black", "").strip(" |") for line in lines]
    assert at_most_one[-3:] == ["Bancha | 7 | 90", "Assam | 30 | 60", "Pu | 9 | 8"]
    assert "\n".join(lines).count("Green") == "\n".join(lines).count("Black") == 1


def test_a_figure_beside_prose(text_of):
    """The labels of a chart beside a column of prose do not get into its lines."""
    lines = [f"Line {at} of a column that is filled with words" for at in range(12)]
    labels = [(330 + 40 * at, 690 - 17 * at, f"{at}0") for at in range(5)]
    read = text_of(drawn(*column(60, lines), *labels))
    assert "\n".join(lines) in read


def test_a_chinese_table(text_of):
    """Chinese cells are kept apart, too."""
    rows = [["品名", "水温", "时间"], ["碧螺春", "80度", "2分钟"], ["大红袍", "100度", "1分钟"]]
    assert text_of(drawn(*table(rows), font=SONG)).split("\n") == [" | ".join(row) for row in rows]


def test_numbered_items_are_no_table(text_of):
    """A number and the text far beside it are one line without a bar."""
    items = [
        (60, 700, "1."),
        (84, 700, "Boil water."),
        (60, 685, "2."),
        (84, 685, "Wait a little."),
    ]
    assert text_of(drawn(*items)) == "1. Boil water.\n2. Wait a little."


def test_lines_of_a_chinese_paragraph_are_joined(text_of):
    """Where a full line ends inside a Chinese paragraph there is nothing; a paragraph's last line
    ends it.
    """
    lines = ["绿茶是未经发酵的茶叶，保留了鲜叶的天然物", "质，杀青时间很短。"]
    lines += ["红茶是全发酵的茶叶，汤色红亮，滋味醇厚甘", "甜。"]
    read = text_of(drawn(*column(60, lines, step=14), font=SONG))
    assert read.split("\n") == [lines[0] + lines[1], lines[2] + lines[3]]


def test_english_in_a_chinese_paragraph_keeps_its_blanks(text_of):
    """A line that ends with an English word goes on after a blank, where the next begins with
    one.
    """
    lines = ["绿茶的加工在春天进行，其中一种叫做 Dragon", "Well 的茶叶产于杭州。"]
    read = text_of(drawn(*column(60, lines, step=14), font=SONG))
    assert read == "绿茶的加工在春天进行，其中一种叫做 Dragon Well 的茶叶产于杭州。"


def test_blanks_that_writers_put_between_chinese_characters_go(text_of):
    """A blank of a quarter of a character is no blank; one as wide as a letter is."""
    assert text_of(drawn((60, 700, "持股比"), (91.5, 700, "例为"), font=SONG)) == "持股比例为"
    assert text_of(drawn((60, 700, "张三"), (88, 700, "李四"), font=SONG)) == "张三 李四"


def test_korean_and_english_keep_blanks_and_lines(text_of):
    """Korean is written with blanks, and lines of other scripts stay lines."""
    korean = ["녹차는 발효하지 않은 차이다. 물의 온도는", "팔십 도가 좋다."]
    assert text_of(drawn(*column(60, korean, step=14), font=BATANG)).split("\n") == korean
    english = ["Green tea is not fermented. The water has about", "eighty degrees."]
    assert text_of(drawn(*column(60, english))).split("\n") == english


def test_divided_words_are_whole_again(text_of):
    """A hyphen at the end of a line goes, if the word goes on beneath; one that belongs to the word
    stays.
    """
    lines = [
        "The leaves undergo fermen-",
        "tation under state-of-",
        "the-art control in 2024-",
        "2025.",
    ]
    assert text_of(drawn(*column(60, lines))) == (
        "The leaves undergo fermentation under state-of-the-art control in 2024-\n2025."
    )


def test_paragraphs_that_stand_apart_have_an_empty_line_between(text_of):
    """A wider step than from line to line is an end of a paragraph."""
    lines = [
        (60, 700, "One line."),
        (60, 688, "Another."),
        (60, 676, "A third."),
        (60, 650, "A paragraph."),
    ]
    assert text_of(drawn(*lines)) == "One line.\nAnother.\nA third.\n\nA paragraph."


def test_words_drawn_in_any_order_are_lines(text_of):
    """Words that stand side by side are a line, whenever they were drawn."""
    words = [(110, 688, "down"), (60, 700, "Green"), (60, 688, "poured"), (92, 700, "tea")]
    assert text_of(drawn(*words)) == "Green tea\npoured down"


def test_letters_drawn_twice_are_read_once(text_of):
    """Bold letters that are drawn again a little aside do not double the text."""
    assert text_of(drawn((60, 700, "Green tea"), (60.2, 700, "Green tea"))) == "Green tea"


def test_a_raised_number_stays_in_its_line(text_of):
    """An exponent is part of its line."""
    assert (
        text_of(drawn((60, 700, "10 km"), (83.7, 704, "2", "Helvetica", 6), (90, 700, "of tea")))
        == "10 km2 of tea"
    )


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turned_pages_are_read(text_of, degrees):
    """The lines of a page that is turned when it is shown, and was written to be so, come in their
    order.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.translate(300, 400)
    canvas.rotate(degrees)
    for at, line in enumerate(["First line", "second line", "third line"]):
        canvas.drawString(0, -14 * at, line)
    canvas.save()
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data.getvalue()))
    writer.pages[0][NameObject("/Rotate")] = NumberObject(degrees)
    target = io.BytesIO()
    writer.write(target)
    assert text_of(target.getvalue()) == "First line\nsecond line\nthird line"


def test_a_stamp_along_the_edge_stands_last(text_of):
    """What is turned against the page does not break into its lines."""
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.saveState()
    canvas.translate(30, 300)
    canvas.rotate(90)
    canvas.drawString(0, 0, "Stamp of the archive")
    canvas.restoreState()
    for at in range(20):
        canvas.drawString(60, 700 - 14 * at, f"Line {at}")
    canvas.save()
    lines = text_of(data.getvalue()).split("\n")
    assert lines == [*[f"Line {at}" for at in range(20)], "", "Stamp of the archive"]


def test_lines_that_run_downwards(text_of):
    """Letters beneath one another are lines, in the order in which they were drawn."""
    words = ["GREENTEAISDRIED", "BLACKTEAISCURED", "OOLONGISBETWEEN"]
    placed = [
        (300 - 30 * at, 700 - 12 * down, one)
        for at, word in enumerate(words)
        for down, one in enumerate(word)
    ]
    assert text_of(drawn(*placed)).split("\n") == words


def test_vertical_chinese_is_read_from_the_right(text_of):
    """Lines that run downwards are read from right to left, in whichever order they were drawn, and
    those of a paragraph are joined.
    """
    lines = ["绿茶是未经发酵的茶叶保留鲜叶", "的天然物质杀青时间很短", "红茶是全发酵的茶叶汤色红亮"]
    characters = dict.fromkeys("".join(lines))
    letters = dict(zip(characters, map(chr, range(ord("A"), 127)), strict=False))
    placed = []
    for at in (1, 0, 2):
        for down, one in enumerate(lines[at]):
            placed.append((300 - 20 * at, 700 - 11 * down, letters[one]))
    data = changed(drawn(*placed), read_as({letter: one for one, letter in letters.items()}))
    assert text_of(data) == lines[0] + lines[1] + "\n" + lines[2]


def test_what_stands_at_the_head_and_foot_of_pages_can_be_dropped(text_of):
    """Repeated heads and page numbers go where that is asked for, and stay where not; the first
    words stay.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    for number, word in enumerate(["sencha", "assam", "oolong", "pu-erh"], start=1):
        canvas.drawString(60, 780, "Annual tea report")
        canvas.drawString(60, 700, f"All about {word}.")
        canvas.drawString(300, 40, f"Page {number} of 4")
        canvas.showPage()
    canvas.save()
    kept, dropped = text_of(data.getvalue()), text_of(data.getvalue(), drop_repeated=True)
    assert kept.count("Annual tea report") == 4
    assert dropped == "\n\n".join(
        f"All about {word}." for word in ("sencha", "assam", "oolong", "pu-erh")
    )


def test_two_pages_alike_are_no_head():
    """Nothing is taken for repeated in a file of two pages."""
    assert without_repeated_lines(["Tea\na", "Tea\nb"]) == ["Tea\na", "Tea\nb"]


@pytest.mark.slow
def test_many_threads_read_at_once(tmp_path):
    """pdfium, which cannot be used by two threads, is: each file gets its own text."""
    paths = []
    for number in range(12):
        paths.append(tmp_path / f"{number}.pdf")
        paths[-1].write_bytes(drawn(*column(60, [f"File {number}, line {at}" for at in range(30)])))
    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda path: PdfLoader().load(path).text, paths * 3))
    assert [text.split(",")[0] for text in texts] == [f"File {number}" for number in range(12)] * 3
    assert all(text.endswith("line 29") for text in texts)


ARABIC_OF = {
    "s": "ش",
    "a": "ا",
    "y": "ي",
    "d": "ض",
    "r": "أ",
    "k": "خ",
    "l": "لا",
    "f": "\ufefb",
    "m": "م\u0651",
}


def arabic(draw) -> bytes:
    """A PDF whose Latin letters read as Arabic ones, drawn from left to right, as PDF writers
    do.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.setFont("Courier", 10)
    draw(canvas)
    canvas.save()
    return changed(data.getvalue(), read_as({**ARABIC_OF, **{one: one for one in "12TE"}}))


@pytest.mark.parametrize(
    ("drawn_as", "text"),
    [
        ("dkr yas", "شاي أخض"),
        ("dkr 12 yas", "شاي 12 أخض"),
        ("dkr TE yas", "شاي TE أخض"),
        ("yls", "شلاي"),
        ("yfs", "شلاي"),
        ("amy", "يم\u0651ا"),
    ],
)
@pytest.mark.parametrize("spacing", [0, 1.2])
def test_arabic_lines(text_of, drawn_as, text, spacing):
    """A line drawn from left to right reads from right to left, letter-spaced or not, with
    ligatures and marks.
    """
    assert (
        text_of(arabic(lambda canvas: canvas.drawString(200, 700, drawn_as, charSpace=spacing)))
        == text
    )


@pytest.mark.parametrize("order", [1, -1])
def test_arabic_letters_drawn_one_by_one(text_of, order):
    """Single letters become words in either drawing order."""
    placed = [(400 - 6 * at, 700, letter) for at, letter in enumerate("say rkd")]

    def draw(canvas) -> None:
        for across, up, letter in placed[::order]:
            canvas.drawString(across, up, letter)

    assert text_of(arabic(draw)) == "شاي أخض"


@pytest.mark.parametrize("spacing", [-0.5, 0, 0.5, 1, 1.5, 2, 3, 5])
@pytest.mark.parametrize("word_spacing", [0, 4])
def test_letter_spaced_words_stay_words(text_of, spacing, word_spacing):
    """Character spacing between letters is no space."""
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.drawString(60, 700, "LETTER SPACED TEXT", charSpace=spacing, wordSpace=word_spacing)
    canvas.save()
    assert text_of(data.getvalue()) == "LETTER SPACED TEXT"


@pytest.mark.parametrize("kerning", [-30, 80, 150])
def test_kerned_letters_stay_words(text_of, kerning):
    """Adjustments between the letters of a string are no spaces, up to a sixth of the font size."""
    data = io.BytesIO()
    canvas = Canvas(data)
    shown = " ".join(f"({letter}) {-kerning}" for letter in "GREEN TEA")
    canvas._code.append(f"BT 1 0 0 1 60 700 Tm /F1 10 Tf [{shown}] TJ ET")
    canvas.save()
    assert text_of(data.getvalue()) == "GREEN TEA"


def test_a_no_break_space_is_a_blank(text_of):
    """U+00A0 parts words, however narrow it is."""
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.drawString(60, 700, "In\xa0FY\xa02011 the\xa0FBI began", charSpace=-0.4)
    canvas.save()
    assert text_of(data.getvalue()) == "In FY 2011 the FBI began"


@pytest.mark.parametrize("gap", [0, 0.3, 4])
def test_words_drawn_in_parts(text_of, gap):
    """Parts of a word without a gap between them are one word, and others two, though none has a
    blank.
    """
    width = pdfmetrics.stringWidth("steamed", "Helvetica", 10) + gap
    text = text_of(drawn((60, 700, "steamed"), (60 + width, 700, "leaves"), (60, 680, "of tea")))
    assert text.splitlines()[0] == ("steamedleaves" if gap < 1 else "steamed leaves")


def test_a_narrow_blank_that_is_not_drawn(text_of):
    """A gap of an eighth of the font size is a blank where other letters have no gap."""
    words = ["The", "Bureau", "initiated", "235", "investigations"]
    across = 60.0
    placed = []
    for word in words:
        placed.append((across, 700, word))
        across += pdfmetrics.stringWidth(word, "Helvetica", 10) + 1.25
    assert text_of(drawn(*placed)) == " ".join(words)


def test_short_words_keep_their_blanks(text_of):
    """Marks and numbers before short words are no letter-spaced text."""
    items = ["1. No", "2. Ink", "A to do", "B an ox", "If so", "As is"]
    lines = []
    for at, item in enumerate(items * 3):
        across = 60
        for word in item.split():
            lines.append((across, 700 - 20 * at, word))
            across += pdfmetrics.stringWidth(word, "Helvetica", 10) + 3
    assert text_of(drawn(*lines)).split("\n") == items * 3


@given(st.lists(HANGUL, min_size=1).map("".join), st.lists(HANGUL, min_size=1).map("".join))
def test_korean_lines_stay_apart(first, second):
    """No line of Korean is joined to the next one."""
    assert joint(first, second) == (0, "\n")


@given(LETTERS, LETTERS, st.floats(0, 1), st.booleans())
def test_blanks_in_a_line_depend_on_its_letters(before, after, gap, blank):
    """A drawn blank is one for every script but Chinese; without it and without a gap there is
    none.
    """
    told = gap_text(before, after, gap, blank=blank)
    if blank and not (is_chinese(before) and is_chinese(after)):
        assert told == " "
    if not blank and gap < 0.1:
        assert told == ""


ARABIC = st.sampled_from("شايءبتحخ")


@given(
    st.lists(st.lists(ARABIC, min_size=1, max_size=6).map("".join), min_size=1, max_size=5),
    st.randoms(),
)
def test_arabic_is_read_from_the_right_however_it_was_drawn(words, chance):
    """Letters that stand from right to left become words in their order, whichever of them was
    drawn first.
    """
    pieces = []
    at = 500.0
    for word in words:
        for letter in word:
            pieces.append((letter, at - 5, at))
            at -= 5
        at -= 4
    chance.shuffle(pieces)
    assert logical_text(pieces, 2) == " ".join(words)


def test_marks_stay_on_their_letters():
    """A vowel mark follows the letter that it was drawn over."""
    drawn_as = [("ح", 20, 25), ("\u064e", 21, 22), ("ب", 15, 20)]
    assert logical_text(drawn_as, 2) == unicodedata.normalize("NFC", "ح\u064eب")
