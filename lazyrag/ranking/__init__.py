"""Pure functions over rankings: fusion, normalization, diversity."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.ranking.fusion": (
            "KeywordSetting ReciprocalRankFusion VectorSetting Weights register_fusion"
        ),
    },
)
