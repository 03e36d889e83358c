# The names of the package, for type checkers and editors.

from lazyrag.transforms.base import NodeTransform as NodeTransform
from lazyrag.transforms.base import TransformArgs as TransformArgs
from lazyrag.transforms.base import register_transform as register_transform
from lazyrag.transforms.base import transforms as transforms
from lazyrag.transforms.dify_rules import ParentMode as ParentMode
from lazyrag.transforms.dify_rules import PreProcessingRules as PreProcessingRules
from lazyrag.transforms.dify_rules import Rule as Rule
from lazyrag.transforms.dify_rules import Segmentation as Segmentation
from lazyrag.transforms.splitters import CharacterSplitter as CharacterSplitter
from lazyrag.transforms.splitters import RecursiveSplitter as RecursiveSplitter
from lazyrag.transforms.splitters import SectionSplitter as SectionSplitter
from lazyrag.transforms.splitters import SemanticSplitter as SemanticSplitter
from lazyrag.transforms.splitters import SentenceSplitter as SentenceSplitter
from lazyrag.transforms.splitters import SentenceWindow as SentenceWindow
from lazyrag.transforms.splitters import TokenSplitter as TokenSplitter
from lazyrag.transforms.structured import CodeSplitter as CodeSplitter
from lazyrag.transforms.structured import HTMLSplitter as HTMLSplitter
from lazyrag.transforms.structured import JSONSplitter as JSONSplitter
from lazyrag.transforms.structured import MarkdownSplitter as MarkdownSplitter
from lazyrag.transforms.structured import XMLSplitter as XMLSplitter
from lazyrag.transforms.structured import YAMLSplitter as YAMLSplitter
