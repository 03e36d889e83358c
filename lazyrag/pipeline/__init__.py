"""`RAGPipeline`: from a question to a cited answer, in event loops and threads."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.pipeline.pipeline": "RAGPipeline",
        "lazyrag.pipeline.defaults": "PipelineSettings",
        "lazyrag.pipeline.external": "MilvusCollection OpenSearchIndex",
        "lazyrag.pipeline.settings": "Settings",
    },
)
