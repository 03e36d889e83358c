"""What indexes read of a node: fields of its file before its text, or another text; its own text
and span stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError

GUIDE = "# Garden guide\n\nWelcome.\n\n## Compost\n\nTurn the heap every month.\n\n## Water\n\nUse rain if you can.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one guide, in a folder of its own."""
    path = tmp_path / "data" / "allotment" / "guide.md"
    path.parent.mkdir(parents=True)
    path.write_text(GUIDE)
    return tmp_path / "data"


class Embedder:
    """Remembers the texts that it embeds."""

    identity = "letters"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[float]:
        """A vector of two counts."""
        self.texts.append(text)
        return [text.count("e") + 1.0, text.count("a") + 1.0]


def sections(text: str) -> list[str]:
    """The sections of the guide."""
    first, *rest = text.split("## ")
    return [first, *(f"## {one}" for one in rest)]


def found(docs: Document, query: str, group: str = "section") -> list[str]:
    """The texts that keyword search finds."""
    return [node.text.strip() for node in Retriever(docs, group, similarity="bm25")(query)]


def stored(tmp_path: Path) -> dict[str, Any]:
    """Settings of a store file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}


def test_built_in_groups_are_found_by_path_title_and_headings(folder: Path) -> None:
    """Words of the path find a chunk of a built-in group; its text and span are those of the
    file.
    """
    docs = Document(folder)
    [node] = docs.search("allotment")
    assert node.text == GUIDE
    assert node.root.text[slice(*node.span)] == node.text


def test_code_is_found_by_the_blocks_around_it(tmp_path: Path) -> None:
    """A method is found by the name of its class, and its text stays its own; text with the same
    indentation has no blocks.
    """
    code = "impl Kettle {\n    fn boil(&self) -> u8 {\n        100\n    }\n}\n"
    (tmp_path / "tea.rs").write_text(code)
    (tmp_path / "tea.txt").write_text(code)
    docs = Document(tmp_path)
    docs.create_node_group("line", str.splitlines, index_fields=["headings"])
    hits = Retriever(docs, "line", similarity="bm25")("kettle")
    inside = {(node.path, node.text.strip()) for node in hits if "impl" not in node.text}
    assert inside == {
        ("tea.rs", "fn boil(&self) -> u8 {"),
        ("tea.rs", "100"),
        ("tea.rs", "}"),
    }


@pytest.mark.parametrize("name", ["a.md", "a.html"])
def test_rows_are_found_by_the_names_of_their_columns(tmp_path: Path, name: str) -> None:
    """Also where the table began in another chunk; a row that is read alone has its own words."""
    rows = [(f"Region{number}", str(3 * number)) for number in range(200)]
    lines = [f"| {region} | {weight} |" for region, weight in rows]
    text = "\n".join(["# Harvest", "", "| region | saffron |", "| --- | --- |", *lines])
    if name == "a.html":
        cells = "".join(f"<tr><td>{region}<td>{weight}" for region, weight in rows)
        text = f"<h1>Harvest</h1><table><tr><th>region<th>saffron{cells}</table>"
    (tmp_path / name).write_text(text)
    docs = Document(tmp_path)
    [best, *_] = docs.search("saffron of Region150", topk=3)
    assert "Region150" in best.text
    assert "saffron" not in best.text


def test_the_name_of_a_text_file_is_read(folder: Path) -> None:
    """A .txt file is found by a word of its name, as any other."""
    (folder / "engines.txt").write_text("The heap is turned.")
    assert [node.path for node in Document(folder).search("engines")] == ["engines.txt"]


def test_an_equal_function_is_no_other_definition(folder: Path) -> None:
    """A cell of a notebook that is run twice defines the group once."""
    docs = Document(folder)
    for _ in range(2):
        docs.create_node_group("section", sections, index_text=lambda node: f"x {node.text}")
    assert found(docs, "x")


def test_a_child_group_that_is_not_defined_concerns_its_group_alone(
    folder: Path, tmp_path: Path
) -> None:
    """Another program without the child group syncs and shows its status; a search of the group
    names what it lacks.
    """
    with Document(folder, store_conf=stored(tmp_path)) as docs:
        docs.create_node_group("section", sections, index_text="header")
        docs.create_node_group(
            "header", lambda text: "decay" if "heap" in text else "other", parent="section"
        )
        assert found(docs, "decay")
    (folder / "new.md").write_text("A spade.")
    with Document(folder, store_conf=stored(tmp_path)) as docs:
        docs.create_node_group("section", sections, index_text="header")
        assert docs.sync().added == ("new.md",)
        assert "section" in str(docs.status())
        with pytest.raises(ConfigError, match="index_text of 'section'"):
            found(docs, "decay")


def test_compact_calls_no_function(folder: Path, tmp_path: Path) -> None:
    """What a function writes may cost money, and need not be known: its vectors stay."""
    calls: list[str] = []

    def write(node: Any) -> str:
        calls.append(node.text)
        return str(node.text)

    with Document(folder, embed=Embedder(), store_conf=stored(tmp_path)) as docs:
        docs.create_node_group("section", sections, index_text=write)
        Retriever(docs, "section", similarity="cosine")("rain")
        before = len(calls)
        docs.maintenance.compact()
        assert len(calls) == before


def test_the_id_of_an_added_text_is_not_read() -> None:
    """A text without a file is found by its words alone."""
    docs = Document()
    docs.add_texts({"allotment": "Turn the heap."})
    assert [node.path for node in docs.search("heap")] == ["allotment"]
    assert docs.search("allotment") == []


def test_a_group_of_ones_own_is_indexed_by_its_text_alone(folder: Path) -> None:
    """Without index_fields neither path nor headings are read."""
    docs = Document(folder)
    docs.create_node_group("section", sections)
    assert found(docs, "allotment") == found(docs, "garden heap allotment")[2:] == []


def test_headings_above_a_node_are_read(folder: Path) -> None:
    """The title above a section finds it, after the node that holds the title."""
    docs = Document(folder)
    docs.create_node_group("section", sections, index_fields=["headings"])
    assert len(found(docs, "garden")) == 3


@pytest.mark.parametrize(("query", "count"), [("allotment", 3), ("perennial", 3), ("2031", 3)])
def test_fields_may_be_metadata(folder: Path, query: str, count: int) -> None:
    """The path, and metadata of the file: a text, a list, a number."""
    given = {"topics": ["perennial", "annual"], "year": 2031}
    docs = Document(folder, file_metadata=lambda _: given)
    docs.create_node_group("section", sections, index_fields=["path", "topics", "year"])
    assert len(found(docs, query)) == count


def test_each_embed_key_and_keyword_search_may_have_fields_of_its_own(folder: Path) -> None:
    """A mapping: the embedder reads headings, keyword search the path."""
    embed = Embedder()
    docs = Document(folder, embed=embed)
    docs.create_node_group("section", sections, index_fields={"bm25": ["path"], "*": ["headings"]})
    Retriever(docs, "section", similarity="cosine")("rain")
    assert sum(text.startswith("Garden guide") for text in embed.texts) == 3
    assert not any("allotment" in text for text in embed.texts)
    assert len(found(docs, "allotment")) == 3


def test_a_function_writes_what_is_indexed(folder: Path) -> None:
    """The function receives the node, with its neighbours; the node keeps its text."""
    docs = Document(folder)
    docs.create_node_group(
        "section", sections, index_text=lambda node: f"{node.root.path} number{node.number}"
    )
    assert found(docs, "number2") == ["## Compost\n\nTurn the heap every month."]
    assert found(docs, "heap") == []


def test_the_nodes_of_a_child_group_are_read_before_the_text(folder: Path) -> None:
    """A header that a model would write finds its section; a new definition of it indexes the
    sections again.
    """
    docs = Document(folder)
    docs.create_node_group("section", sections, index_text="header")
    docs.create_node_group(
        "header", lambda text: "decay" if "heap" in text else "other", parent="section"
    )
    assert (
        found(docs, "decay") == found(docs, "heap") == ["## Compost\n\nTurn the heap every month."]
    )
    docs.create_node_group(
        "header", lambda text: "rotting" if "heap" in text else "x", parent="section", replace=True
    )
    assert found(docs, "decay") == []
    assert found(docs, "rotting") == found(docs, "heap")


def test_a_function_that_raises_fails_its_file_only(folder: Path) -> None:
    """The report names the file and the error; other files are found."""
    (folder / "other.md").write_text("A spade.")

    def write(node: Any) -> str:
        if "spade" not in node.text:
            raise ValueError("no spade here")
        return str(node.text)

    docs = Document(folder)
    docs.create_node_group("section", sections, index_text=write)
    with pytest.warns(match="spade here"):
        assert found(docs, "spade") == ["A spade."]
    assert [one.path for one in docs.last_report.failed] == ["allotment/guide.md"]


@pytest.mark.parametrize(
    ("keywords", "word"),
    [
        ({"index_fields": "path"}, "index_fields"),
        ({"index_fields": {"bm25": "path"}}, "index_fields"),
        ({"index_text": 3}, "index_text"),
        ({"index_fields": {"bm52": ["path"]}}, "bm52"),
    ],
)
def test_invalid_arguments_are_named(folder: Path, keywords: Any, word: str) -> None:
    """A string in place of a list, a number in place of a function."""
    with pytest.raises(ConfigError, match=word):
        Document(folder).create_node_group("section", sections, **keywords)


def test_a_group_that_is_not_below_is_refused(folder: Path) -> None:
    """index_text names a group of another branch."""
    docs = Document(folder)
    docs.create_node_group("section", sections, index_text="FineChunk")
    with pytest.raises(ConfigError, match="below 'section'"):
        found(docs, "heap")


def test_other_fields_make_other_indexes_and_no_other_nodes(folder: Path) -> None:
    """Redefined with other fields, a group keeps its nodes, and is indexed and embedded again."""
    embed, calls = Embedder(), []

    def counted(text: str) -> list[str]:
        calls.append(text)
        return sections(text)

    docs = Document(folder, embed=embed)
    docs.create_node_group("section", counted, version="1")
    search = Retriever(docs, "section", similarity="cosine")
    uids = {node.uid for node in search("rain")}
    docs.create_node_group("section", counted, version="1", index_fields=["headings"], replace=True)
    assert {node.uid for node in search("rain")} == uids
    assert len(calls) == 1
    assert len(embed.texts) == 3 + 1 + 3 + 1  # with the queries


@pytest.mark.parametrize("in_file", [True, False])
def test_a_moved_file_is_found_by_its_new_path_and_not_embedded_again(
    folder: Path, tmp_path: Path, in_file: bool
) -> None:
    """Embeddings of the built-in groups do not read the path."""
    embed = Embedder()
    docs = Document(folder, embed=embed, store_conf=stored(tmp_path) if in_file else None)
    assert docs.search("allotment")
    before = len(embed.texts)
    (folder / "allotment").rename(folder / "orchard")
    docs.sync()
    assert len(embed.texts) == before
    assert [node.path for node in Retriever(docs, "MediumChunk", similarity="bm25")("orchard")] == [
        "orchard/guide.md"
    ]
    docs.close()


@pytest.mark.parametrize(("fields", "count"), [(["path"], 3), (["title"], 0)])
def test_a_plan_counts_what_a_move_embeds(
    folder: Path, tmp_path: Path, fields: list[str], count: int
) -> None:
    """Embeddings that read the path are made again; a plan counts them, and max_calls limits
    them.
    """
    embed = Embedder()
    with Document(folder, embed=embed, store_conf=stored(tmp_path)) as docs:
        docs.create_node_group("section", sections, index_fields=fields)
        Retriever(docs, "section", similarity="cosine")("rain")
        (folder / "allotment").rename(folder / "orchard")
        before = len(embed.texts)
        assert docs.plan().calls == docs.plan(diff=True).calls == count
        assert [diff.embed for diff in docs.plan(diff=True).diffs] == [{"default": count}] * (
            count > 0
        )
        if count:
            with pytest.raises(ConfigError, match="max_calls"):
                docs.sync(max_calls=count - 1)
        docs.sync(max_calls=count)
        assert len(embed.texts) - before == count


def test_a_diff_of_nothing_corrects_the_estimate(folder: Path, tmp_path: Path) -> None:
    """Fields that were read before need no embedding; a plan with a diff says so."""
    embed = Embedder()
    with Document(folder, embed=embed, store_conf=stored(tmp_path)) as docs:
        for fields in (["title"], ["headings"]):
            docs.create_node_group("section", sections, index_fields=fields, replace=True)
            Retriever(docs, "section", similarity="cosine")("rain")
        docs.create_node_group("section", sections, index_fields=["title"], replace=True)
        assert docs.plan().calls == 3
        assert docs.plan(diff=True).calls == 0
        before = len(embed.texts)
        Retriever(docs, "section", similarity="cosine")("rain")
        assert embed.texts[before:] == ["rain"]


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("compacted", [True, False])
def test_unchanged_texts_of_an_edited_file_are_not_embedded_again(
    folder: Path, tmp_path: Path, in_file: bool, compacted: bool
) -> None:
    """One section is edited: it alone is embedded; so, too, after compact()."""
    embed = Embedder()
    docs = Document(folder, embed=embed, store_conf=stored(tmp_path) if in_file else None)
    docs.create_node_group("section", sections, index_fields=["headings"])
    search = Retriever(docs, "section", similarity="cosine")
    search("rain")
    if compacted:
        docs.maintenance.compact()
    before = len(embed.texts)
    (folder / "allotment" / "guide.md").write_text(GUIDE.replace("month", "week"))
    docs.sync()
    assert embed.texts[before:] == [
        "Garden guide > Compost\n## Compost\n\nTurn the heap every week.\n\n"
    ]
    docs.close()


def test_a_reopened_store_keeps_its_indexes(folder: Path, tmp_path: Path) -> None:
    """The same definition in the next program embeds the query alone."""

    def opened(embed: Callable[[str], list[float]]) -> Document:
        docs = Document(folder, embed=embed, store_conf=stored(tmp_path))
        docs.create_node_group("section", sections, index_fields=["headings"], index_text=shout)
        return docs

    with opened(Embedder()) as docs:
        Retriever(docs, "section", similarity="cosine")("rain")
    again = Embedder()
    again.probe = False
    with opened(again) as docs:
        assert len(Retriever(docs, "section", similarity="cosine")("rain")) == 3
        assert [group.indexes for group in docs.status().groups if group.name == "section"] == [
            ("default",)
        ]
    assert again.texts == ["rain"]


def shout(node: Any) -> str:
    """The text in capitals."""
    return str(node.text).upper()
