"""What OpenSearch is given, looked at without a server: rows as texts, terms, the arguments of the
store.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.segment import Location, Segment, content_text
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError
from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.stores.opensearch_encoding import (
    Shape,
    decode_segment,
    join_terms,
    read_shape,
    segment_encoder,
)
from lazyrag.testing.samples import SCHEMA, make_segments
from tests.hard_fields import SCHEMA as HARD_FIELDS
from tests.hard_fields import rows as hard_rows

_texts = st.text(st.characters(codec=None), max_size=8)
_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_scalars = _texts | _numbers | st.booleans()
_segments = st.builds(
    Segment,
    uid=st.text(max_size=8),
    build=st.integers(0, 2**40),
    group=_texts,
    document_id=_texts,
    path=_texts,
    parent=st.none() | _texts,
    number=st.integers(1, 2**40),
    content=_json.filter(lambda value: value is not None),
    metadata=st.dictionaries(_texts, _json, max_size=3),
    fields=st.dictionaries(
        _texts, st.none() | _scalars | st.lists(_scalars, max_size=3).map(tuple), max_size=3
    ),
    span=st.none() | st.tuples(st.integers(0, 9), st.integers(9, 20)),
    locations=st.lists(
        st.builds(Location, st.just(0), st.integers(0, 9), _texts, _texts), max_size=2
    ).map(tuple),
)


_SHAPES = st.sampled_from([{}, HARD_FIELDS])
_hard_segments = st.builds(Segment._replace, _segments, fields=st.sampled_from(hard_rows()))


@pytest.mark.slow
@given(_segments | _hard_segments, _SHAPES)
def test_a_segment_is_read_as_it_was_written(segment: Segment, schema):
    """Whatever it holds and whichever fields are declared, it comes back equal, and can be sent as
    UTF-8.
    """
    line = segment_encoder(
        Shape({name: schema[name] for name in schema if name in segment.fields}, ())
    )(segment)
    read = decode_segment(json.loads(line.encode()))
    assert read == segment
    assert _kinds(read) == _kinds(segment)


def _kinds(segment: Segment):
    """What equality does not tell: types, and the sign of zeros."""
    return type(segment.content), {name: repr(value) for name, value in segment.fields.items()}


def test_what_filters_read_is_not_written_twice():
    """A declared field stands once in a document; one that is not declared, and -0.0, in the text
    beside.
    """
    fields = {"author": "陆羽", "sizes": (1.0, -0.0), "pages": 7}
    declared = {
        "author": DocField(DataType.VARCHAR),
        "sizes": DocField(DataType.ARRAY, DataType.DOUBLE),
    }
    line = segment_encoder(Shape(make_schema(declared), ()))(
        make_segments()[0]._replace(fields=fields)
    )
    assert line.count("陆羽") == 1
    assert json.loads(json.loads(line)["segment"])[7] == {"sizes": [1.0, -0.0], "pages": 7}


def test_other_tools_can_read_a_document():
    """The text is there once, as itself; what UTF-8 or a text field cannot have is in the rest."""
    row = make_segments()[0]._replace(content="绿茶 🍵", path="a/茶.md", span=(3, 7))
    encode = segment_encoder(Shape(SCHEMA, ()))
    line = encode(row)
    document = json.loads(line)
    assert (document["text"], document["path"], document["span"]) == ("绿茶 🍵", "a/茶.md", [3, 7])
    assert line.count("绿茶") == 1
    broken = json.loads(encode(row._replace(content="a\ud83c", path="\udcff")).encode())
    assert (broken["text"], broken["path"]) == ("a?", "?")
    assert json.loads(encode(row._replace(content={"tea": 1})))["text"] == content_text({"tea": 1})


def test_a_document_of_the_last_release_is_read():
    """Its text is in the list of the rest."""
    row = make_segments()[0]
    document = json.loads(segment_encoder(Shape(SCHEMA, ()))(row))
    parts = json.loads(document["segment"])
    parts[5] = document.pop("text", parts[5])
    del document["path"]
    assert decode_segment({**document, "segment": json.dumps(parts)}) == row
    mapping = Shape(SCHEMA, ()).body({}, {})["mappings"]
    mapping["_meta"]["lazyrag"]["layout"] = 2
    assert read_shape(mapping) == Shape(SCHEMA, ())


def test_the_servers_analyser_of_texts_is_a_mapping():
    """The text field may be defined by the user; our other fields may not."""
    text = {"type": "text", "analyzer": "smartcn"}
    body = Shape(SCHEMA, ()).body({}, {"properties": {"text": text}})
    assert body["mappings"]["properties"]["text"] == text
    with pytest.raises(ConfigError, match="'meta'"):
        OpenSearchSegmentStore("localhost", {}, {"mappings": {"properties": {"meta": {}}}})


def test_what_is_no_json_is_refused():
    """The error names the node and its group."""
    row = make_segments()[0]._replace(metadata={"when": object()})
    with pytest.raises(
        ConfigError, match=rf"Node '{row.uid}' in group 'block' must hold JSON values only"
    ):
        segment_encoder(Shape({}, ()))(row)


def test_another_layout_is_refused():
    """An index of an earlier version is a SchemaMismatchError that names it and says what to do."""
    mapping = Shape(SCHEMA, ()).body({}, {})["mappings"]
    del mapping["_meta"]["lazyrag"]["layout"]
    with pytest.raises(
        SchemaMismatchError, match=r"'lr_rows' in OpenSearch has rows of layout 1.*Drop it and read"
    ):
        read_shape(mapping, "lr_rows")


def test_a_document_is_one_line_of_utf8():
    """Whatever the row holds: a request of many rows has a line for each."""
    document = segment_encoder(Shape(SCHEMA, ("en", "zh")))
    for row in make_segments():
        line = document(row._replace(content=f"{row.content}\n\ud83c"))
        assert "\n" not in line
        assert json.loads(line.encode())["key"] == row.key


def test_a_shape_is_read_from_the_mapping_it_made():
    """Fields with their bounds and defaults, and the analysers; an index without it is somebody
    else's.
    """
    tags = DocField(DataType.ARRAY, DataType.VARCHAR, default_value=["a"], max_size=9)
    shape = Shape(make_schema({"tags": tags, "作者": DocField(DataType.VARCHAR)}), ("zh",))
    assert read_shape(json.loads(json.dumps(shape.body({}, {})["mappings"]))) == shape
    assert read_shape({}) is None


def test_terms_survive_a_tokenizer_at_white_space():
    """As many pieces as terms, equal ones for equal terms, whatever is in them."""
    terms = ["tea", "绿茶", "green tea", "x" * 300, "\ud83c", "\u3000", "", "tea"]
    pieces = join_terms(terms).split()
    assert len(pieces) == len(terms)
    assert len({*pieces}) == len({*terms})
    assert (pieces[0], pieces[1], pieces[-1]) == ("tea", "绿茶", "tea")


@pytest.mark.parametrize("uris", ["", [], [""], None, 9200, [9200], {"host": "localhost"}])
def test_addresses_are_texts(uris):
    """Anything else is a ConfigError that shows one."""
    with pytest.raises(ConfigError, match="localhost:9200"):
        OpenSearchSegmentStore(uris)


@pytest.mark.parametrize(
    ("index_kwargs", "told"),
    [
        ({"setting": {}}, "Did you mean 'settings'"),
        ({"mappings": {"properties": {"key": {"type": "text"}}}}, "doc_fields"),
        ({"mappings": ["key"]}, "must be a mapping"),
        ({"settings": ["number_of_replicas"]}, "must be a mapping"),
        ({"analysers": "zh"}, "list of strings"),
        ({"analysers": ["zh_"]}, "Did you mean 'zh'"),
    ],
)
def test_wrong_index_kwargs(index_kwargs, told):
    """What would not be kept to is refused before anything is opened."""
    with pytest.raises(ConfigError, match=told):
        OpenSearchSegmentStore("localhost:9200", {}, index_kwargs)


def test_features_follow_the_analysers():
    """Native text needs terms; an empty mapping stands for the default."""
    both = OpenSearchSegmentStore("localhost:9200", {}, {"mappings": {}, "settings": None})
    assert both.features == {"persistent", "shared", "native text", "server"}
    assert OpenSearchSegmentStore("localhost:9200", {}, {"analysers": []}).features == {
        "persistent",
        "shared",
    }


def test_it_is_closed_until_it_is_opened():
    """Using it is a StoreError; closing it is fine."""
    store = OpenSearchSegmentStore("localhost:9200")
    store.close()
    with pytest.raises(StoreError, match=r"not open\. Call open"):
        store.count("lr_rows")
