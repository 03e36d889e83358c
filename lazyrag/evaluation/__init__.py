"""How good rankings are: measures against judgements, and whether a difference is more than chance."""

from lazyrag.evaluation.measures import Evaluation, Measure, evaluate, measure
from lazyrag.evaluation.metrics import average_precision, ndcg, precision, recall, reciprocal_rank, success
from lazyrag.evaluation.significance import (
    Comparison,
    Significance,
    bootstrap_interval,
    compare,
    holm,
    randomisation_test,
)

__all__ = [
    "Comparison",
    "Evaluation",
    "Measure",
    "Significance",
    "average_precision",
    "bootstrap_interval",
    "compare",
    "evaluate",
    "holm",
    "measure",
    "ndcg",
    "precision",
    "randomisation_test",
    "recall",
    "reciprocal_rank",
    "success",
]
