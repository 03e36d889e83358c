"""How good a system is: measures against judgements, whether a difference is more than chance, spec 002's interface."""

from lazyrag.evaluation.adapters import PipelineRAG, RetrieverRAG
from lazyrag.evaluation.answers import (
    answer_accuracy,
    answer_recall,
    compression_rate,
    compression_ratio,
    context_recall,
    exact_match,
    overlap_accuracy,
    token_f1,
)
from lazyrag.evaluation.finding import has_answer
from lazyrag.evaluation.golden import Golden, read_golden
from lazyrag.evaluation.interface import RAGInterface
from lazyrag.evaluation.judging import GoldenReport, JudgedQuestion, Verdict, judge
from lazyrag.evaluation.measures import Evaluation, Measure, evaluate, measure
from lazyrag.evaluation.metrics import average_precision, ndcg, precision, recall, reciprocal_rank, success
from lazyrag.evaluation.prepare import make_sample, prepare
from lazyrag.evaluation.report import MeasureReport
from lazyrag.evaluation.samples import Sample, to_ragas_dataset
from lazyrag.evaluation.significance import (
    Comparison,
    Significance,
    bootstrap_interval,
    compare,
    holm,
    randomisation_test,
)
from lazyrag.evaluation.spans import (
    SourceSpan,
    char_f1,
    char_iou,
    char_precision,
    char_recall,
    source_span,
    span_precision,
    span_recall,
    span_reciprocal_rank,
    span_success,
)

__all__ = [
    "Comparison",
    "Evaluation",
    "Golden",
    "GoldenReport",
    "JudgedQuestion",
    "Measure",
    "MeasureReport",
    "PipelineRAG",
    "RAGInterface",
    "RetrieverRAG",
    "Sample",
    "Significance",
    "SourceSpan",
    "Verdict",
    "answer_accuracy",
    "answer_recall",
    "average_precision",
    "bootstrap_interval",
    "char_f1",
    "char_iou",
    "char_precision",
    "char_recall",
    "compare",
    "compression_rate",
    "compression_ratio",
    "context_recall",
    "evaluate",
    "exact_match",
    "has_answer",
    "holm",
    "judge",
    "make_sample",
    "measure",
    "ndcg",
    "overlap_accuracy",
    "precision",
    "prepare",
    "randomisation_test",
    "read_golden",
    "recall",
    "reciprocal_rank",
    "source_span",
    "span_precision",
    "span_recall",
    "span_reciprocal_rank",
    "span_success",
    "success",
    "to_ragas_dataset",
    "token_f1",
]
