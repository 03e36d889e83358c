"""What a node may hold: text, or another JSON value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lazyrag.data.segment import Content, copy_value
from lazyrag.errors import ConfigError


def check_content(value: Any) -> Content:
    """A node's content, checked: text or another JSON value; numpy scalars become Python's.

    Raises:
        ConfigError: If it is something else.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a subclass, such as numpy's, becomes plain text
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as exc:
        msg = f"A node's content is text or a JSON value, not {value!r} ({type(value).__name__})."
        raise ConfigError(msg) from exc
    checked: Content = copy_value(value)
    return checked


def content_text(content: Content) -> str:
    """Content as text: text as it is, numbers as Python writes them, mappings and lists as JSON.

    Example:
        >>> content_text("a"), content_text(0), content_text({"名": 1})
        ('a', '0', '{"名": 1}')
    """
    if isinstance(content, str):
        return content
    if isinstance(content, (Mapping, list)):
        return json.dumps(content, ensure_ascii=False)
    return str(content)
