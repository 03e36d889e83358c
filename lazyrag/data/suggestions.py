"""Errors for the names that hits have in other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyrag.errors import nearest

_OTHER_NAMES = {
    "text": "page_content content body chunk",
    "source": "path file filename file_name file_path filepath",
    "path": "source file filename file_name file_path filepath",
    "uid": "id id_ node_id uuid",
    "id": "uid id_ node_id uuid",
    "document_id": "doc_id ref_doc_id",
    "score": "similarity similarity_score distance relevance relevance_score",
    "to_dict": "dict json model_dump",
    "metadata": "meta payload extra_info",
    "location": "page page_number page_label lines",
}
"""By attributes of our hits: a node has ``path``, whose ``source`` is another node; a `Hit` has
``source``."""
_OF_LISTS = ("to_dict", "to_json", *_OTHER_NAMES["to_dict"].split())
"""What a node leaves to the list of hits, which reads all of them at once."""


def suggest_name(kind: type, name: str) -> str | None:
    """The attribute of a kind of hit that another name most likely means."""
    for attribute, others in reversed(_OTHER_NAMES.items()):
        if name in others.split() and hasattr(kind, attribute):
            return attribute
    return nearest(name, [public for public in dir(kind) if public[0] != "_"])


class SuggestsNames:
    """Base class whose AttributeError suggests the name that an attribute has in this package."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker would accept any name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_") or hasattr(kind, name):
                return object.__getattribute__(self, name)  # raises its own error
            suggestion = suggest_name(kind, name)
            hint = f"Use hit.{suggestion}." if suggestion else "See dir(hit)."
            if name in _OF_LISTS and not hasattr(kind, "to_dict"):
                hint = "Use hits.to_dicts(), of the list of hits."
            message = f"{kind.__name__} has no attribute {name!r}. {hint}"
            raise AttributeError(message, name=name, obj=self)
