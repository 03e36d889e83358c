"""Transforms that read the source text of files: HTML with its tags, JSON as it is, members of
archives and mails.
"""

from __future__ import annotations

import json
import os
import zipfile

import pytest

from lazyrag import Document, IngestionWarning, NodeTransform, Retriever
from lazyrag.loaders import LoadLimits
from lazyrag.transforms import (
    CodeSplitter,
    HTMLSplitter,
    JSONSplitter,
    TransformArgs,
    XMLSplitter,
    YAMLSplitter,
)

HTML = "<html><body>\n<h1>Tea</h1>\n<p>It <b>keeps</b>.</p>\n<script>boil()</script>\n<h2>Water</h2><p>Soft."
JSON = '{"teas": [{"name": "绿茶", "g": 50}, {"name": "红茶", "g": 100}]}'
PYTHON = "def boil(heat):\n    return heat\n"
XML = "<teas>\n<tea>green</tea>\n</teas>\n"
YAML = "teas:\n- green\n- black\n"


@pytest.fixture
def folder(tmp_path):
    """A file of each format."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in {
        "a.json": JSON,
        "b.html": HTML,
        "c.py": PYTHON,
        "d.xml": XML,
        "e.yaml": YAML,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "f.jsonl").write_text('{"a": 1}\n{"a": 2}\n', encoding="utf-8")
    (folder / "g.md").write_text("# Tea\n\nIt keeps.\n", encoding="utf-8")
    return folder


def _by_kind(docs, name="source"):
    docs.create_node_group(
        name,
        transform=[
            TransformArgs(JSONSplitter(14), pattern="*.json*"),
            TransformArgs(HTMLSplitter, pattern="*.html"),
            TransformArgs(XMLSplitter, pattern="*.xml"),
            TransformArgs(YAMLSplitter, pattern="*.yaml"),
            TransformArgs(CodeSplitter, pattern="*.py"),
            "SentenceSplitter",
        ],
    )
    return docs


def _texts(docs, path, group="source"):
    return [node.text for node in docs.get_nodes(group) if node.path == path]


def test_splitters_see_the_source_of_files(folder):
    """Each format as it is on disk; text and Markdown as before, with spans."""
    with Document(folder) as docs:
        _by_kind(docs)
        assert list(map(json.loads, _texts(docs, "a.json"))) == [
            [one] for one in json.loads(JSON)["teas"]
        ]
        assert _texts(docs, "b.html")[1:] == [
            "<h1>Tea</h1>\n<p>It <b>keeps</b>.</p>\n\n",
            "<h2>Water</h2><p>Soft.",
        ]
        assert _texts(docs, "d.xml") == [XML]
        assert _texts(docs, "e.yaml") == [YAML]
        assert _texts(docs, "f.jsonl") == ['[{"a": 1}, {"a": 2}]']
        for path in ("c.py", "g.md"):
            [node] = [node for node in docs.get_nodes("source") if node.path == path]
            assert (
                node.source.text[slice(*node.span)]
                == node.text
                == (folder / path).read_text(encoding="utf-8")
            )


def test_chunks_of_the_source_have_a_location_and_no_span(folder):
    """Spans count in the document's text, which is the loader's; the location names the place in
    the file.
    """
    with Document(folder) as docs:
        nodes = {node.text: node for node in _by_kind(docs).get_nodes("source")}
        water, tea = nodes["<h2>Water</h2><p>Soft."], nodes['[{"name": "绿茶", "g": 50}]']
        assert water.span is tea.span is None
        assert water.location == "Tea > Water, line 5"
        assert tea.location == "$.teas[0:1]"
        assert nodes[XML].location == "/teas, lines 1-3"
        assert "<" not in water.root.text
        [hit] = Retriever(docs, "source", similarity="bm25", topk=1)("soft water")
        assert hit.location == "Tea > Water, line 5"


def test_a_group_without_source_keeps_the_text_of_the_loader(folder):
    """Beside one that reads the source."""
    with Document(folder) as docs:
        _by_kind(docs)
        docs.create_node_group("text", transform="SentenceSplitter")
        docs.activate_group("source")
        assert _texts(docs, "b.html", "text") == ["Tea\n\nIt keeps.\n\nWater\n\nSoft."]


def test_a_text_is_its_own_source():
    """JSON of add_texts is split with spans, by a splitter that fails for other texts."""
    with Document() as docs:
        docs.add_texts({"order": JSON})
        docs.create_node_group("source", transform=JSONSplitter(100))
        [node] = docs.get_nodes("source")
        assert node.span == (0, len(JSON))


def test_another_source_with_the_same_text_is_another_version(folder):
    """An attribute of a tag changes no text of the loader, but chunks of the source; a second sync
    does nothing.
    """
    with Document(folder) as docs:
        docs.activate_group("FineChunk")
        _by_kind(docs).activate_group("source")
        (folder / "b.html").write_text(HTML.replace("<h1>", "<h1 id='tea'>"), encoding="utf-8")
        assert docs.sync().updated == ("b.html",)
        assert _texts(docs, "b.html")[1].startswith("<h1 id='tea'>")
        assert not docs.sync().updated
        os.utime(folder / "b.html", (1, 1))
        docs.sync()
        assert _texts(docs, "b.html")[1].startswith("<h1 id='tea'>")
        assert not docs.maintenance.verify()


def test_a_changed_file_is_never_mixed_with_an_older_version(folder):
    """A group that is built after a file has changed, before a sync, fails for that file and says
    what to do.
    """
    with Document(folder) as docs:
        docs.sync()
        (folder / "b.html").write_text("<p>Other text", encoding="utf-8")
        with pytest.warns(
            IngestionWarning, match=r"has changed since it was loaded\. Call sync\(\)"
        ):
            assert not _texts(_by_kind(docs), "b.html")
        docs.sync()
        assert _texts(docs, "b.html") == ["<p>Other text"]


def test_a_moved_file_keeps_its_chunks_and_metadata_change_none(folder):
    """Neither runs the transform again."""
    calls = []

    class Counted(HTMLSplitter):
        reads_text_only = True

        def transform(self, node):
            calls.append(node.path)
            return list(super().transform(node))

    with Document(folder) as docs:
        docs.create_node_group("source", transform=[TransformArgs(Counted, pattern="*.html")])
        before = [node.text for node in docs.get_nodes("source")]
        assert calls == ["b.html"]
        (folder / "b.html").rename(folder / "z.html")
        docs.sync()
        docs.update_metadata({"z.html": {"season": "spring"}})
        assert _texts(docs, "z.html") == before
        assert calls == ["b.html"]


def test_read_only_and_restricted_documents_read_what_was_built(folder, tmp_path):
    """In another process the file is not needed; a restricted Document builds the group for all."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(folder, store_conf=conf) as docs:
        _by_kind(docs)
        part = docs.restricted({"file_name": "b.html"})
        assert {node.path for node in part.get_nodes("source")} == {"b.html"}
    (folder / "b.html").unlink()
    with Document(folder, store_conf=conf, read_only=True) as docs:
        assert _texts(_by_kind(docs), "b.html")[-1] == "<h2>Water</h2><p>Soft."


def test_a_file_outside_of_the_dataset_is_read_where_it_was_added(tmp_path):
    """Its chunks stay when it is gone; a group that is defined later needs it again."""
    page = tmp_path / "page.html"
    page.write_text("<p>Tea", encoding="utf-8")
    with Document() as docs:
        docs.create_node_group("source", transform="HTMLSplitter")
        docs.activate_group("source")
        docs.add_files([page])
        page.unlink()
        assert _texts(docs, "page.html") == ["<p>Tea"]
        docs.create_node_group("later", transform="CodeSplitter")
        with pytest.raises(Exception, match="add_files"):
            docs.get_nodes("later")


def test_members_of_archives_are_split_one_by_one(tmp_path):
    """Each by its own type, code with a span in the document; JSON members alone for
    JSONSplitter.
    """
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as file:
        for name, text in {
            "a/teas.json": JSON,
            "boil.py": PYTHON,
            "page.html": "<p>Tea",
            "read.me.md": "# Tea",
        }.items():
            file.writestr(name, text)
    with Document(tmp_path) as docs:
        docs.create_node_group("json", transform=JSONSplitter(14))
        docs.create_node_group("code", transform=CodeSplitter)
        first, second = docs.get_nodes("json")
        assert (first.location, second.location) == (
            "a/teas.json, $.teas[0:1]",
            "a/teas.json, $.teas[1:2]",
        )
        code = {node.text: node for node in docs.get_nodes("code")}
        assert code[PYTHON].metadata["language"] == "python"
        assert code[PYTHON].source.text[slice(*code[PYTHON].span)] == PYTHON
        assert code[JSON].location == "a/teas.json, line 1"
        assert code["<p>Tea"].span is None


def test_the_body_and_the_attachments_of_a_mail_are_sources(tmp_path):
    """HTML bodies keep their tags, attachments are JSON."""
    (tmp_path / "order.eml").write_text(
        "Subject: Order\nFrom: a@tea.cn\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n"
        "--x\nContent-Type: text/html\n\n<p>See <b>below</b>.</p>\n"
        "--x\nContent-Type: application/json; name=order.json\n\n[1, 2]\n--x--\n",
        encoding="utf-8",
    )
    with Document(tmp_path) as docs:
        docs.create_node_group("json", transform=JSONSplitter)
        docs.create_node_group("html", transform=HTMLSplitter)
        assert [node.text for node in docs.get_nodes("json")] == ["[1, 2]"]
        assert "<b>below</b>" in docs.get_nodes("html")[0].text


def test_a_malformed_file_fails_alone(folder):
    """With its name and the line; the others are split."""
    (folder / "e.yaml").write_text("teas: [green\n", encoding="utf-8")
    (folder / "h.jsonl").write_text('{"a": 1}\n{"a": 2\n', encoding="utf-8")
    with Document(folder) as docs:
        with pytest.warns(IngestionWarning):
            assert _texts(_by_kind(docs), "d.xml") == [XML]
        assert {failure.path for failure in docs.last_report.failed} == {"e.yaml", "h.jsonl"}


def test_a_transform_of_ones_own_reads_the_source(folder):
    """It declares so; a loader of one's own gives it with load_source."""

    class Whole(NodeTransform):
        reads_source = True

        def transform(self, node):
            return node.get_text()

    class Upper:
        def load(self, path):
            return path.read_text(encoding="utf-8").upper()

        def load_source(self, path):
            return path.read_text(encoding="utf-8")

    with Document(folder) as docs:
        docs.add_reader("*.md", Upper)
        docs.create_node_group("source", transform=Whole)
        assert _texts(docs, "g.md") == ["# Tea\n\nIt keeps.\n"]
        assert _texts(docs, "a.json") == [JSON]
        assert docs.get_nodes()[-1].text == "# TEA\n\nIT KEEPS.\n"


def test_the_language_of_code_follows_from_the_file_type(folder):
    """Also of a file under an id of the user's."""
    (folder / "boil.js").write_text("function boil() { return 1 }\n", encoding="utf-8")
    with Document(
        doc_files={
            "kettle": folder / "c.py",
            "boiler": folder / "boil.js",
            "page": folder / "b.html",
        }
    ) as docs:
        docs.create_node_group("code", transform="CodeSplitter")
        found = {node.path: node.metadata.get("language") for node in docs.get_nodes("code")}
        assert found == {"kettle": "python", "boiler": "javascript", "page": None}


@pytest.mark.slow
def test_the_source_is_read_in_processes(folder):
    """As files are."""
    with Document(folder, limits=LoadLimits(processes=1)) as docs:
        assert _texts(_by_kind(docs), "d.xml") == [XML]
