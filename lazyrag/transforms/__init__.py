"""Transforms: the nodes of a parent group into the nodes of a group."""

from lazyrag.transforms.adaptive import TransformArgs
from lazyrag.transforms.base import NodeTransform, register_transform, transforms
from lazyrag.transforms.code import CodeSplitter
from lazyrag.transforms.html import HTMLSplitter
from lazyrag.transforms.json import JSONSplitter
from lazyrag.transforms.markdown import MarkdownSplitter
from lazyrag.transforms.pre_processing import PreProcessingRules
from lazyrag.transforms.rules import ParentMode, Rule, Segmentation
from lazyrag.transforms.semantic import SemanticSplitter
from lazyrag.transforms.separators import CharacterSplitter, RecursiveSplitter, TokenSplitter
from lazyrag.transforms.splitters import SentenceSplitter
from lazyrag.transforms.windows import SentenceWindow

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
