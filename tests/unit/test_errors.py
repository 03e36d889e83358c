"""The tree of errors and the ends of their messages."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from lazyrag import errors
from lazyrag.errors import LazyRAGError, known_names, nearest
from tests.interpreter import ROOT, python

BUILTIN_BASES = {
    "ConfigError": ValueError,
    "DatasetPathError": FileNotFoundError,
    "NotRegisteredError": KeyError,
    "AlreadyRegisteredError": ValueError,
    "MissingDependencyError": ImportError,
    "StaleNodeError": LookupError,
    "StoreConnectionError": ConnectionError,
    "UnsupportedError": NotImplementedError,
}


def _all_errors() -> dict[str, type[LazyRAGError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: cls for name, cls in members if issubclass(cls, LazyRAGError)}


def test_every_error_is_caught_by_the_base_of_the_package():
    """Whoever catches LazyRAGError catches all that the package raises on purpose."""
    found = [
        cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)
    ]
    strays = [cls.__name__ for cls in found if not issubclass(cls, (LazyRAGError, Warning))]
    assert len(found) > 15
    assert strays == []


@pytest.mark.parametrize(("name", "builtin"), BUILTIN_BASES.items())
def test_an_error_is_also_the_builtin_that_a_caller_expects(name, builtin):
    """Code that catches the builtin goes on working."""
    with pytest.raises(builtin, match="what was given"):
        raise _all_errors()[name]("what was given")


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("DatasetPathError", "ConfigError"),
        ("StoreConnectionError", "StoreError"),
        ("SchemaMismatchError", "StoreError"),
        ("UnsupportedError", "StoreError"),
    ],
)
def test_the_tree_has_its_branches(child, parent):
    """An error is caught by the one above it in the tree."""
    assert issubclass(_all_errors()[child], _all_errors()[parent])


def test_the_drawn_tree_names_every_error():
    """The tree in the module's docstring is the tree there is."""
    drawn = set(re.findall(r"([A-Z]\w+Error)\b(?!\))", errors.__doc__))
    builtins = {base.__name__ for base in BUILTIN_BASES.values()}
    assert drawn - builtins == set(_all_errors())


def test_an_unknown_name_reads_as_a_sentence():
    """A KeyError shows its argument's repr; ours shows the message."""
    assert str(errors.NotRegisteredError("No 'x' here.")) == "No 'x' here."
    assert str(errors.NotRegisteredError()) == ""


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (
            errors.LoadError("m", path="a.txt", loader="TextLoader"),
            {"path": "a.txt", "loader": "TextLoader"},
        ),
        (errors.TransformError("m", group="block", uid="u1"), {"group": "block", "uid": "u1"}),
        (errors.EmbeddingError("m", embed_key="zh"), {"embed_key": "zh"}),
        (errors.StoreError("m", store="map", collection="c"), {"store": "map", "collection": "c"}),
        (
            errors.UnsupportedError("m", store="map", collection="c"),
            {"store": "map", "collection": "c"},
        ),
        (errors.StoreConnectionError("m", store="map"), {"store": "map", "collection": ""}),
    ],
)
def test_an_error_says_where_it_happened_also_behind_a_process_border(error, attributes):
    """Attributes and message are there, and survive pickling."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    for one in (error, copy):
        assert {name: getattr(one, name) for name in attributes} == attributes
        assert str(one) == "m"


@pytest.mark.parametrize(
    ("given", "known", "said"),
    [
        ("chromdb", ["map", "chromadb"], "Known: chromadb, map. Did you mean 'chromadb'?"),
        ("zzz", ["map", "chromadb"], "Known: chromadb, map."),
        ("anything", [], "Known: none."),
        ("MAP", ["map"], "Known: map. Did you mean 'map'?"),
        ("", ["map"], "Known: map."),
    ],
)
def test_the_end_of_a_message_lists_what_is_known(given, known, said):
    """Sorted names, and a question where one of them is near."""
    assert known_names(given, known) == said


@pytest.mark.parametrize(
    ("given", "known", "found"),
    [
        ("topK", ["topk", "target"], "topk"),
        ("decend", ["descend", "batch"], "descend"),
        ("publish_year", ["public_year", "author"], "public_year"),
        ("similarty", ["similarity", "similarity_kw", "similarity_cut_off"], "similarity"),
        ("qqq", ["topk", "target"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(given, known, found):
    """Case does not count, a slip of some letters is forgiven, anything else finds nothing."""
    assert nearest(given, known) == found


@pytest.mark.parametrize(
    ("is_checkout", "command"),
    [(True, 'pip install -e ".[onnx]"'), (False, 'pip install "lazyrag[onnx]"')],
)
def test_a_missing_package_is_installed_from_the_checkout_if_there_is_one(
    is_checkout, command, tmp_path
):
    """The command names the checkout's folder in a checkout, and the index's name elsewhere."""
    package = tmp_path / "lazyrag"
    package.mkdir()
    (package / "__init__.py").write_bytes(b"")
    (package / "errors.py").write_bytes((ROOT / "lazyrag" / "errors.py").read_bytes())
    if is_checkout:
        (tmp_path / "setup.cfg").write_bytes((ROOT / "setup.cfg").read_bytes())
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from lazyrag.errors import missing_package
print(missing_package("OnnxEmbedder", "onnxruntime", "onnx"))
"""
    done = python("-c", script, str(tmp_path))
    assert done.stderr == ""
    assert done.stdout.strip() == (
        "OnnxEmbedder needs the package 'onnxruntime', which is not installed. "
        f"Install it with: {command}"
    )
