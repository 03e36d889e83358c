"""`HttpEntailmentModel`: verdicts of an entailment model behind text-embeddings-inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lazyrag import CitationManager, Hit
from lazyrag.errors import GenerationError
from lazyrag.models import HttpEntailmentModel

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

SOURCE = "The vessel sank in a storm."
STATEMENT = "Bad weather destroyed their ship."


def answer_with(server: HTTPServer, answer: object, status: int = 200) -> HttpEntailmentModel:
    """A model whose server answers so."""
    body = {"inputs": [[SOURCE, STATEMENT]], "truncate": True}
    server.expect_request("/predict", method="POST", json=body).respond_with_json(
        answer, status=status
    )
    return HttpEntailmentModel(server.url_for(""), "nli", retries=0)


@pytest.mark.parametrize(
    ("best", "verdict"),
    [
        ("ENTAILMENT", "supported"),
        ("entailment", "supported"),
        ("contradiction", "contradicted"),
        ("neutral", "not_found"),
        ("LABEL_0", "not_found"),
    ],
)
def test_the_best_label_is_the_verdict(httpserver: HTTPServer, best: str, verdict: str) -> None:
    """However it is written; the statement's verdict is the judge's."""
    labels = [{"label": "other", "score": 0.1}, {"label": best, "score": 0.8}]
    with answer_with(httpserver, [labels]) as judge:
        assert judge(STATEMENT, SOURCE) == verdict
        answer = CitationManager(judge).resolve(f"{STATEMENT} [1]", [Hit("n", SOURCE, 1.0)])
    assert answer.statements[0].verdict == verdict


@pytest.mark.parametrize("answer", [{}, [], [[]], [["entailment"]], [[{"label": "a"}]], None])
def test_what_is_no_answer(httpserver: HTTPServer, answer: object) -> None:
    """An error says what the answer must be."""
    with (
        answer_with(httpserver, answer) as judge,
        pytest.raises(GenerationError, match=r"entailment model 'nli'.* the answer must be"),
    ):
        judge(STATEMENT, SOURCE)


def test_a_server_that_fails_leaves_the_statement_not_found(httpserver: HTTPServer) -> None:
    """And is a problem of the answer."""
    with answer_with(httpserver, {"error": "busy"}, status=400) as judge:
        resolved = CitationManager(judge).resolve(f"{STATEMENT} [1]", [Hit("n", SOURCE, 1.0)])
    assert resolved.statements[0].verdict == "not_found"
    assert "The entailment model 'nli'" in resolved.problems[0]
