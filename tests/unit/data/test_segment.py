"""Segments: ids, keys, metadata that stores can keep."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import LAZY_ROOT_NAME
from lazyrag.data.segment import Segment, check_metadata, child_uids, digest, root_uid, store_key
from lazyrag.errors import ConfigError

_texts = st.lists(st.text(max_size=4), max_size=4)


def test_the_root_group_has_spec_001s_name():
    """Spec 001 writes lazyllm_root; other programs rely on it."""
    assert LAZY_ROOT_NAME == "lazyllm_root"


def test_ids_are_the_same_in_every_release():
    """Uids are stored and shown: these three may never change."""
    assert root_uid("guide/setup.md") == "c69fcb14aab722d32bc9a6239aba67ac"
    assert child_uids(root_uid("guide/setup.md"), "FineChunk", [1]) == [
        "252e2e902c65197581a0b8e1c0df0b79"
    ]
    assert digest(["绿茶", ""]) == "8ffdc6545d1a578a00a64ac9d9b79df9"


@given(_texts, _texts)
def test_two_lists_collide_only_if_they_are_equal(one, other):
    """Parts are framed: moving a character from one to the next gives another digest."""
    assert (digest(one) == digest(other)) == (one == other)


@given(st.text(max_size=3), st.text(min_size=1, max_size=3), st.text(max_size=3))
def test_where_a_part_ends_matters(a, b, c):
    """Joining neighbours gives another digest than keeping them apart."""
    assert (
        len({digest([a, b, c]), digest([a + b, c]), digest([a, b + c]), digest([a + b + c])}) == 4
    )


def test_any_text_has_a_digest():
    """Also a file name that is no valid Unicode, as file systems allow."""
    assert digest(["bad\udcff"]) != digest(["bad\udcfe"])
    assert len(digest([])) == 32


def test_uids_tell_place_in_the_tree_apart():
    """Another document, parent, group or ordinal is another node; a root is never a child."""
    root = root_uid("a.txt")
    uids = [
        root,
        root_uid("b.txt"),
        root_uid("dir/a.txt"),
        *child_uids(root, "block", [1, 2, 11]),
        *child_uids(root, "block1", [1]),
        *child_uids(root, "Block", [1]),
        *child_uids(root_uid("b.txt"), "block", [1]),
        *child_uids(child_uids(root, "block", [1])[0], "block", [1]),
    ]
    assert len(set(uids)) == len(uids)
    assert {len(uid) for uid in uids} == {32}


def test_a_key_is_the_uid_with_its_build():
    """Two builds of one node lie side by side in a store; keys sort as uids do."""
    uids = sorted(child_uids(root_uid("a.txt"), "block", range(1, 50)))
    keys = [store_key(uid, 1000 - number) for number, uid in enumerate(uids)]
    assert keys == sorted(keys)
    assert len({store_key(uids[0], build) for build in range(20)}) == 20
    segment = Segment(uids[0], 7, "block", uids[1], "a.txt", uids[1], 1, "text")
    assert segment.key == f"{uids[0]}-7"


def test_a_segment_cannot_be_changed():
    """Segments are values: stores and nodes share them."""
    segment = Segment("u" * 32, 1, "block", "d" * 32, "a.txt", None, 1, "text")
    with pytest.raises(AttributeError):
        segment.content = "other"
    with pytest.raises(TypeError):
        segment.metadata["a"] = 1
    with pytest.raises(TypeError):
        segment.fields["a"] = 1


@pytest.mark.parametrize(
    "metadata",
    [{}, {"a": 1, "b": None, "c": [1, {"d": "绿"}], "": True, "e": 2.5}, {"空": "茶"}],
)
def test_metadata_of_json_values_is_kept(metadata):
    """Names to JSON values of any depth, as they are."""
    assert dict(check_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"when": object()}, "'when'"),
        ({"tags": {"a"}}, "'tags'"),
        ({"deep": [{"x": b"bytes"}]}, "'deep'"),
        ({"rate": math.nan}, "'rate'"),
        ({"rate": [math.inf]}, "'rate'"),
        ({"vector": np.zeros(2)}, "'vector'"),
        ({5: "five"}, "5"),
        ({None: "none"}, "None"),
    ],
)
def test_metadata_that_no_store_can_keep_is_refused(metadata, said):
    """The error names the entry."""
    with pytest.raises(ConfigError, match="Metadata") as caught:
        check_metadata({"fine": 1, **metadata})
    assert said in str(caught.value)


def test_kept_metadata_is_a_copy():
    """What a caller later does to its own dict and lists changes nothing."""
    mine = {"tags": ["a"], "year": 2002}
    kept = check_metadata(mine)
    mine["year"] = 1
    mine["tags"].append("b")
    assert dict(kept) == {"tags": ["a"], "year": 2002}


def test_kept_metadata_is_read_only():
    """Metadata of a stored node is shared by all who hold it."""
    kept = check_metadata({"year": 2002})
    with pytest.raises(TypeError):
        kept["year"] = 1


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3), min_size=1))
def test_pieces_are_the_text_that_they_join_to(parts, pieces):
    """A text in pieces has the digest of the joined one."""
    assert digest(parts, pieces=pieces) == digest([*parts, "".join(pieces)])


@pytest.mark.parametrize("large", ["tea " * 400_000, "绿茶" * 600_000, "\udcff" * 1_100_000])
def test_large_texts_have_the_digest_of_their_frames(large):
    """Texts that are hashed in slices give what all of them at once gave."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in ("a", large)]
    framed = b"".join(len(data).to_bytes(8, "little") + data for data in encoded)
    expected = hashlib.blake2b(framed, digest_size=16).hexdigest()
    assert digest(["a", large]) == digest(["a"], pieces=[large[:7], large[7:]]) == expected
