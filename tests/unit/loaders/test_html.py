"""HTML as a browser shows it: what a reader sees is there, in order, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.html import HtmlLoader, main_markup, read_html
from tests.shared import shared


def text_of(markup: str) -> str:
    """The text that is read from a page."""
    return read_html(markup).text


def under(markup: str) -> list[tuple[str, str]]:
    """Each heading's label, and the text of its place."""
    page = read_html(markup)
    return [
        (location.label, page.text[location.start : location.end]) for location in page.locations
    ]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>green   tea\n\t from  China</p>", "green tea from China"),
        ("<p>\n  green tea \n</p>\n", "green tea"),
        ("<p>green <b>tea</b> !</p>", "green tea !"),
        ("<p>green<b> tea </b>!</p>", "green tea !"),
        ("<p>green <b> tea</b></p>", "green tea"),
        ("<p>gr<b>ee</b>n</p>", "green"),
        ("<p>green<span> </span>tea</p>", "green tea"),
        ("<p>green\n<b>tea</b></p>", "green tea"),
    ],
)
def test_white_space_is_folded(markup, text):
    """Runs of white space become one space, also across tags, and none is invented inside words."""
    assert text_of(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("<div>a<div>b</div>c</div>", "a\nb\nc"),
        ("a<br>b", "a\nb"),
        ("a<br/>b<br />c", "a\nb\nc"),
        ("<p>a<br>b</p>", "a\nb"),
        ("a<hr>b", "a\n\nb"),
        ("<section><p>a</p></section><footer>b</footer>", "a\n\nb"),
        ("<h1>a</h1>b", "a\n\nb"),
        ("<blockquote>a</blockquote>b", "a\n\nb"),
        ("<p>a</p>\n\n\n<div></div>\n<p>b</p>", "a\n\nb"),
        ("<dl><dt>a</dt><dd>b</dd></dl>", "a\nb"),
        ("<span>a</span><span>b</span>", "ab"),
        ("<p>a</p>b", "a\n\nb"),
    ],
)
def test_blocks_stand_on_lines_of_their_own(markup, text):
    """Blocks begin and end lines, paragraphs and headings leave an empty line, inline elements
    neither.
    """
    assert text_of(markup) == text


@pytest.mark.parametrize(
    "tag", ["center", "menu", "dir", "hgroup", "search", "article", "main", "address"]
)
def test_words_of_neighbouring_blocks_are_not_joined(tag):
    """No element that browsers set apart joins its words with those around it."""
    assert text_of(f"<div>before<{tag}>inside</{tag}>after</div>").split() == [
        "before",
        "inside",
        "after",
    ]


def test_two_line_breaks_leave_an_empty_line():
    """Two <br>, by which many pages part paragraphs, leave an empty line as in a browser."""
    assert (
        text_of("first paragraph<br><br>second paragraph") == "first paragraph\n\nsecond paragraph"
    )


@pytest.mark.parametrize("tag", ["script", "style", "template", "noscript", "nav", "svg"])
def test_what_no_reader_sees_is_left_out(tag):
    """Scripts, styles, templates and navigation are left out; the text around them is not."""
    markup = f"<div>before <{tag}>unseen <b>too</b></{tag}> after</div><p>end</p>"
    assert text_of(markup).split() == ["before", "after", "end"]


def test_words_around_a_left_out_block_are_not_joined():
    """Navigation that stands between two texts without white space keeps them apart."""
    assert text_of("<div>before<nav><a>menu</a></nav>after</div>").split() == ["before", "after"]


def test_a_script_inside_a_word_does_not_split_it():
    """A script is nothing: a word around it stays one."""
    assert text_of("<p>gr<script>x</script>een</p>") == "green"


def test_comments_are_left_out():
    """Comments are left out, inside words and between blocks, and conditional ones with markup in
    them.
    """
    assert text_of(
        "<p>gr<!-- x > y -->een</p><!-- <p>no</p> --><p>tea<!--[if IE]><p>no</p><![endif]--></p>"
    ) == ("green\n\ntea")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a &amp; b &lt;c&gt;</p>", "a & b <c>"),
        ("<p>caf&eacute; &#33590;&#x8336;</p>", "café 茶茶"),
        ("<p>a&nbsp;b&nbsp;&nbsp;c</p>", "a b c"),
        ("<p>&#x1F375;</p>", "\U0001f375"),
        ("<p>&hellip;&mdash;&ldquo;x&rdquo;</p>", "…—“x”"),
        ("<p>R&D &unknown; 1 < 2</p>", "R&D &unknown; 1 < 2"),
        ("<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>", "<script>alert(1)</script>"),
    ],
)
def test_entities(markup, text):
    """Entities become their characters; what is none stays as it was written."""
    assert text_of(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<pre>a\n  b\n\nc</pre>", "a\n  b\n\nc"),
        ("<pre>\na  b</pre>", "a  b"),
        ("<p>x</p><pre>a\n b</pre><p>y  z</p>", "x\n\na\n b\n\ny z"),
        ("<pre>a <b> b </b> c</pre>", "a  b  c"),
        ("<pre><code>if x:\n    y()\n</code></pre>", "if x:\n    y()"),
    ],
)
def test_preformatted_text_keeps_its_white_space(markup, text):
    """In <pre> lines and indentation stay, tags inside it or not; behind it white space is folded
    again.
    """
    assert text_of(markup).rstrip("\n") == text


def test_tables_are_read_row_by_row():
    """Each row is a line with | between its cells, which keep their columns; empty ones at its end
    leave no mark.
    """
    markup = """
    <table><caption>Prices</caption>
      <thead><tr><th>Tea</th><th>Price</th></tr></thead>
      <tbody><tr><td>green</td><td>10</td></tr>
      <tr><td></td><td>20</td><td> </td></tr>
      <tr><td>red</td><td></td><td>30</td></tr></tbody>
    </table>after"""
    assert text_of(markup) == "Prices\nTea | Price\ngreen | 10\n | 20\nred |  | 30\n\nafter"


def test_cells_stay_on_their_row_s_line():
    """Blocks, lists and line breaks inside a cell are folded into its row."""
    markup = "<table><tr><td><p>a</p><p>b</p></td><td>c<br>d<ul><li>e</li><li>f</li></ul></td></tr></table>"
    assert text_of(markup) == "a b | c d e f"


def test_nested_tables_keep_all_cells():
    """A table inside a cell is read where it stands; no cell of either is lost and none are
    joined.
    """
    markup = (
        "<table><tr><td>a</td><td>b<table><tr><td>c</td><td>d</td></tr><tr><td>e</td></tr></table>f</td><td>g</td></tr>"
        "<tr><td>h</td><td>i</td></tr></table>"
    )
    text = text_of(markup)
    assert text.replace("|", " ").split() == list("abcdefghi")
    assert "c | d" in text.splitlines()
    assert text.splitlines()[-1] == "h | i"


def test_tables_with_names_are_data_whatever_is_in_their_cells():
    """Headings, code and tables in the cells of a table that has column names stay in their rows;
    none is layout.
    """
    markup = (
        "<table><tr><th>Tea<th>Steps<th><h3>Kinds</h3></tr><tr><td>green<td><pre>boil\n  wait</pre>"
        "<td>old<table><tr><th>name<th>kg<tr><td>Sencha<td>4</table>new</tr><tr><td>black<td>boil<td>none</table>"
    )
    page = read_html(markup)
    assert page.text.splitlines() == [
        "Tea | Steps | Kinds",
        "green | boil wait | old name, kg; Sencha, 4 new",
        "black | boil | none",
    ]
    [table] = page.tables
    assert (table.start, table.end) == (0, len(page.text))


def test_many_tables_within_each_other():
    """Tables with column names nested to any depth end as a text, with each name once."""
    for depth in (3, 60, 200):
        markup = (
            "".join(f"<table><tr><th>n{at}</th><td>" for at in range(depth))
            + "x"
            + "</td></tr></table>" * depth
        )
        text = text_of(markup)
        assert all(text.count(f"n{at}") >= 1 for at in range(depth))
        assert len(text) < 20 * depth


def test_layout_tables_keep_their_blocks():
    """A page that is laid out by a table with tables in its cells keeps lines and paragraphs."""
    markup = (
        "<table><tr><td><p>one</p><p>two</p><table><tr><td>x</td></tr></table></td></tr></table>"
    )
    assert text_of(markup) == "one\n\ntwo\n\nx"


def test_lists():
    """List items stand on lines of their own, nested ones below theirs."""
    text = text_of("<ul><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ul>e")
    assert [line for line in text.splitlines() if line] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("markup", "lines"),
    [
        ("<ol><li>a<li>b</ol><p>c</p><ol><li>d</ol>", ["1. a", "2. b", "c", "1. d"]),
        ("<ol start=3><li>a<li value=7>b<li>c</ol>", ["3. a", "7. b", "8. c"]),
        ("<ol><li><p>a</p><p>b</p></li><li><h2>c</h2></ol>", ["1. a", "b", "2. c"]),
        ("<ol><li>a<ol><li>b</ol></li><li>c<ul><li>d</ul></ol>", ["1. a", "1. b", "2. c", "d"]),
        ("<ol><li></li><li>b</li></ol>", ["1.", "2. b"]),
        ("<ol start=x reversed><li>a</ol><ol start=x><li>b</ol>", ["a", "1. b"]),
        ("<table><tr><td>x<ol><li>a<li>b</ol></td><td>c</td></tr></table>", ["x 1. a 2. b | c"]),
        ("<ol><li><pre>a\n  b</pre></ol>", ["1. a", "  b"]),
    ],
)
def test_ordered_lists_have_their_numbers(markup, lines):
    """Items of ordered lists are numbered as a browser numbers them, whatever blocks they hold."""
    assert [line for line in text_of(markup).splitlines() if line] == lines


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>绿茶是未经发酵的\n茶叶</p>", "绿茶是未经发酵的茶叶"),
        ("<p>绿茶，\n    味道鲜爽</p>", "绿茶，味道鲜爽"),
        ("<p>お茶を\nいれる</p>", "お茶をいれる"),
        ("<p>绿茶\r\n是茶</p>", "绿茶是茶"),
        ("<p>他说：\n“好茶”</p>", "他说：“好茶”"),
        ("<p>绿茶 green\ntea 茶</p>", "绿茶 green tea 茶"),
        ("<p>用 Python\n写的</p>", "用 Python 写的"),
        ("<p>绿茶\n<b>是茶</b>叶</p>", "绿茶是茶叶"),
        ("<p><b>绿茶</b>\n是茶</p>", "绿茶是茶"),
    ],
)
def test_chinese_lines_are_joined_without_spaces(markup, text):
    """The end of a source line inside Chinese text is nothing, beside Latin words it is a space."""
    assert text_of(markup) == text


def test_headings_become_places():
    """Each heading's place reaches from its first letter to the next heading, labelled with the
    headings above.
    """
    markup = "<p>before</p><h1>Tea</h1><p>leaves</p><h2> Green\n <i>tea</i> </h2><p>in April</p><h1>Coffee</h1>beans"
    assert under(markup) == [
        ("Tea", "Tea\n\nleaves\n\n"),
        ("Tea > Green tea", "Green tea\n\nin April\n\n"),
        ("Coffee", "Coffee\n\nbeans"),
    ]


def test_headings_without_words_are_none():
    """A heading that holds only a picture or white space makes no place."""
    assert under("<h1><img src='x'></h1><h2> </h2><p>a</p><h2>b</h2>") == [("b", "b")]


def test_headings_inside_headings_and_blocks():
    """Headings that damaged pages nest in one another all make places, and no word is lost."""
    page = read_html("<h1><div>Tea<h2>Picking</h2></div>leaves</h1><p>end</p>")
    assert page.text.split() == ["Tea", "Picking", "leaves", "end"]
    assert {location.label.rpartition(" > ")[2].split()[0] for location in page.locations} == {
        "Tea",
        "Picking",
    }


def test_headings_in_tables_and_preformatted_text_around_them():
    """A heading in a cell stands where its words are."""
    markup = "<pre>x\n y</pre><table><tr><td>a</td><td><h3>Tea</h3></td></tr></table><p>b</p>"
    assert under(markup) == [("Tea", "Tea\n\nb")]


@pytest.mark.parametrize("name", ["nav", "template"])
def test_headings_that_are_not_seen_make_no_places(name):
    """A heading inside what is left out makes no place."""
    assert under(f"<{name}><h1>Menu</h1></{name}><h2>Tea</h2><p>a</p>") == [("Tea", "Tea\n\na")]


def test_title_is_metadata():
    """The page's title is metadata, white space folded, and no part of the text."""
    page = read_html(
        "<html><head><title>\n Green   tea &amp; more</title></head><body><p>text</p></body></html>"
    )
    assert dict(page.metadata) == {"title": "Green tea & more"}
    assert page.text == "text"


def test_the_head_is_metadata():
    """Description, author and language are metadata; of two descriptions the page's own goes
    first.
    """
    page = read_html(
        "<html lang='zh-CN'><head><meta property='og:description' content='no'><meta name=Author content=' Li  Wei '>"
        "<meta name='description' content='On\n tea'></head><body>text</body></html>"
    )
    assert dict(page.metadata) == {"description": "On tea", "author": "Li Wei", "language": "zh-CN"}


LINKED_DATA = "<script type='application/ld+json'>%s</script>"
PUBLISHED = "<meta property='article:published_time' content='2024-05-01T08:00Z'>"
POSTED = '{"@type": "Article", "datePublished": "2024-05-01", "author": %s}'


@pytest.mark.parametrize(
    ("markup", "author", "date"),
    [
        ("<meta name=author content=Li><meta name=date content=2024-05-01>", "Li", "2024-05-01"),
        (
            f"<meta property='article:author' content='https://e.com/li'>{PUBLISHED}",
            None,
            "2024-05-01T08:00Z",
        ),
        (LINKED_DATA % POSTED % '{"name": "Li"}', "Li", "2024-05-01"),
        (
            LINKED_DATA % POSTED % '[{"name": "Li"}, "Wang", {"@id": "#x"}]',
            "Li, Wang",
            "2024-05-01",
        ),
        (LINKED_DATA % '{"@graph": [{"@type": "WebSite"}, %s]}' % POSTED % "7", None, "2024-05-01"),
        (LINKED_DATA % ("[" * 99_999), None, None),
        (LINKED_DATA % '{"comment": %s}' % POSTED % '"Li"', None, None),
        ("<p>Posted <time datetime=2024-05-01>in May</time>", None, "2024-05-01"),
        ("<time datetime=2024-05-01>May</time><time datetime=2024-06-01>June</time>", None, None),
        (
            "<time datetime=2024-06-01></time><time pubdate datetime=2024-05-01></time>",
            None,
            "2024-05-01",
        ),
        ("<p>By Li on 1 May 2024</p>", None, None),
    ],
)
def test_author_and_date_are_what_a_page_declares(markup, author, date):
    """Meta elements, JSON-LD and <time> give author and date; words of the text do not. The markup
    of the main text has both, whatever is left out.
    """
    markup = f"<title>Tea</title><body><footer>{markup}</footer><main>{ARTICLE}</main>"
    for page in (markup, main_markup(markup)):
        metadata = read_html(page).metadata
        assert (metadata.get("author"), metadata.get("date")) == (author, date)


@given(st.text(alphabet='{}[]":,@graph autor1', max_size=40))
def test_any_linked_data_is_read(data):
    """Whatever is in JSON-LD, the page's text is read."""
    assert read_html(f"<p>Tea</p>{LINKED_DATA % data.replace('%', '')}").text == "Tea"


@pytest.mark.parametrize(
    ("attribute", "seen"),
    [
        ("hidden", False),
        ("hidden='hidden'", False),
        ("hidden='until-found'", True),
        ("role=tabpanel hidden", True),
        ("style='display:none'", False),
        ("style='color:red; Display : NONE !important'", False),
        ("style='visibility:hidden'", False),
        ("style='display:block'", True),
        ("style='--x-display:none'", True),
        ("aria-hidden=true", True),
    ],
)
def test_hidden_parts_are_left_out(attribute, seen):
    """What a page hides until a script shows it is left out; panels of tabs, which a click shows,
    are not.
    """
    text = text_of(f"<p>before</p><div {attribute}>inside <b>too</b></div><p>after</p>")
    assert text.split() == ["before", *(["inside", "too"] if seen else []), "after"]


@pytest.mark.parametrize("tag", ["h1", "h3", "li", "pre", "td", "table", "caption"])
def test_hidden_elements_end_nothing_that_is_open(tag):
    """The end of a hidden element ends no heading, cell, item or preformatted text around it."""
    page = f"<h2>Teas <{tag} hidden>Menu</{tag}> of spring</h2><p>Sencha</p>"
    if tag == "td":
        page = "<table><tr><th>Teas<td hidden>Menu</td><th>of spring</tr></table><p>Sencha</p>"
    elif tag == "caption":
        page = "<table><caption hidden>Menu</caption><tr><td>Teas of spring</td></tr></table><p>Sencha</p>"
    text = text_of(page)
    assert text.replace("|", " ").split() == ["Teas", "of", "spring", "Sencha"]


ARTICLE = "<h1>Green tea</h1>" + "".join(
    f"<p>Leaf {number} is picked in April and dried.</p>" for number in range(9)
)


def main_of(markup: str) -> str:
    """The main text of a page."""
    return read_html(markup, main_text=True).text


@pytest.mark.parametrize(
    "page",
    [
        "<header>Shop</header><main>{}</main><footer>Imprint</footer>",
        "<div role=banner>Shop</div><div role=main>{}</div><div role=contentinfo>Imprint</div>",
        "<div>Shop</div><article>{}</article><div>Imprint</div>",
        "<aside>Shop</aside><div>{}</div><footer>Imprint</footer>",
        "<main>{}<div class='share-buttons'>Shop</div><section id='comments'>Imprint</section></main>",
        "<div><ul class=x><li><a>Shop</a><li><a>Teas</a><li><a>Cups</a></ul>{}</div><form>Imprint</form>",
        "<div class='cookie-consent'>Shop</div><div class='content'>{}</div><div class='related posts'>Imprint</div>",
    ],
)
def test_main_text(page):
    """What stands around an article, or beside it, is left out; the article is whole, its headings
    are places.
    """
    markup = page.format(ARTICLE)
    assert main_of(markup) == text_of(ARTICLE)
    assert text_of(markup) != text_of(ARTICLE)
    assert [location.label for location in read_html(markup, main_text=True).locations] == [
        "Green tea"
    ]


@pytest.mark.parametrize(
    "markup",
    [
        "<p>Only a line.</p>",
        f"<div class='content sidebar'>{ARTICLE}</div>",
        f"<main>A short introduction to tea and to those who drink it.</main><div>{ARTICLE}</div>",
        "<ul><li><a>one</a><li><a>two</a><li><a>three</a></ul>",
        "<table><tr><td><a>Item 1</a></td><td><a>4</a></td></tr><tr><td><a>Item 2</a></td><td>9</td></tr></table>",
        f"<form>{ARTICLE}</form>",
        "<h2>Tea</h2><p>See <a>green</a>, <a>black</a> and <a>white</a> tea, of which there is much to say.</p>",
    ],
)
def test_main_text_where_all_is_main(markup):
    """Nothing is left out where that would leave nothing: lists and tables of links, forms around
    all, odd names.
    """
    assert main_of(markup) == text_of(markup)


def test_text_behind_what_is_left_out_stays():
    """Words right behind an element that is left out are not lost with it."""
    markup = f"<main>{ARTICLE}<p>one <button>x</button> two</p><nav>menu</nav>three</main>"
    assert main_of(markup).split()[-3:] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("<div class=PageFooter>{prose}</div>", True),
        ("<p><a>Read more about black tea</a></p>", True),
        ("<div><h2>Related</h2><a>Black tea</a> <a>White tea</a> <a>Oolong</a></div>", True),
        ("<div class=box><p>{prose}</p><ul><li><a>Black</a></ul></div>", True),
        ("<section id=cookies><h2>Cookies</h2><p>{prose}</p></section>", False),
        ("<ul><li><a>Black tea</a><li><a>White tea</a></ul>", False),
        ("<table><tr><th>Kind<td><p><a>Black tea</a></p></table>", False),
        ("<figure><figcaption>Leaves</figcaption></figure>", False),
    ],
)
def test_what_is_around_the_main_text(page, missing):
    """Footers, teasers and boxes beside the prose are left out; sections, lists and tables in it
    stay.
    """
    part = page.format(prose="Tea came to Europe with ships from Canton.")
    whole = f"<div>{ARTICLE}{part}</div>"
    markup = f"<div>{ARTICLE}</div>{part}" if "box" in page else whole
    assert main_of(markup) == text_of(ARTICLE if missing else whole)


def test_title_and_lead_before_the_main_text_stay():
    """A heading and a paragraph in the blocks before the article are main text."""
    lead = "<div><h1>Tea</h1></div><div>A short history of tea, from China to Europe.</div>"
    markup = f"<body>{lead}<div><div>{ARTICLE}</div><div>Posted in teas</div></div>"
    assert main_of(markup) == text_of(lead + ARTICLE)


@given(st.text(alphabet="abc <>/=pdivmaiulh1 ", max_size=80))
def test_main_text_is_part_of_the_text(body):
    """Nothing is added, and markup of the main text reads as the main text."""
    markup = f"<main>{ARTICLE}</main>{body}"
    text = main_of(markup)
    assert set(text.split()) <= set(text_of(markup).split())
    assert text_of(main_markup(markup)) == text


@pytest.mark.shared
def test_main_text_of_real_pages():
    """A blog loses its menus and keeps its article; a filing, a Chinese page and a plain one lose
    nothing.
    """
    blog = HtmlLoader(main_text=True).load(shared("data", "docs", "test_blog.html"))
    full = HtmlLoader().load(shared("data", "docs", "test_blog.html"))
    assert "Copyright © 2024" in full.text
    assert "Copyright © 2024" not in blog.text
    assert "different difficulty levels affect the results." in blog.text
    assert "Research paper about the tuning technique" in blog.text  # a list of links at its end
    assert [location.label for location in blog.locations] == [
        location.label for location in full.locations
    ]
    for name in ("example-10k-1p.html", "made_zh_gbk.html", "fake-html-cp1252.html"):
        path = shared("data", "docs", name)
        assert HtmlLoader(main_text=True).load(path) == HtmlLoader().load(path)


@pytest.mark.slow
def test_main_text_of_a_deep_and_wide_page():
    """Choosing the main text takes time in proportion to the page."""
    deep = "<div>" * 200 + "tea" + "</div>" * 200
    assert main_of((deep + "<p>a</p>") * 500).count("tea") == 500


@pytest.mark.parametrize("head", ["", "<title></title>", "<title> \n</title>"])
def test_no_title_is_no_metadata(head):
    """A page without title, or with an empty one, has none in its metadata."""
    assert dict(read_html(f"<html><head>{head}</head><body>text</body></html>").metadata) == {}


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("just text", "just text"),
        ("text <b>and</b> more", "text and more"),
        ("<li>a<li>b", "a\nb"),
        ("<td>a</td>", "a"),
        ("<p>a<p>b", "a\n\nb"),
        ("<P CLASS=x>A</P><BR>B", "A\n\nB"),
        ("<!DOCTYPE html><p>a", "a"),
        (
            "<?xml version='1.0' encoding='gbk'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p>茶</p></body></html>",
            "茶",
        ),
        ("<title>t</title><main><p>a</p></main><section>b</section><p>c", "a\n\nb\n\nc"),
        ("<my-card><my-text>a</my-text></my-card>", "a"),
        ("<p>a</div></p></b>b", "a\n\nb"),
        ("a<b>b<i>c</b>d</i>e", "abcde"),
    ],
)
def test_fragments_and_damaged_markup(markup, text):
    """Fragments without html and body, open tags and tags closed in the wrong order lose no
    text.
    """
    assert text_of(markup) == text


@pytest.mark.parametrize(
    "markup",
    ["", "   \n", "<!-- nothing -->", "<html></html>", "<script>x</script>", "<!DOCTYPE html>"],
)
def test_pages_without_text_are_reported(tmp_path, markup):
    """A page in which nothing can be read fails with a LoadError."""
    path = tmp_path / "page.html"
    path.write_text(markup, encoding="utf-8")
    with pytest.raises(LoadError):
        load_file(path)


def test_nul_bytes_cut_nothing_off(tmp_path):
    """A NUL in a page does not end its text."""
    path = tmp_path / "page.html"
    path.write_bytes(b"<p>before\x00after</p><p>end</p>")
    assert load_file(path).text == "before after\n\nend"


def _page(charset: str, body: str) -> str:
    """A page with something in its head and one paragraph."""
    return f"<html><head>{charset}</head><body><p>{body}</p></body></html>"


@pytest.mark.parametrize(
    ("charset", "encoding", "body"),
    [
        ('<meta charset="gb2312">', "gbk", "朱镕基"),
        ("<meta charset=gbk />", "gbk", "绿茶"),
        ('<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=big5">', "big5", "綠茶"),
        ("<meta charset='shift_jis'>", "cp932", "緑茶"),
        ('<meta charset="windows-1252">', "cp1252", "“thé”"),
        ('<meta charset="iso-8859-1">', "cp1252", "“thé”"),
        ('<meta charset="utf-8">', "utf-8", "茶\U0001f375"),
        ('<meta charset="gbk">', "utf-8", "绿茶"),
        ('<meta charset="utf-8">', "gbk", "绿茶是未经发酵的茶叶"),
        ("", "utf-8", "绿茶"),
        ("", "utf-16", "绿茶"),
        ("", "gbk", "绿茶是未经发酵的茶叶"),
        ('<meta charset="no-such">', "utf-8", "绿茶"),
    ],
)
def test_encodings_declared_or_not(tmp_path, charset, encoding, body):
    """A page is read in its encoding, whether it is declared, not declared or declared wrongly."""
    path = tmp_path / "page.html"
    path.write_bytes(_page(charset, body).encode(encoding))
    loaded = load_file(path)
    assert loaded.text == body
    told = loaded.metadata.get("encoding", "utf-8")
    assert body.encode(told) == body.encode(encoding if encoding != "utf-16" else told)


@pytest.mark.parametrize("depth", [200, 1_000, 10_000, 100_000])
def test_deep_nesting_is_read_whole_or_reported(tmp_path, depth):
    """A page of thousands of nested elements is read to its last word or fails; it is never cut
    short.
    """
    path = tmp_path / "deep.html"
    path.write_text(
        "<p>first</p>" + "<div>" * depth + "inside" + "</div>" * depth + "<p>last</p>",
        encoding="utf-8",
    )
    try:
        loaded = load_file(path)
    except LoadError as reported:
        assert depth > 200
        assert "deep" in str(reported)  # noqa: PT017  reading it whole is as good
    else:
        assert loaded.text.split() == ["first", "inside", "last"]


def test_a_deep_page_does_not_hinder_others(folder):
    """A page that nests too deep is reported, and the others are in."""
    deep = "<div>" * 100_000 + "inside" + "</div>" * 100_000
    docs = Document(folder({"deep.html": deep, "flat.html": "<p>flat</p>"}))
    with pytest.warns(IngestionWarning, match="deep.html"):
        assert [node.text for node in docs.get_nodes()] == ["flat"]


@pytest.mark.slow
def test_a_large_text_is_read_whole(tmp_path):
    """A page with 15 MB of text in one element, more than parsers allow by default, is read to its
    end.
    """
    path = tmp_path / "large.html"
    path.write_text("<p>" + "green tea " * 1_500_000 + "</p><p>end</p>", encoding="utf-8")
    text = load_file(path).text
    assert len(text) == 15_000_000 - 1 + len("\n\nend")
    assert text.endswith("tea\n\nend")


def test_both_suffixes(folder):
    """Files named .htm are pages, too, also in upper case."""
    docs = Document(folder({"a.htm": "<p>a</p>", "b.HTM": "<p>b</p>", "c.Html": "<p>c</p>"}))
    assert [node.text for node in docs.get_nodes()] == ["a", "b", "c"]


WORDS = st.text("abcxyz茶叶é", min_size=1, max_size=5)
INLINE = st.sampled_from(["b", "i", "span", "a", "em", "code", "my-x"])
BLOCK = st.sampled_from(["div", "section", "article", "blockquote", "ul", "li", "h2", "p", "pre"])
UNSEEN = st.sampled_from(["script", "style", "nav", "template", "noscript"])


def _element(tag: str, inside: tuple[str, list[str]]) -> tuple[str, list[str]]:
    """An element around markup, with the same words."""
    return f"<{tag}>{inside[0]}</{tag}>", inside[1]


def _joined(parts: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """Markup side by side, with all its words."""
    return " ".join(markup for markup, _ in parts), [word for _, words in parts for word in words]


def _table(rows: list[list[tuple[str, list[str]]]]) -> tuple[str, list[str]]:
    """A table of cells, with the words of all."""
    cells = [[_element("td", cell) for cell in row] for row in rows]
    markup = "".join(f"<tr>{''.join(cell for cell, _ in row)}</tr>" for row in cells)
    return f"<table>{markup}</table>", [word for row in cells for _, words in row for word in words]


def _hidden(tag: str, attribute: str, inside: tuple[str, list[str]]) -> tuple[str, list[str]]:
    """A hidden element around markup, without its words."""
    return f"<{tag} {attribute}>{inside[0]}</{tag}>", []


def _half_hidden_table(attribute: str, cells: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """A table whose first row has every other cell hidden, and whose second row is hidden."""
    kinds = [f" {attribute}" if at % 2 else "" for at in range(len(cells))]
    markup = "".join(f"<td{kind}>{cell}</td>" for kind, (cell, _) in zip(kinds, cells, strict=True))
    words = [
        word for kind, (_, words) in zip(kinds, cells, strict=True) if not kind for word in words
    ]
    return f"<table><tr>{markup}</tr><tr {attribute}><td>no</td></tr></table>", words


HIDING = st.sampled_from(
    ["hidden", "hidden=''", "style='display:none'", "style='color:red; visibility: hidden'"]
)
AROUND_ANY = st.sampled_from(["div", "section", "article", "span", "blockquote"])
OF_WORDS = st.sampled_from(
    ["h1", "h3", "h6", "p", "pre", "li", "ol", "button", "summary", "header", "form"]
)
HIDDEN_WORDS = WORDS.map(lambda word: (word, [word]))

# Markup with the words in it that a reader sees, in order.
MARKUP = st.recursive(
    WORDS.map(lambda word: (word, [word]))
    | st.builds(lambda tag: (f"<{tag}>no</{tag}>", []), UNSEEN)
    | st.builds(_hidden, OF_WORDS, HIDING, HIDDEN_WORDS),
    lambda inner: (
        st.lists(inner, max_size=4).map(_joined)
        | st.builds(_element, INLINE, inner)
        | st.builds(_element, BLOCK, inner)
        | st.builds(_hidden, AROUND_ANY, HIDING, inner)
        | st.builds(_half_hidden_table, HIDING, st.lists(inner, min_size=1, max_size=4))
        | st.lists(st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3).map(_table)
    ),
    max_leaves=25,
)


@given(MARKUP)
def test_no_visible_text_is_lost(page):
    """Whatever elements are nested in one another, all visible letters come out, in order, and no
    others.
    """
    markup, words = page
    text = text_of(f"<html><body><div>{markup}</div></body></html>")
    assert "".join(text.replace("|", "").split()) == "".join(words)


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=6), BLOCK
)
def test_words_in_blocks_stay_apart(blocks, tag):
    """The words of blocks that follow each other directly come out one by one."""
    text = text_of("<body>" + "".join(f"<{tag}>{block}</{tag}>" for block in blocks) + "</body>")
    assert text.split() == " ".join(blocks).split()


@given(st.lists(st.tuples(st.integers(1, 6), WORDS, WORDS), min_size=1, max_size=8))
def test_places_of_headings_begin_with_their_words(sections):
    """Each heading's place begins with its words, holds what follows, and ends where the next one
    begins.
    """
    markup = "".join(
        f"<h{level}> {title} </h{level}><p>{body}</p>" for level, title, body in sections
    )
    page = read_html(f"<p>before</p>{markup}")
    assert [page.text[location.start : location.end].split() for location in page.locations] == [
        [title, body] for _, title, body in sections
    ]
    assert [location.end for location in page.locations] == [
        *(location.start for location in page.locations[1:]),
        len(page.text),
    ]


def test_an_endless_gap_takes_no_time(folder):
    """White space that could be matched in many ways is tried in one only."""
    [node] = Document(folder({"a.html": "<p>中" + "\n" * 100_000 + "a"})).get_nodes()
    assert node.text == "中 a"


KATEX = (
    '<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>E</mi><mo>=</mo>'
    "<mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow><annotation>E=mc^2</annotation></semantics>"
    '</math></span><span class="katex-html" aria-hidden="true"><span>E=mc2</span></span></span>'
)
WIKIPEDIA = (
    '<span class="mwe-math-element"><span class="mwe-math-mathml-inline" style="display: none">'
    "<math><semantics><mi>E</mi><annotation>E</annotation></semantics></math></span>"
    r'<img class="mwe-math-fallback-image-inline" alt="{\displaystyle E}"></span>'
)


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        (KATEX, "E=mc^2"),
        (WIKIPEDIA, "E"),
        ('<span class="katex-html"><span>drawn</span></span>', "drawn"),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", "1/2"),
        ("<math><msup><mn>10</mn><mn>6</mn></msup></math>", "10^6"),
        ("<math><msqrt><mn>16</mn></msqrt></math>", "sqrt(16)"),
        ("<math><mroot><mi>x</mi><mn>3</mn></mroot></math>", "x^(1/3)"),
        (
            (
                "<math><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
                "</munderover><msub><mi>x</mi><mi>i</mi></msub></math>"
            ),
            "∑_(i=1)^nx_i",
        ),
        (
            "<math><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr></mtable></math>",
            "1, 0",
        ),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>", "漢字(かんじ)"),
        ("<ruby><rb>漢</rb><rt><b>kan</b></rt>字<rt>ji</rt></ruby>", "漢字(kanji)"),
        ("<math>x+1</math>", "x+1"),
        (
            (
                '<mjx-container class="MathJax"><mjx-math aria-hidden="true"></mjx-math>'
                "<mjx-assistive-mml><math>x+1</math></mjx-assistive-mml></mjx-container>"
            ),
            "x+1",
        ),
        (
            (
                '<span class="MathJax_Preview"></span><span class="MathJax"><nobr aria-hidden="true">'
                '<span>x+1</span></nobr><span class="MJX_Assistive_MathML"><math>x+1</math></span></span>'
            ),
            "x+1",
        ),
        ("<math>a <mi>x</mi> b<mrow>c<mi>y</mi></mrow></math>", "a x bcy"),
        (
            "<math><mtext>for <i>all</i> t</mtext><ms>s</ms><b>w <i>v</i></b></math>",
            "for all tsw v",
        ),
        ("<math><mfrac><mn>1</mn><mn>2</mn><mn>3</mn></mfrac></math>", "1/23"),
        (
            "<math><mtable>k<mtr><mtd>1</mtd><mtd>0</mtd></mtr><mn>5</mn></mtable></math>",
            "k1, 0; 5",
        ),
        ("<math><mfenced><mi>a</mi><mi>b</mi></mfenced></math>", "(a,b)"),
    ],
)
def test_formulas_are_read_once(formula, line):
    """MathML is written as one types it; its drawing beside it, and its source, are not read
    again.
    """
    assert text_of(f"<p>So {formula} holds.</p>") == f"So {line} holds."


def test_drawings_within_drawings_are_read_once():
    """The text of a label holds the labels within it; a thousand levels are read, too."""
    for levels in (30, 1000):
        drawn = "<svg><foreignObject>x" * levels + "</foreignObject></svg>" * levels
        assert text_of(f"<p>a</p>{drawn}<p>b</p>").split() == ["a", *"x" * levels, "b"]
        reading = "<ruby>x<rt>" * levels + "y" + "</rt></ruby>" * levels
        assert text_of(reading).count("x") == levels


@pytest.mark.parametrize("opened", ["<math><mi>x</mi>", "<svg><text>x</text>", "<ruby>x"])
def test_an_element_without_an_end_takes_no_blocks(opened):
    """The rest of the page is read in blocks after a formula, drawing or word without an end."""
    text = text_of(f"<p>a</p><div>{opened}<p>Second</p><p>Third</p></div><p>Last</p>")
    assert text.split() == ["a", "x", "Second", "Third", "Last"]
    assert "Second\n\nThird" in text


def test_labels_of_drawings():
    """The labels of an SVG drawing are lines of the page; its title is no title of the page."""
    page = read_html(
        "<p>See:</p><svg><title>icon</title><text>Boiler<title>no</title></text>"
        "<text>Pump</text></svg><table><tr><td>a<td><svg><text>b</text></svg></table>"
    )
    assert page.text.split("\n\n") == ["See:", "Boiler\nPump", "a | b"]
    assert page.metadata == {}
