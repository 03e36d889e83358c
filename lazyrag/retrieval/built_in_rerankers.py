"""The built-in reranker that asks no model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, known_names
from lazyrag.retrieval.reranker import RerankFunction
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.validation import text_list

_LANGUAGES = ("en", "zh")
_CJK = re.compile(f"[{CJK_LETTERS}]")


def keyword_filter(
    node: DocNode, required_keys: Sequence[str] = (), exclude_keys: Sequence[str] = (), language: str = "en"
) -> DocNode | None:
    """Keep a node that holds every required keyword and no excluded one (spec 001's ``KeywordFilter``).

    Case does not matter. A key with Chinese, Japanese or Korean letters is looked for as a substring, another one as a
    whole word or phrase; white space in a phrase matches any white space.

    Args:
        node: A node.
        required_keys: All of them must be there.
        exclude_keys: None of them may be there.
        language: ``"en"`` or ``"zh"``; the keys' own script decides, so both give the same.

    Returns:
        The node, or None to drop it.

    Raises:
        ConfigError: If keys are one text instead of a list, one is blank, or the language is unknown.
    """
    _check_keyword_filter(required_keys, exclude_keys, language)
    text = _folded(node.get_text())
    kept = all(_pattern(key).search(text) for key in required_keys)
    return node if kept and not any(_pattern(key).search(text) for key in exclude_keys) else None


def _check_keyword_filter(required_keys: Any = (), exclude_keys: Any = (), language: Any = "en") -> None:
    if language not in _LANGUAGES:
        msg = f"KeywordFilter got language={language!r}. {known_names(str(language), _LANGUAGES)}"
        raise ConfigError(msg)
    for name, keys in (("required_keys", required_keys), ("exclude_keys", exclude_keys)):
        text_list(f"KeywordFilter's {name}", keys)


@lru_cache(maxsize=4096)
def _pattern(key: str) -> re.Pattern[str]:
    folded = _folded(key.strip())
    if _CJK.search(folded):
        return re.compile(re.escape(folded))
    words = r"\s+".join(map(re.escape, folded.split()))
    # A word may stand right beside Chinese, which has no spaces.
    letter = rf"[^\W{CJK_LETTERS}]"
    return re.compile(rf"(?<!{letter}){words}(?!{letter})")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


KEYWORD_FILTER = RerankFunction(
    "KeywordFilter", keyword_filter, batch=False, check=_check_keyword_filter, rescores=False
)
