"""Transforms: the nodes of a parent group into the nodes of a group."""

from lazyrag.transforms.base import NodeTransform, register_transform, transforms
from lazyrag.transforms.markdown import MarkdownSplitter
from lazyrag.transforms.pre_processing import PreProcessingRules
from lazyrag.transforms.rules import ParentMode, Rule, Segmentation
from lazyrag.transforms.separators import CharacterSplitter, RecursiveSplitter, TokenSplitter
from lazyrag.transforms.splitters import SentenceSplitter
from lazyrag.transforms.windows import SentenceWindow

__all__ = [
    "CharacterSplitter",
    "MarkdownSplitter",
    "NodeTransform",
    "ParentMode",
    "PreProcessingRules",
    "RecursiveSplitter",
    "Rule",
    "Segmentation",
    "SentenceSplitter",
    "SentenceWindow",
    "TokenSplitter",
    "register_transform",
    "transforms",
]
