"""From hits to a cited answer: context, chat model, citations, refiners."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.data.result": "AnswerDelta Finding GenerationDelta Statement",
        "lazyrag.generation.citations": (
            "CitationManager CitationStream QuoteCheck ResolvedCitations"
        ),
        "lazyrag.generation.context": "ContextBuilder",
        "lazyrag.generation.generator": "Generator",
        "lazyrag.generation.judge": "chat_judge",
        "lazyrag.generation.prompts": "ContextTemplate Prompts",
        "lazyrag.generation.refiners": "Refined Refiner TreeRefiner register_refiner",
    },
)
