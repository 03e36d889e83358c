"""Splitters that know what they split: HTML by headings, JSON by members, code by definitions, text
by meaning.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import time

import numpy as np
import pytest

from lazyrag import DocNode, Document, IngestionWarning, Retriever
from lazyrag.errors import ConfigError, EmbeddingError, MissingDependencyError, TransformError
from lazyrag.groups.fingerprint import fingerprint
from lazyrag.text.sentences import sentence_ends
from lazyrag.transforms import (
    CodeSplitter,
    HTMLSplitter,
    JSONSplitter,
    SectionSplitter,
    SemanticSplitter,
    TransformArgs,
    XMLSplitter,
    YAMLSplitter,
)
from lazyrag.transforms import structured as code_module
from lazyrag.transforms import structured as grammars
from lazyrag.transforms.base import run_transform

HTML = """<html><head><title>Tea</title><style>p > b {color: red}</style></head><body>
<h1>Green <em>tea</em></h1><p>It keeps &amp; it sells. It is <b>green</b>.</p>
<script>if (a < b) document.write("<h2>no heading</h2>")</script>
<!-- <h2>no heading either</h2> -->
<H2 class="x > y">Water</H2><ul><li>80 degrees</li><li>soft</li></ul>
<h2></h2><h3>Kettle</h3><table><tr><td>small</td><td>1 l</td></tr></table>
</body></html>"""

PYTHON = '''"""Kettles."""
import os

# How to boil.
@cached
def boil(heat):
    return heat


class Kettle:
    volume = 1

    def pour(self, cup):
        if cup:
            return "into the cup"
        return [
            "onto the table",
        ]

    async def close(self): ...
'''


def _chunks(splitter, text):
    return run_transform(splitter, DocNode(text=text))


def test_html_is_split_at_its_headings():
    """Each section names the headings above it; scripts, comments and empty headings open none."""
    chunks = _chunks(HTMLSplitter(), HTML)
    assert [one.metadata.get("heading") for one in chunks] == [
        None,
        "Green tea",
        "Green tea > Water",
        "Green tea > Water > Kettle",
    ]
    assert "".join(one.content for one in chunks) == re.sub(r"<(style|script)>.*?</\1>", "", HTML)


def test_scripts_and_styles_never_become_chunks():
    """A section with one in its middle stays one chunk, without span; the others have theirs, in
    the source.
    """
    source = "<style>p {}</style><h1>Tea</h1><p>Green.<script>boil()</script> Black.<h2>Water</h2><p>Soft.<script>x"
    chunks = _chunks(HTMLSplitter(), source)
    assert [(one.content, one.span) for one in chunks] == [
        ("<h1>Tea</h1><p>Green. Black.", None),
        ("<h2>Water</h2><p>Soft.", (source.index("<h2>"), source.index("<script>x"))),
    ]


def test_tables_and_lists_of_html_stay_together_where_they_fit():
    """A long section is cut before a table that does not fit beside the paragraph, not between its
    rows.
    """
    table = "<table><tr><td>green<td>80<tr><td>black<td>95</table>"
    [first, second] = _chunks(
        HTMLSplitter(26), f"<h1>Tea</h1><p>It keeps.</p><div>{table}<p>Sold out.</div>"
    )
    assert first.content == "<h1>Tea</h1><p>It keeps.</p>"
    assert second.content == f"<div>{table}<p>Sold out.</div>"


def test_the_text_of_html_is_what_a_reader_sees():
    """Without tags, scripts and styles; blocks are lines; characters stand for themselves."""
    chunks = _chunks(HTMLSplitter(text_only=True), HTML)
    assert [one.content for one in chunks] == [
        "Green tea\nIt keeps & it sells. It is green.",
        "Water\n80 degrees\nsoft",
        "Kettle\nsmall\t1 l",
    ]
    assert all(one.span is None for one in chunks)


def test_a_long_section_of_html_is_cut_between_blocks():
    """An item stays whole, and a heading with what follows it."""
    contents = [one.content for one in _chunks(HTMLSplitter(17), HTML)]
    assert '<H2 class="x > y">Water</H2><ul><li>80 degrees</li>' in contents
    assert any(one.startswith("<li>soft</li></ul>") for one in contents)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["<" * 200_000, "<a '" * 50_000, "<!--" * 50_000, "<h1>" * 50_000, "<a b=" * 50_000]
)
def test_broken_html_takes_no_quadratic_time(text):
    """A megabyte of what is never closed is split within seconds."""
    since = time.monotonic()
    assert "".join(one.content for one in _chunks(HTMLSplitter(), text)) == text
    assert time.monotonic() - since < 20


def test_json_is_split_by_its_structure():
    """Members that fit together are one chunk; what does not fit is taken apart, and its path says
    where it stood.
    """
    source = json.dumps(
        {
            "shop": {"teas": [{"name": "绿茶", "g": 50}, {"name": "红茶", "g": 100}], "open": True},
            "n": 1,
        }
    )
    chunks = _chunks(JSONSplitter(14), source)
    assert [(one.metadata["path"], json.loads(one.content)) for one in chunks] == [
        ("$.shop.teas[0:1]", [{"name": "绿茶", "g": 50}]),
        ("$.shop.teas[1:2]", [{"name": "红茶", "g": 100}]),
        ("$.shop", {"open": True}),
        ("$", {"n": 1}),
    ]


def test_json_as_lines():
    """Each leaf is a line with its path; lines beneath one container are together, and say
    which.
    """
    source = '{"teas": [{"name": "Longjing"}, {"name": "Keemun"}], "a b": {"c": null}}'
    chunks = _chunks(JSONSplitter(16, form="lines"), source)
    assert [(one.metadata["path"], one.content) for one in chunks] == [
        ("$.teas", "teas[0].name: Longjing\nteas[1].name: Keemun"),
        ("$['a b'].c", "['a b'].c: null"),
    ]


def test_json_lines_and_long_texts():
    """Several values in a text are split like an array; the pieces of a long text are texts
    again.
    """
    chunks = _chunks(JSONSplitter(9), '{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert [(one.metadata["path"], one.content) for one in chunks] == [
        ("$[0:2]", '[{"a": 1}, {"a": 2}]'),
        ("$[2:3]", '[{"a": 3}]'),
    ]
    pieces = _chunks(JSONSplitter(8), json.dumps({"t": "First one.\nSecond “one”. Third."}))
    assert [json.loads(one.content) for one in pieces] == [
        "First one.\n",
        "Second “one”. ",
        "Third.",
    ]
    assert {one.metadata["path"] for one in pieces} == {"$.t"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'a': 1}", "no key at line 1, column 2"),
        ('{"a": 1,\n "b" 2}', "no ':' at line 2, column 6"),
        ('{"a": [1, 2', "no ',' at line 1, column 12"),
        ("[1, 02]", "no value at line 1, column 5"),
        ("tea", "no value at line 1, column 1"),
        ('["a\\x"' + "]", "no value at line 1, column 2"),
        ("[" * 100_000, "nested deeper than 200"),
    ],
)
def test_what_is_no_json_is_told(text, told):
    """The error names the position, and what to do for files of other kinds."""
    with pytest.raises(TransformError, match=told) as caught:
        _chunks(JSONSplitter(2), text)
    assert (
        ("is no JSON" in str(caught.value))
        == ("pattern='*.json'" in str(caught.value))
        != ("nested" in told)
    )


YAML = """\
# Teas of the shop
teas:
- name: 绿茶
  kg: 2

# oxidised
- {name: 红茶, kg: 3}
"open hours":
  mon: [9, 17]
  tue: [9, 17]
"""


def test_yaml_is_split_at_its_items():
    """Items stay whole with the comments above them, and each chunk has the path of the value
    around it.
    """
    chunks = _chunks(YAMLSplitter(17), YAML)
    assert [(one.metadata["path"], one.content) for one in chunks] == [
        ("$.teas", "# Teas of the shop\nteas:\n- name: 绿茶\n  kg: 2\n\n"),
        ("$.teas[1]", "# oxidised\n- {name: 红茶, kg: 3}\n"),
        ("$['open hours']", '"open hours":\n  mon: [9, 17]\n  tue: [9, 17]\n'),
    ]


def test_documents_of_yaml_and_flow_lists_are_split():
    """Several documents are numbered; a list on one line is cut between its items."""
    chunks = _chunks(YAMLSplitter(5), "a: 1\n---\n- {b: 1, c: [2, 3]}\n- [4, 5]\n")
    assert "".join(one.content for one in chunks) == "a: 1\n---\n- {b: 1, c: [2, 3]}\n- [4, 5]\n"
    assert [one.metadata.get("path") for one in chunks] == [
        "$[0].a",
        "$[1][0]",
        "$[1][0]",
        "$[1][1]",
    ]


XML = """<?xml version="1.0"?>
<teas>
<tea id="1"><name>绿茶</name></tea>
<tea/>
<note>Keep <b>dry</b>.</note>
</teas>
"""


def test_xml_is_split_between_its_elements():
    """Elements stay whole where they fit, closing tags stay with the last one, and paths count
    siblings of a name.
    """
    chunks = _chunks(XMLSplitter(18), XML)
    assert [(one.metadata.get("path"), one.content) for one in chunks] == [
        ("/teas", '<?xml version="1.0"?>\n<teas>\n'),
        ("/teas", '<tea id="1"><name>绿茶</name></tea>\n<tea/>\n'),
        ("/teas", "<note>Keep <b>dry</b>.</note>\n</teas>\n"),
    ]
    paths = [one.metadata.get("path") for one in _chunks(XMLSplitter(8), XML)]
    assert paths[:4] == [None, "/teas", "/teas/tea[1]", "/teas/tea[1]/name"]


@pytest.mark.parametrize(
    ("splitter", "text", "told"),
    [
        (YAMLSplitter(), "a: [1, 2\nb: 3", "no YAML: .* at line 2, column 2"),
        (YAMLSplitter(), "a: \ud800", "no YAML"),
        (XMLSplitter(), "<a>\n<b></a>", "no XML: mismatched tag: line 2"),
        (XMLSplitter(), "tea", "no XML"),
        (
            XMLSplitter(),
            '<!DOCTYPE a [<!ENTITY b SYSTEM "c">]><a>&b;</a>',
            "no XML: declares an entity",
        ),
        (XMLSplitter(), "<a>" * 300, "nested deeper than 200"),
    ],
)
def test_malformed_yaml_and_xml_are_errors(splitter, text, told):
    """With the position, and the way to keep other files out."""
    with pytest.raises(TransformError, match=told) as caught:
        _chunks(splitter, text)
    suffix = splitter.source_suffixes[0]
    is_other_format = f"is no {suffix[1:].upper()}" in str(caught.value)
    assert is_other_format == (f"pattern='*{suffix}'" in str(caught.value)) != ("nested" in told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("splitter", "text"),
    [
        (XMLSplitter(20), "<a>" + "<b>x</b>" * 40_000 + "</a>"),
        (YAMLSplitter(20), "- a: 1\n" * 40_000),
        (HTMLSplitter(20), "<div>" * 40_000 + "</p>" * 40_000),
    ],
)
def test_many_small_parts_take_no_quadratic_time(splitter, text):
    """Hundreds of kilobytes of tiny parts are split within seconds."""
    since = time.monotonic()
    assert "".join(one.content for one in _chunks(splitter, text)) == text
    assert time.monotonic() - since < 20


def test_code_is_split_at_its_definitions():
    """Whole definitions with their comments and decorators; a class by its methods; each chunk says
    what it is of.
    """
    chunks = _chunks(CodeSplitter(45, language="python"), PYTHON)
    assert [
        (one.metadata["definition"], one.content.strip().splitlines()[0]) for one in chunks
    ] == [
        ("boil", '"""Kettles."""'),
        ("Kettle", "class Kettle:"),
        ("Kettle.pour", "def pour(self, cup):"),
        ("Kettle.close", "async def close(self): ..."),
    ]
    assert "".join(one.content for one in chunks) == PYTHON
    assert {one.metadata["language"] for one in chunks} == {"python"}


SOURCES = {
    "bash": "boil() {\n  echo hot\n}\npour() {\n  echo wet\n}\n",
    "c": "int boil(int heat) {\n  return 1;\n}\nint pour(void) {\n  return 2;\n}\n",
    "cpp": "class Kettle {\n  int boil() { return 1; }\n};\nint pour() {\n  return 2;\n}\n",
    "csharp": "class Kettle {\n  int Boil() { return 1; }\n}\nclass Cup {\n  int Pour() { return 2; }\n}\n",
    "go": "package tea\nfunc boil() int {\n\treturn 1\n}\nfunc pour() int {\n\treturn 2\n}\n",
    "java": "class Kettle {\n  int boil() { return 1; }\n}\nclass Cup {\n  int pour() { return 2; }\n}\n",
    "javascript": "function boil() {\n  return 1;\n}\nclass Cup {\n  pour() { return 2; }\n}\n",
    "php": "<?php\nfunction boil() {\n  return 1;\n}\nclass Cup {\n  function pour() { return 2; }\n}\n",
    "python": "def boil():\n    return '茶👩🏽‍🔬'\n\ndef pour():\n    return 2\n",
    "ruby": "def boil\n  1\nend\nclass Cup\n  def pour\n    2\n  end\nend\n",
    "rust": "fn boil() -> i32 {\n  1\n}\nstruct Cup {\n  pour: i32,\n}\n",
    "tsx": "function boil(): number {\n  return 1;\n}\nconst Cup = () => <b>pour</b>;\n",
    "typescript": "interface Kettle {\n  boil: number;\n}\nfunction pour(): number {\n  return 2;\n}\n",
}


@pytest.mark.parametrize("language", grammars._GRAMMARS)
def test_every_language_is_read_by_its_grammar(language):
    """Definitions stay whole where they fit, and are named."""
    source = SOURCES[language]
    chunks = _chunks(CodeSplitter(14, language=language), source)
    assert "".join(one.content for one in chunks) == source
    assert len(chunks) > 1
    assert all(one.content.endswith("\n") for one in chunks)
    assert {"boil", "Kettle", "Kettle.boil", "Kettle.Boil"} & {
        one.metadata.get("definition") for one in chunks
    }


def test_the_language_is_told_by_the_suffix(folder):
    """Files of known languages are read by their grammars, others by their lines."""
    docs = Document(folder({"a.py": PYTHON, "b.go": SOURCES["go"], "c.txt": "alpha\n\nbeta\n"}))
    docs.create_node_group("code", CodeSplitter, chunk_size=20)
    found = {(node.path, node.metadata.get("language")) for node in docs.get_nodes("code")}
    assert found == {("a.py", "python"), ("b.go", "go"), ("c.txt", None)}


def test_without_a_grammar_code_is_split_by_its_lines(monkeypatch):
    """Functions and classes at the margin are chunks, as long as nobody asks for the language by
    name.
    """
    monkeypatch.setattr(code_module, "is_installed", lambda language: False)
    splitter = CodeSplitter(32)
    monkeypatch.setattr(splitter, "path_key", lambda path: "python")
    chunks = _chunks(splitter, PYTHON)
    assert "".join(one.content for one in chunks) == PYTHON
    assert "boil" in {one.metadata["definition"] for one in chunks}
    assert any(one.content.startswith("class Kettle") for one in chunks)
    assert splitter.identity != CodeSplitter(32, language="python").identity


def test_a_language_asked_for_is_never_given_up_silently(monkeypatch):
    """An unknown one is a ConfigError with the known ones; one whose grammar is missing says what
    to install.
    """
    with pytest.raises(ConfigError, match=r"language 'pyton'.*Did you mean 'python'"):
        CodeSplitter(language="pyton")
    monkeypatch.setitem(grammars._GRAMMARS, "python", ("tree_sitter_of_nowhere", "language", ".py"))
    grammars.load_grammar.cache_clear()
    with pytest.raises(MissingDependencyError, match=r'pip install -e "\.\[code\]"'):
        CodeSplitter(language="python")


def _about(text):
    return [text.count("tea"), text.count("rain") + text.count("雨"), 0.1]


SUBJECTS = (
    "Green tea keeps. Black tea too. Some tea is white. It may rain. 雨很大。More rain comes."
)


def test_text_is_split_where_its_subject_changes():
    """By an absolute threshold, and by a percentile of the text's own distances; windows of
    neighbours smooth both.
    """
    for splitter in (
        SemanticSplitter(_about, threshold=0.5, window=0),
        SemanticSplitter(_about, percentile=90, window=0),
        SemanticSplitter(_about, window=0),
    ):
        contents = [one.content for one in _chunks(splitter, SUBJECTS)]
        assert contents == [
            "Green tea keeps. Black tea too. Some tea is white. ",
            "It may rain. 雨很大。More rain comes.",
        ]
    assert len(_chunks(SemanticSplitter(_about, threshold=2), SUBJECTS)) == 1


def test_small_subjects_are_joined_and_large_ones_cut():
    """min_size joins, chunk_size cuts at the ends of sentences."""
    text = "Tea tea. Rain rain. Tea and more tea. "
    assert len(_chunks(SemanticSplitter(_about, threshold=0.5, window=0, min_size=6), text)) < 3
    cut = [one.content for one in _chunks(SemanticSplitter(_about, 11, threshold=2), SUBJECTS)]
    assert cut[0] == "Green tea keeps. Black tea too. "


def test_an_embedder_is_asked_in_batches_and_for_each_window_once():
    """Equal windows are one text; a callable with batch_size gets lists."""
    asked = []

    def embed(texts):
        asked.append(len(texts))
        return [_about(text) for text in texts]

    embed.batch_size = 4
    _chunks(SemanticSplitter(embed, window=0), "Tea. " * 5 + SUBJECTS)
    assert asked == [4, 3]


def test_what_an_embedder_gets_wrong_is_told():
    """No vector, no chunks: the error is the embedder's."""
    with pytest.raises(TransformError, match="returned None") as caught:
        _chunks(SemanticSplitter(lambda text: None), SUBJECTS)
    assert isinstance(caught.value.__cause__, EmbeddingError)
    for wrong, told in (
        ({"percentile": 101}, "percentile must be .*101"),
        ({"threshold": -1}, "threshold must be .*-1"),
        ({"percentile": 5, "threshold": 1}, "got both"),
        ({"min_size": 9, "chunk_size": 8}, "min_size"),
        ({"window": -1}, "window"),
    ):
        with pytest.raises(ConfigError, match=told):
            SemanticSplitter(_about, **wrong)
    with pytest.raises(ConfigError, match="callable"):
        SemanticSplitter("bge")


class Model:
    """An embedder that says who it is."""

    dimension = 2
    max_tokens = None
    normalised = False

    def __init__(self, identity):
        self.identity = identity

    def embed(self, texts, input_type="document"):
        """A direction for each text."""
        return np.array([_about(text)[:2] for text in texts], np.float32)


def test_the_embedder_takes_part_in_the_fingerprint():
    """By its identity where it says one, else by its code."""
    values = [
        fingerprint(SemanticSplitter(one)).value
        for one in (
            Model("a"),
            Model("b"),
            _about,
            lambda text: [1.0, len(text)],
            lambda text: [2.0, len(text)],
        )
    ]
    assert len(set(values)) == len(values)
    assert fingerprint(SemanticSplitter(Model("a"))).value == values[0]
    assert fingerprint(SemanticSplitter(_about)).value == values[2]


def test_chunks_beyond_the_window_of_the_model_are_warned_of_once():
    """Where the model does not read longer texts in windows; in lists the largest entry counts."""
    model = Model("short")
    model.max_tokens = 64
    docs = Document(embed=model)
    docs.add_texts({"a.txt": SUBJECTS})
    docs.create_node_group("large", CodeSplitter, chunk_size=65)
    docs.create_node_group("small", CodeSplitter, chunk_size=64)
    docs.create_node_group("list", [TransformArgs(str.split, pattern="*.md"), CodeSplitter(70)])
    for group, size in (("large", 65), ("list", 70)):
        with pytest.warns(
            IngestionWarning, match=f"up to {size} tokens .* reads 64 at once.*chunk_size=64"
        ):
            Retriever(docs, group, similarity="cosine")("tea")
        assert Retriever(docs, group, similarity="cosine")("tea")
    assert Retriever(docs, "small", similarity="cosine")("tea")
    model.too_long = "split"
    docs.create_node_group("largest", CodeSplitter, chunk_size=99)
    assert Retriever(docs, "largest", similarity="cosine")("tea")


def test_whatever_decides_about_chunks_is_in_the_identity():
    """Two that give other chunks are other definitions."""
    made = [
        HTMLSplitter(10),
        HTMLSplitter(10, 1),
        HTMLSplitter(10, text_only=True),
        JSONSplitter(10),
        JSONSplitter(11),
        JSONSplitter(10, form="lines"),
        CodeSplitter(10),
        CodeSplitter(10, language="go"),
        CodeSplitter(10, 1, language="go"),
        SemanticSplitter(Model("a"), 10),
        SemanticSplitter(Model("a"), 10, percentile=90),
        SemanticSplitter(Model("a"), 10, threshold=0.9),
        SemanticSplitter(Model("a"), 10, window=2),
        SemanticSplitter(Model("a"), 10, min_size=2),
    ]
    assert len({one.identity for one in made}) == len(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["x\n" + "\n" * 400_000, "x" + " " * 400_000, "x\n" + " \n" * 200_000 + " y"]
)
def test_code_of_nothing_but_white_space_takes_no_time(text):
    """Time grows with the length of a run of blank lines, not with its square."""
    since = time.perf_counter()
    list(CodeSplitter().transform(DocNode(text=text)))
    assert time.perf_counter() - since < 10


@pytest.mark.slow
def test_many_small_values_of_json_take_no_quadratic_time():
    """Values that stand one after the other are joined piece by piece."""
    since = time.perf_counter()
    [*nodes] = JSONSplitter(chunk_size=20_000).transform(DocNode(text='""' * 60_000))
    assert time.perf_counter() - since < 5
    assert sum(node.text.count('""') for node in nodes) == 60_000


def _sections(folder, text, **kwargs):
    """The chunks of a Markdown file, split at its headings."""
    (folder / "tea.md").write_text(text, encoding="utf-8")
    docs = Document(folder)
    docs.create_node_group("section", transform=SectionSplitter, **kwargs)
    return docs.get_nodes("section")


def test_chunks_end_before_headings(tmp_path):
    """Before the last one of the highest level that leaves a chunk full enough; short sections stay
    together.
    """
    text = "# Tea\nIt keeps. It sells.\n## Green\nFired.\n## Black\nDried.\n# Water\n## Heat\nEighty degrees.\n"
    chunks = [
        (node.text.split(), node.location)
        for node in _sections(tmp_path, text, chunk_size=26, chunk_overlap=10)
    ]
    assert chunks == [
        (
            [
                "#",
                "Tea",
                "It",
                "keeps.",
                "It",
                "sells.",
                "##",
                "Green",
                "Fired.",
                "##",
                "Black",
                "Dried.",
            ],
            "Tea, lines 1-6",
        ),
        (["#", "Water", "##", "Heat", "Eighty", "degrees."], "Water, lines 7-9"),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_no_overlap_reaches_across_a_heading(tmp_path, seed):
    """Chunks cover the text, keep to the size, and are 60 % full where they end before a
    heading.
    """
    draw = random.Random(seed)
    parts = [
        "# 茶\n",
        "## Water\n\n",
        "### Heat\n",
        *["It keeps for a year. ", "当天采摘。", "one two\n\n"] * draw.choice([1, 4]),
    ]
    text = "".join(draw.choices(parts, k=300))
    size, overlap = draw.choice([(20, 5), (60, 12), (40, 39)])
    nodes = _sections(tmp_path, text, chunk_size=size, chunk_overlap=overlap)
    starts = {one.start for one in nodes[0].root.locations}
    count = SectionSplitter().counter.count
    assert nodes[0].span[0] == 0
    assert nodes[-1].span[1] == len(text)
    assert all(count(node.text) <= size for node in nodes)
    assert any(node.span[1] in starts for node in nodes)
    for node, following in itertools.pairwise(nodes):
        start, end = following.span[0], node.span[1]
        assert node.span[0] < start <= end < following.span[1]
        assert count(text[start:end]) <= overlap
        assert not starts & {*range(start + 1, end + 1)}
        more = min(one for one in {*starts, *sentence_ends(text)} if one > node.span[1])
        is_full = count(node.text) >= 0.6 * size or count(text[node.span[0] : more]) > size
        assert is_full or node.span[1] not in starts


@pytest.mark.parametrize(
    ("name", "size", "overlap", "fingerprint"),
    [
        ("FineChunk", 128, 12, "9a2e4b5a7487b1bcea341a7f13e1f7bc"),
        ("MediumChunk", 256, 25, "ab26b5a120dd3c0bca26e498b5096881"),
        ("CoarseChunk", 1024, 100, "5b9b70c664782630632b24c9ce0f2be6"),
    ],
)
def test_chunks_of_stores_built_before_can_be_kept(name, size, overlap, fingerprint):
    """The definition that docs/upgrading.md shows has the fingerprint that these stores have."""
    docs = Document()
    docs.create_node_group(
        name, transform="SentenceSplitter", chunk_size=size, chunk_overlap=overlap
    )
    docs.add_texts({"tea.txt": "Tea keeps."})
    docs.activate_group(name)
    groups = [
        row
        for row in map(json.loads, docs.maintenance.dump())
        if row["is"] == "group" and row["name"] == name
    ]
    assert [row["fingerprint"] for row in groups] == [fingerprint]
