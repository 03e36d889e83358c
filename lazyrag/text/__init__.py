"""Tokens, sentences, analyzers and structure of texts."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.text.analyzers": "register_chinese_analyser",
        "lazyrag.text.tokens": "TiktokenCounter",
    },
)
