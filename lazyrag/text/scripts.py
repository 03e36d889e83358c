"""Which characters are Chinese, Japanese or Korean letters, and which language to speak to who wrote them."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["auto", "en", "zh"]
Spoken: TypeAlias = Literal["en", "zh"]

CJK_LETTERS = (
    "\u1100-\u11ff"  # Hangul jamo
    "\u2e80-\u2fdf"  # radicals
    "\u3005\u3007\u3021-\u3029\u3038-\u303b"  # iteration mark, zero, numerals
    "\u3041-\u3096\u309d-\u309f"  # hiragana
    "\u30a1-\u30fa\u30fc-\u30ff"  # katakana
    "\u3105-\u312f\u31a0-\u31bf"  # bopomofo
    "\u3131-\u318e"  # Hangul compatibility jamo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\U00020000-\U0003ffff"  # Han, supplementary planes
)
"""The inside of a regular expression's character class."""

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3041-\u30fa\uac00-\ud7ff]")


def spoken(language: Language, text: str) -> Spoken:
    """``"zh"`` or ``"en"``: the one that is given, else Chinese where a text has Chinese in it.

    Example:
        >>> spoken("auto", "绿茶怎么泡？"), spoken("auto", "お茶の入れ方"), spoken("zh", "tea?")
        ('zh', 'en', 'zh')
    """
    if language != "auto":
        return language
    return "zh" if _HAN.search(text) and not _KANA_OR_HANGUL.search(text) else "en"
