"""Evaluation: measures against judgements, significance, golden questions, the interface of spec
002.
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.evaluation.answers": (
            "answer_accuracy answer_recall compression_rate "
            "context_recall exact_match overlap_accuracy token_f1"
        ),
        "lazyrag.evaluation.golden": (
            "Golden GoldenReport JudgedQuestion MeasureReport Verdict has_answer judge read_golden"
        ),
        "lazyrag.evaluation.interface": (
            "PipelineRAG RAGInterface RetrieverRAG Sample make_sample prepare to_ragas_dataset"
        ),
        "lazyrag.evaluation.models": "ModelChange change_model",
        "lazyrag.evaluation.questions": "write_questions",
        "lazyrag.evaluation.metrics": (
            "Comparison Evaluation Measure Significance SourceSpan average_precision"
            " bootstrap_interval char_f1 char_iou char_precision char_recall compare evaluate holm"
            " measure ndcg precision randomisation_test recall reciprocal_rank source_span"
            " span_precision span_recall span_reciprocal_rank span_success success"
        ),
    },
)
