"""XML: texts in order with the paths of their elements, and nothing that harms."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.records import XmlLoader

TEAS = """<?xml version="1.0"?>
<!-- teas -->
<teas shop="Uji">
  <tea id="1"><name>Sencha</name><price unit="yen">1200</price></tea>
  <tea id="2"><name>老丛红茶</name><note>Roasted <b class="x">slowly</b>,
    twice &amp; <![CDATA[<again>]]></note></tea>
  <empty/><blank> </blank>
</teas>
"""


@pytest.fixture
def load(tmp_path):
    """A function that loads XML, given as text or bytes, with the loader's arguments."""

    def loaded(markup, **arguments):
        path = tmp_path / "file.xml"
        path.write_bytes(markup if isinstance(markup, bytes) else markup.encode())
        return XmlLoader(**arguments).load(path) if arguments else load_file(path)

    return loaded


def placed(loaded) -> list[tuple[str, str]]:
    """Label and text of each place."""
    assert {location.kind for location in loaded.locations} <= {"element"}
    return [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_texts_become_lines_with_paths(load):
    """Each element with text, and each attribute, is a line and a place; marks inside a text are
    part of it.
    """
    loaded = load(TEAS)
    assert placed(loaded) == [
        ("/teas/@shop", "teas@shop: Uji"),
        ("/teas/tea[1]/@id", "tea@id: 1"),
        ("/teas/tea[1]/name", "name: Sencha"),
        ("/teas/tea[1]/price/@unit", "price@unit: yen"),
        ("/teas/tea[1]/price", "price: 1200"),
        ("/teas/tea[2]/@id", "tea@id: 2"),
        ("/teas/tea[2]/name", "name: 老丛红茶"),
        ("/teas/tea[2]/note", "note: Roasted slowly,\n    twice & <again>"),
    ]
    assert loaded.text == "\n".join(text for _, text in placed(loaded))
    assert loaded.metadata == {"root": "teas"}


def test_text_alone(load):
    """Names and attributes can be left out."""
    text = "Sencha\n1200\n老丛红茶\nRoasted slowly,\n    twice & <again>"
    assert load(TEAS, names=False, attributes=False).text == text
    with pytest.raises(ConfigError, match="names"):
        XmlLoader(names="no")


def test_text_behind_a_child_makes_it_part_of_the_text(load):
    """An element that begins with a child and goes on with text is one line."""
    assert (
        load("<a><p><b>Green</b> tea</p><p><b>Black</b></p></a>").text == "p: Green tea\nb: Black"
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030", "shift_jis", "iso-8859-1"])
def test_encodings(load, encoding):
    """Marks and declarations of encodings are followed."""
    text = "thé" if encoding == "iso-8859-1" else "绿茶" if encoding == "gb18030" else "緑茶"
    assert (
        load(f'<?xml version="1.0" encoding="{encoding}"?><t>{text}</t>'.encode(encoding)).text
        == f"t: {text}"
    )


def test_entities_of_html(load):
    """With a document type that is not in the file, HTML's entities are read, and others stay as
    they stand.
    """
    page = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "xhtml1-strict.dtd"><p>80&nbsp;&deg;C &mine;</p>'
    assert load(page).text == "p: 80\xa0°C &mine;"


BOMB = (
    "<!DOCTYPE b [<!ENTITY a 'ha'>"
    + "".join(f"<!ENTITY a{n} '&a;&a;'>" for n in range(9))
    + "]><b>&a8;</b>"
)


@pytest.mark.parametrize(
    ("markup", "message"),
    [
        (BOMB, r"declares an entity \(a0\)"),
        (
            '<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/hostname">]><b>&x;</b>',
            "declares an entity",
        ),
        (
            '<!DOCTYPE b [<!ENTITY % x SYSTEM "http://127.0.0.1:1/x">%x;]><b>y</b>',
            "declares an entity",
        ),
        ("<a>" * 100_000, "nested deeper than 200 levels"),
        ("<a>" * 300 + "x" + "</a>" * 300, "nested deeper than 200 levels"),
        ("<a>tea</b>", "breaks at line 1, column 9"),
        ("<a>&nbsp;</a>", "breaks at line 1"),
        ("<a>\n<b>", "breaks at line 2"),
        ("tea", "breaks at line 1"),
        ("<a/>", "holds no text"),
    ],
    ids=[
        "bomb",
        "file",
        "web",
        "deep",
        "deep, whole",
        "ends",
        "entity",
        "cut off",
        "text",
        "nothing",
    ],
)
def test_hostile_files_end_as_load_errors(load, markup, message):
    """Entity bombs, entities of other files, nesting and broken files end as one LoadError."""
    with pytest.raises(LoadError, match=message):
        load(markup)


def test_long_names_do_not_make_a_bomb(load):
    """A path of long names above many texts is an error, not gigabytes of labels."""
    with pytest.raises(LoadError, match="more than 10,"):
        load(f"<{'x' * 9000}>" + "<a>1</a>" * 2000 + f"</{'x' * 9000}>")


def test_nodes_say_in_which_element_they_stand(folder):
    """A node's place is the path of its element, or the first and the last."""
    docs = Document(folder({"teas.xml": "<a><b>1 2</b><b>3</b></a>"}))
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    docs.create_node_group("all", transform=lambda text: [text])
    assert [node.location for node in docs.get_nodes("line")] == [
        "element /a/b[1]",
        "element /a/b[2]",
    ]
    assert [node.location for node in docs.get_nodes("all")] == ["elements /a/b[1] to /a/b[2]"]


_TREES = st.recursive(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=10,
)


def _written(tree) -> str:
    """A tree as XML, lists as elements."""
    return escape(tree) if isinstance(tree, str) else f"<e>{''.join(map(_written, tree))}</e>"


@given(_TREES.filter(lambda tree: isinstance(tree, list)))
def test_no_character_is_lost(tmp_path_factory, tree):
    """All characters but white space are there in the order of another parser, and each path finds
    its element.
    """
    path = tmp_path_factory.mktemp("xml") / "file.xml"
    path.write_text(_written(tree), encoding="utf-8")
    loaded = XmlLoader(names=False).load(path)
    root = ET.fromstring(_written(tree))  # noqa: S314  we wrote it
    assert "".join(loaded.text.split()) == "".join("".join(root.itertext()).split())
    for label, text in placed(loaded):
        [element] = [root] if label == "/e" else root.findall("." + label.removeprefix("/e"))
        assert "".join(element.itertext()).strip() == text


def test_harmless_entities(load):
    """Entities that are short texts are read; those that name pictures cost nothing."""
    declared = '<!NOTATION tif SYSTEM "v"><!ENTITY p SYSTEM "p.tif" NDATA tif><!ENTITY t "green">'
    assert load(f"<!DOCTYPE a [{declared}]><a>&t; tea</a>").text == "a: green tea"
