# The names of the package, for type checkers and editors.

from lazyrag.pipeline.defaults import PipelineSettings as PipelineSettings
from lazyrag.pipeline.external import MilvusCollection as MilvusCollection
from lazyrag.pipeline.external import OpenSearchIndex as OpenSearchIndex
from lazyrag.pipeline.pipeline import RAGPipeline as RAGPipeline
from lazyrag.pipeline.settings import Settings as Settings
