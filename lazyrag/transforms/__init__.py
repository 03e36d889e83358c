"""Transforms: the nodes of a parent group into the nodes of a group."""

from lazyrag.transforms.base import NodeTransform, TransformArgs, register_transform, transforms
from lazyrag.transforms.dify_rules import ParentMode, PreProcessingRules, Rule, Segmentation
from lazyrag.transforms.splitters import (
    CharacterSplitter,
    RecursiveSplitter,
    SemanticSplitter,
    SentenceSplitter,
    SentenceWindow,
    TokenSplitter,
)
from lazyrag.transforms.structured import CodeSplitter, HTMLSplitter, JSONSplitter, MarkdownSplitter

__all__ = [
    "CharacterSplitter",
    "CodeSplitter",
    "HTMLSplitter",
    "JSONSplitter",
    "MarkdownSplitter",
    "NodeTransform",
    "ParentMode",
    "PreProcessingRules",
    "RecursiveSplitter",
    "Rule",
    "Segmentation",
    "SemanticSplitter",
    "SentenceSplitter",
    "SentenceWindow",
    "TokenSplitter",
    "TransformArgs",
    "register_transform",
    "transforms",
]
