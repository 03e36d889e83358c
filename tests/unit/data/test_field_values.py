"""What files say of themselves reaches declared fields, by their type; what does not fit is a
warning.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import docx
import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, Retriever
from lazyrag.data.fields import parse_value
from lazyrag.errors import ConfigError
from lazyrag.loaders import LoadLimits
from tests.small_hostile import epub, odf

FIELDS = {
    "author": DocField(DataType.VARCHAR, max_size=128, default_value=" "),
    "year": DocField(DataType.INT32),
    "price": DocField(DataType.FLOAT),
    "rating": DocField(DataType.DOUBLE),
    "is_open": DocField(DataType.BOOLEAN),
    "day": DocField(DataType.DATE),
    "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
    "years": DocField(DataType.ARRAY, element_type=DataType.INT64),
}
TEXTS = {
    "author": "Li",
    "year": "2002",
    "price": "1.5",
    "rating": "4e1",
    "is_open": "yes",
    "day": "2002-05-01",
    "tags": "green, black",
    "years": "1999; 2002",
}
VALUES = {
    "author": "Li",
    "year": 2002,
    "price": 1.5,
    "rating": 40.0,
    "is_open": True,
    "day": "2002-05-01",
    "tags": ["green", "black"],
    "years": [1999, 2002],
}


def _front() -> str:
    return "---\n" + "".join(f"{name}: {value}\n" for name, value in TEXTS.items()) + "---\nTea\n"


def _page() -> str:
    metas = "".join(
        f'<meta name="{name.upper()}" content="{value}">' for name, value in TEXTS.items()
    )
    return f"<html><head>{metas}</head><body>Tea</body></html>"


def _table() -> str:
    quoted = [f'"{value}"' for value in TEXTS.values()]
    return ",".join(TEXTS) + "\n" + (",".join(quoted) + "\n") * 2


def _word() -> bytes:
    """A Word document with custom properties."""
    document = docx.Document()
    document.add_paragraph("Tea")
    document.core_properties.author = "Li"
    written = io.BytesIO()
    document.save(written)
    source, target = zipfile.ZipFile(written), io.BytesIO()
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/custom-properties"
    own = "".join(
        f'<property name="{name}"><v>{value}</v></property>' for name, value in TEXTS.items()
    )
    with zipfile.ZipFile(target, "w") as file:
        for name in source.namelist():
            content = source.read(name)
            if name == "_rels/.rels":
                end = f'<Relationship Id="c" Type="{kind}" Target="docProps/custom.xml"/></Relationships>'
                content = content.replace(b"</Relationships>", end.encode())
            file.writestr(name, content)
        file.writestr("docProps/custom.xml", f"<Properties>{own}</Properties>")
    return target.getvalue()


def _opendocument() -> bytes:
    own = "".join(
        f'<m:user-defined m:name="{name}">{value}</m:user-defined>' for name, value in TEXTS.items()
    )
    return odf(
        "text",
        "<text:p>Tea</text:p>",
        **{"meta.xml": f'<m:d xmlns:m="urn:m"><m:meta>{own}</m:meta></m:d>'},
    )


def _book() -> bytes:
    return epub(
        "<p>Tea</p>",
        extra="".join(f'<meta name="{name}" content="{value}"/>' for name, value in TEXTS.items()),
    )


def _json(suffix: str) -> str:
    values = [f'"{name}": "{value}"' for name, value in TEXTS.items()]
    one = "{" + ", ".join(values) + "}"
    return one if suffix == "json" else f"{one}\n{one}\n"


MADE = {
    "a.md": _front,
    "a.html": _page,
    "a.csv": _table,
    "a.docx": _word,
    "a.odt": _opendocument,
    "a.epub": _book,
    "a.json": lambda: _json("json"),
    "a.jsonl": lambda: _json("jsonl"),
    "a.yaml": lambda: "".join(f'{name}: "{value}"\n' for name, value in TEXTS.items()),
}


@pytest.mark.parametrize("name", MADE)
def test_values_of_files_fill_declared_fields_of_any_type(folder, name):
    """Front matter, meta elements, properties, top-level names and columns are parsed by the type
    of their field.
    """
    docs = Document(folder({name: MADE[name]()}), doc_fields=FIELDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [node] = docs.get_nodes()
    assert {field: node.metadata.get(field) for field in FIELDS} == VALUES
    assert [
        node.path
        for node in docs.get_nodes(filters={"year": [2002], "tags": ["black"], "is_open": True})
    ] == [name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    [{"limits": LoadLimits(processes=1)}, {"launcher": 1}, {"launcher": ThreadPoolExecutor(1)}],
)
def test_values_of_files_loaded_elsewhere_fill_declared_fields(folder, option):
    """Loading processes and launchers return the values of a file, too."""
    with Document(
        folder({name: make() for name, make in MADE.items()}), doc_fields=FIELDS, **option
    ) as docs:
        read = {
            node.path: {field: node.metadata.get(field) for field in FIELDS}
            for node in docs.get_nodes()
        }
    assert read == dict.fromkeys(MADE, VALUES)


def test_names_that_are_not_declared_stay_out_of_the_metadata(folder):
    """Only declared names become metadata of a page or a record; else each would carry what robots
    read.
    """
    docs = Document(
        folder({"a.html": _page(), "b.json": _json("json")}), doc_fields={"year": FIELDS["year"]}
    )
    assert [node.metadata["year"] for node in docs.get_nodes()] == [2002, 2002]
    assert all("price" not in node.metadata for node in docs.get_nodes())


def test_the_sample_of_the_specification(folder):
    """Author and year of specification 001, filled from files, narrow a retriever's answers."""
    fields = {
        "author": DocField(data_type=DataType.VARCHAR, max_size=128, default_value=" "),
        "public_year": DocField(data_type=DataType.INT32),
    }
    files = {
        f"{year}.md": f"---\nauthor: {who}\npublic_year: {year}\n---\nTea is green.\n"
        for who, year in (("A", 2002), ("B", 2009))
    }
    retriever = Retriever(
        Document(folder(files), doc_fields=fields), "FineChunk", similarity="bm25"
    )
    hits = retriever("tea", filters={"author": ["A", "B", "C"], "public_year": [2002, 2003, 2004]})
    assert [hit.path for hit in hits] == ["2002.md"]


def test_what_does_not_fit_is_a_warning_and_no_lost_file(folder):
    """The warning names file, field and value; the report has all of them, and the file is in
    without them.
    """
    text = "---\nauthor: Li\nyear: about 2002\nday: spring\n---\nTea\n"
    docs = Document(folder({"a.md": text, "b.csv": "year\n2002\n2003\n"}), doc_fields=FIELDS)
    with pytest.warns(
        IngestionWarning,
        match=r"declared fields: 3\. The first, of a\.md: .*'year' is INT32; 'about 2002'",
    ):
        report = docs.sync()
    assert report.added == ("a.md", "b.csv")
    assert not report.failed
    assert [note.partition(";")[0] for note in report.notes["a.md"]] == [
        "value left out: Field 'year' is INT32",
        "value left out: Field 'day' is DATE",
    ]
    assert "['2002', '2003']" in report.notes["b.csv"][0]
    [node, _] = docs.get_nodes()
    assert node.metadata["author"] == "Li"
    assert "year" not in node.metadata
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not docs.sync().added


def test_columns_of_different_values_fill_lists(folder):
    """The different values of a column, or of records, are the elements of an ARRAY."""
    files = {
        "a.csv": "tags,n\ngreen,1\nblack,2\ngreen,3\n",
        "b.jsonl": '{"tags": ["a, b"]}\n{"tags": ["c"]}\n',
    }
    docs = Document(folder(files), doc_fields={"tags": FIELDS["tags"]})
    assert [node.metadata["tags"] for node in docs.get_nodes()] == [
        ["green", "black"],
        ["a, b", "c"],
    ]


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        (DataType.INT32, "2002.5"),
        (DataType.INT32, "99999999999"),
        (DataType.INT64, "1_000"),
        (DataType.FLOAT, "1e99"),
        (DataType.DOUBLE, "nan"),
        (DataType.BOOLEAN, "perhaps"),
        (DataType.DATE, "2024-02-30"),
        (DataType.VARCHAR, ["a", "b"]),
    ],
)
def test_texts_that_spell_no_value(data_type, text):
    """What is no value of the type is refused with the value."""
    with pytest.raises(ConfigError, match="Field 'f'"):
        parse_value("f", DocField(data_type), text)


@pytest.mark.parametrize(
    ("data_type", "value", "parsed"),
    [
        (DataType.INT64, " -7 ", -7),
        (DataType.DOUBLE, ".5", 0.5),
        (DataType.BOOLEAN, "False", False),
        (DataType.DATE, "2024-05-01T23:00:00+02:00", "2024-05-01"),
        (DataType.DATE, "2024/5/1", "2024-05-01"),
        (DataType.VARCHAR, 2002, "2002"),
        (DataType.INT32, ["2002"], 2002),
        (DataType.INT32, 2002, 2002),
    ],
)
def test_texts_that_spell_a_value(data_type, value, parsed):
    """Texts of the usual spellings, and values that are of the type already."""
    assert parse_value("f", DocField(data_type), value) == parsed


def test_fields_that_are_declared_later(folder, tmp_path):
    """A store whose files were read before a field was declared has its values by type, and loses
    no file.
    """
    files = folder(
        {"a.md": "---\nyear: 2002\n---\nTea\n", "b.md": "---\nyear: about 2002\n---\nTea\n"}
    )
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "tea.db")}}}
    with Document(files, store_conf=conf) as docs:
        assert [node.metadata["year"] for node in docs.get_nodes()] == ["2002", "about 2002"]
    with Document(files, store_conf=conf, doc_fields={"year": FIELDS["year"]}) as docs:
        assert [node.metadata.get("year") for node in docs.get_nodes()] == [2002, None]
        assert [one.path for one in docs.documents(where={"year": [2002]})] == ["a.md"]
