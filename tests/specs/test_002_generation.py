"""Spec 002, 扩展生成接口: every test quotes the sentence it checks and says what is expected of
`Generator`.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import GenerationResult, Generator, HttpChatModel, RAGContext, RetrievalResult
from lazyrag.models import CallableChatModel, ChatChoice, ChatCompletion
from lazyrag.models.protocols import TokenLogprob

pytestmark = pytest.mark.usefixtures("quick_endpoints")

CONTEXT = RAGContext(
    "水温多少？", "[资料1] 水温80度。\n\n问题：水温多少？", RetrievalResult(["水温80度。"]), 20
)


class Drawn(CallableChatModel):
    """A model that answers with given candidates."""

    def __init__(self, choices):
        super().__init__(str)
        self.choices = choices

    def chat(self, prompt, options=None):
        """Those candidates."""
        return ChatCompletion(tuple(self.choices))


def test_several_candidates():
    """「系统应当能够返回多个候选答案」: all of them, in the order in which they came."""
    answers = ["80度[1]", "90度", "80度"]
    given_one_by_one = iter(answers)
    assert (
        Generator(lambda _: next(given_one_by_one), n=3).generate(CONTEXT).multi_responses
        == answers
    )


def test_candidates_serve_evaluation():
    """「这些候选答案应当可以用于评测和分析」: a list of texts, as RAGAS takes it; None where one was asked for."""
    several = Generator(lambda _: "80度", n=2).generate(CONTEXT)
    assert several.to_dict()["multi_responses"] == ["80度", "80度"]
    assert GenerationResult.from_dict(several.to_dict()) == several
    assert Generator(lambda _: "80度").generate(CONTEXT).multi_responses is None


def test_a_confidence():
    """「系统应当能够返回答案的置信度」: by candidates that agree, by probabilities; None where neither is known."""
    assert Generator(lambda _: "80度[1]", n=3).generate(CONTEXT).confidence == 1.0
    sure = ChatChoice("80度", logprobs=(TokenLogprob("80度", math.log(0.25)),))
    assert Generator(Drawn([sure])).generate(CONTEXT).confidence == pytest.approx(0.25)
    assert Generator(lambda _: "80度").generate(CONTEXT).confidence is None


@given(
    st.lists(
        st.tuples(
            st.text(max_size=12),
            st.lists(st.floats(), max_size=4).map(
                lambda values: tuple(TokenLogprob("a", value) for value in values)
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["auto", "logprobs", "agreement"]),
)
def test_the_confidence_is_between_0_and_1(drawn, measure):
    """「置信度应当在0-1之间」: whatever the candidates say and whatever logarithms a model makes up."""
    model = Drawn([ChatChoice(text, logprobs=tokens) for text, tokens in drawn])
    result = Generator(model, n=len(drawn), confidence=measure).generate(CONTEXT)
    assert result.confidence is None or 0.0 <= result.confidence <= 1.0
    assert (result.confidence is None) == (result.metadata["confidence_by"] is None)
    assert any(text.strip() for text, _ in drawn) or result.confidence is None


def test_metadata_of_a_generation(model):
    """「系统应当能够返回额外的元数据」「元数据可以包含token数、耗时等信息」: tokens, seconds and more."""
    with HttpChatModel(model.url, "m") as chat:
        metadata = Generator(chat).generate(CONTEXT).metadata
    assert metadata["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert metadata["seconds"] > 0
    assert (metadata["model"], metadata["finish_reason"]) == ("echo-1", "stop")
