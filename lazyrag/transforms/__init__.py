"""Transforms: the nodes of a parent group into the nodes of a group."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.transforms.base": "NodeTransform TransformArgs register_transform transforms",
        "lazyrag.transforms.dify_rules": "ParentMode PreProcessingRules Rule Segmentation",
        "lazyrag.transforms.splitters": (
            "CharacterSplitter RecursiveSplitter SemanticSplitter SentenceSplitter "
            "SectionSplitter SentenceWindow TokenSplitter"
        ),
        "lazyrag.transforms.structured": (
            "CodeSplitter HTMLSplitter JSONSplitter MarkdownSplitter XMLSplitter YAMLSplitter"
        ),
    },
)
