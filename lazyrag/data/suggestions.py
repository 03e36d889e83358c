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
    "score": "similarity distance relevance",
    "metadata": "meta payload extra_info",
    "location": "page page_number page_label lines",
}
"""By attributes of our hits: a node has ``path``, whose ``source`` is another node; a `Hit` has
``source``."""


class SuggestsNames:
    """Base class whose AttributeError suggests the name that an attribute has in this package."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker would accept any name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_") or hasattr(kind, name):
                return object.__getattribute__(self, name)  # raises its own error
            suggestion = nearest(name, [public for public in dir(kind) if public[0] != "_"])
            for attribute, others in _OTHER_NAMES.items():
                if name in others.split() and hasattr(kind, attribute):
                    suggestion = attribute
            hint = f"Use hit.{suggestion}." if suggestion else "See dir(hit)."
            message = f"{kind.__name__} has no attribute {name!r}. {hint}"
            raise AttributeError(message, name=name, obj=self)
