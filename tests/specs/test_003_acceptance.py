"""Spec 003, 验收标准 and 性能测试: each test quotes the line it checks and says what is expected.

What is measured, how much better and how fast, is measured by benchmarks/quality.py and
benchmarks/answer.py, which CI runs; docs/quality.md and docs/performance.md have the figures. Here
the same systems answer the same questions.
"""

from __future__ import annotations

import re
from statistics import fmean

import pytest

from lazyrag import LAZY_ROOT_NAME, Document, OnnxEmbedder, RAGPipeline, Retriever
from lazyrag.evaluation import evaluate
from tests.interpreter import ROOT
from tests.judged import judged_set, write
from tests.shared import shared

pytestmark = [pytest.mark.slow, pytest.mark.shared]

NEAR = 0.005
"""The model is int8: another processor may answer two of 408 questions otherwise."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """XQuAD in English: a Document of its paragraphs, and its questions with their answers."""
    one = judged_set("xquad-en")
    folder = tmp_path_factory.mktemp("xquad")
    write(one.texts, folder)
    with Document(folder, embed=OnnxEmbedder(shared("models", "all-minilm-l6-v2"))) as docs:
        yield docs, one.questions


@pytest.fixture(scope="module")
def measured(judged):
    """By system and measure, what a pipeline recalls of the even and of the odd questions."""
    docs, questions = judged
    judgements = {at: dict(grades) for at, (_, grades) in enumerate(questions)}
    found = {}
    for system, pipeline in {
        "vector": RAGPipeline(retriever=Retriever(docs, LAZY_ROOT_NAME, "cosine")),
        "hybrid": RAGPipeline.over(docs, LAZY_ROOT_NAME),
    }.items():
        results = pipeline.sync.batch_retrieve([one for one, _ in questions], top_k=5)
        run = {at: [(hit.source, hit.score) for hit in result] for at, result in enumerate(results)}
        for measure, values in evaluate(run, judgements, ["recall@1", "recall@5"]).values.items():
            found[system, measure] = [
                fmean(values[at] for at in judgements if at % 2 == half) for half in (0, 1)
            ]
    return found


@pytest.fixture(scope="module")
def page():
    """By set, measure and system, what docs/quality.md states of the even and of the odd
    questions.
    """
    text = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    table = text.partition("<!-- halves -->")[2].partition("<!-- end -->")[0]
    stated = {}
    for line in re.findall(
        r"^\| (\S+, recall@\d), (?:even|odd) \| \d+ \| (.*) \|$", table, re.MULTILINE
    ):
        name, *figures = line[0], *(float(cell.split()[0]) for cell in line[1].split(" | "))
        for system, figure in zip(("vector", "hybrid", "chain"), figures, strict=True):
            stated.setdefault((*name.split(", "), system), []).append(figure)
    assert len(stated) == 12
    return stated


def gains(stated, name, measure, system):
    """How much more than vector search, for each half."""
    return [
        one / base - 1
        for one, base in zip(
            stated[name, measure, system], stated[name, measure, "vector"], strict=True
        )
    ]


def test_the_page_states_what_is_measured(measured, page):
    """「检索准确率」「召回率」: for each half of XQuAD what vector search and the default recall."""
    for (system, measure), halves in measured.items():
        assert halves == pytest.approx(page["xquad-en", measure, system], abs=NEAR), (
            system,
            measure,
        )


def test_the_text_of_the_page_is_its_table():
    """「检索准确率：+20%（使用Reranker）」「召回率：+15%（使用混合检索）」: each gain of the claims is in the table."""
    text = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    table, _, rest = text.partition("<!-- halves -->")[2].partition("<!-- end -->")
    claims = rest.partition("<!-- quality -->")[0]
    stated = re.findall(r"[+-]\d+\.\d%", claims)
    assert len(stated) == 14
    assert {*stated} <= {*re.findall(r"[+-]\d+\.\d%", table)}
    assert "on one half of Cranfield, not on the other" in claims
    assert "on no half" in claims


def test_accuracy_of_reranking(measured, page):
    """「检索准确率提升20%+（对比纯向量检索）」「Reranker正确提升检索准确率」: not reached, as the page states.

    On XQuAD no system could: vector search is right at once for nearly nine of ten. In each half
    the default mends more than two fifths of what vector search gets wrong, and the chain, which
    reranks, half of it. On Cranfield the chain gains less than 5 %.
    """
    for half, vector in enumerate(measured["vector", "recall@1"]):
        assert 1 / vector - 1 < 0.2
        assert 1 - measured["hybrid", "recall@1"][half] < (1 - vector) * 3 / 5
        assert 1 - page["xquad-en", "recall@1", "chain"][half] < (1 - vector) / 2
    assert all(0 < gain < 0.05 for gain in gains(page, "cranfield", "recall@1", "chain"))


def test_recall_of_hybrid_search(measured, page):
    """「召回率：+15%（使用混合检索）」: on one half of Cranfield and not on the other, as the page states.

    With feedback and reranking likewise. On XQuAD, where vector search misses one of eighty, the
    default misses fewer in each half.
    """
    for system in ("hybrid", "chain"):
        even, odd = gains(page, "cranfield", "recall@5", system)
        assert odd < 0.15 < even
    for half, vector in enumerate(measured["vector", "recall@5"]):
        assert 1 - measured["hybrid", "recall@5"][half] < (1 - vector) * 2 / 3


def test_the_whole_way(judged):
    """「RAGPipeline支持完整的检索流程」「上下文构建符合token限制」「引用标注格式正确」, on real questions."""
    docs, questions = judged
    pipeline = RAGPipeline.over(docs, LAZY_ROOT_NAME, generator=lambda prompt: "So it is [1].")
    answers = pipeline.sync.batch_answer(
        [question for question, _ in questions[:20]], max_tokens=600
    )
    assert all(answer.context.total_tokens <= 600 for answer in answers)
    assert all(answer.citations[0].uid == answer.context.sources[0].id for answer in answers)
    right = [
        answer.citations[0].source in grades
        for answer, (_, grades) in zip(answers, questions, strict=False)
    ]
    assert sum(right) >= 17


@pytest.mark.parametrize(
    "quoted",
    ["检索延迟（P50, P95, P99）", "重排序延迟", "端到端RAG延迟", "内存占用", "P95延迟<500ms"],
)
def test_what_is_to_be_measured_is_on_the_page(quoted):
    """「性能测试：检索延迟（P50, P95, P99）、重排序延迟、端到端RAG延迟、内存占用」「P95延迟<500ms」

    The table of benchmarks/answer.py has a line for each, and none of its figures is above 50 ms at
    the 95th percentile for what asks once; CI fails where one is far above.
    """
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page.partition("<!-- answer -->")[2].partition("<!-- end -->")[0]
    assert "100,000 nodes" in table
    lines = dict(
        re.findall(r"^\| ([a-z_][^|]*?) \| [\d.]+ \| ([\d.]+) \| [\d.]+ \|$", table, re.MULTILINE)
    )
    assert {
        "retrieve",
        "retrieve_and_rerank, 50 by BM25",
        "retrieve_with_context",
        "answer",
    } <= lines.keys()
    assert max(map(float, lines.values())) < 50
    assert re.search(r"takes \d+ MB", table)


def test_the_default_answers_in_time(judged):
    """「P95延迟<500ms」: by the default of `RAGPipeline.over` with a real model, as the page's table
    states.

    The table's line of the default is below 500 ms, and so is each of fifty questions here but for
    one or two.
    """
    docs, questions = judged
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page.partition("<!-- defaults -->")[2].partition("<!-- end -->")[0]
    [stated] = re.findall(r"^\| `default` \| [\d.]+ \| ([\d.]+) \|", table, re.MULTILINE)
    assert float(stated) < 500
    pipeline = RAGPipeline.over(docs, LAZY_ROOT_NAME, generator=lambda prompt: "So it is [1].")
    pipeline.sync.answer("warm up")
    seconds = [
        sum(pipeline.sync.answer(one).metadata["seconds"].values()) for one, _ in questions[:50]
    ]
    assert sorted(seconds)[47] < 0.5
