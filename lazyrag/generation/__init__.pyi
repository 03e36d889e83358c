# The names of the package, for type checkers and editors.

from lazyrag.data.result import AnswerDelta as AnswerDelta
from lazyrag.data.result import Finding as Finding
from lazyrag.data.result import GenerationDelta as GenerationDelta
from lazyrag.data.result import Statement as Statement
from lazyrag.generation.citations import CitationManager as CitationManager
from lazyrag.generation.citations import CitationStream as CitationStream
from lazyrag.generation.citations import QuoteCheck as QuoteCheck
from lazyrag.generation.citations import ResolvedCitations as ResolvedCitations
from lazyrag.generation.context import ContextBuilder as ContextBuilder
from lazyrag.generation.generator import Generator as Generator
from lazyrag.generation.judge import chat_judge as chat_judge
from lazyrag.generation.prompts import ContextTemplate as ContextTemplate
from lazyrag.generation.prompts import Prompts as Prompts
from lazyrag.generation.refiners import Refined as Refined
from lazyrag.generation.refiners import Refiner as Refiner
from lazyrag.generation.refiners import TreeRefiner as TreeRefiner
from lazyrag.generation.refiners import register_refiner as register_refiner
