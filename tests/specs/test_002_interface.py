"""Spec 002, the interface: every test quotes the sentence it checks and says what is expected."""

from __future__ import annotations

import ast
import inspect
import json
import re
import tracemalloc
import typing

import pytest

from lazyrag import Document, GenerationResult, RAGInterface, RetrievalResult, Retriever
from lazyrag.errors import ConfigError
from lazyrag.evaluation import RetrieverRAG, evaluate, prepare
from tests.interpreter import ROOT

CONTEXTS = ["Steep green tea at 80 degrees.", "Keep it dry."]
METHODS = ("retrieve", "retrieve_with_metadata", "generate", "generate_with_metadata")
BATCHES = (
    "batch_retrieve",
    "batch_retrieve_with_metadata",
    "batch_generate",
    "batch_generate_with_metadata",
)


class Old(RAGInterface):
    """A system of before: texts in, texts out."""

    def retrieve(self, query):
        """Always the same list."""
        return CONTEXTS

    def generate(self, query, contexts):
        """The first context."""
        return contexts[0]


class New(RAGInterface):
    """A system that says all it knows."""

    def retrieve_with_metadata(self, query):
        """Texts, ids, scores, sources and a time."""
        metadata = {"sources": ["tea.txt", "tea.txt"], "timestamp": "2024-05-01T12:00:00"}
        return RetrievalResult(CONTEXTS, ["n1", "n2"], [0.9, 0.4], metadata)

    def generate_with_metadata(self, query, contexts):
        """Two candidates, a confidence, tokens and seconds."""
        return GenerationResult(
            contexts[0], [contexts[0], "80"], 0.75, {"tokens": 12, "seconds": 0.3}
        )


class OnlyRetrieval(RAGInterface):
    """New retrieval, old generation."""

    retrieve_with_metadata = New.retrieve_with_metadata
    generate = Old.generate


class OnlyGeneration(RAGInterface):
    """Old retrieval, new generation."""

    retrieve = Old.retrieve
    generate_with_metadata = New.generate_with_metadata


@pytest.fixture
def rag():
    """A retriever and a model of ours as a system."""
    docs = Document()
    docs.add_texts({"tea.txt": CONTEXTS[0], "dry.txt": CONTEXTS[1]})
    return RetrieverRAG(Retriever(docs, "FineChunk", "bm25"), lambda text: "80 degrees")


def test_each_context_has_its_own_id(rag):
    """「系统应当能够返回每个上下文的唯一ID」: as many ids as contexts, no two alike, the same ones the next time."""
    found = rag.retrieve_with_metadata("green tea, keep it")
    assert len(found.contexts) == 2
    assert len(set(found.context_ids)) == 2
    assert rag.retrieve_with_metadata("green tea, keep it").context_ids == found.context_ids


def test_ids_serve_evaluation_by_ragas(rag):
    """「这些ID应当可以用于RAGAS评测」: texts, as RAGAS's samples take them; tests/with_ragas reads them."""
    found = rag.retrieve_with_metadata("green tea, keep it")
    assert all(isinstance(uid, str) for uid in found.context_ids)
    [sample] = prepare([{"user_input": "green tea, keep it"}], rag)
    assert sample.retrieved_context_ids == found.context_ids


def test_each_context_has_its_score(rag):
    """「系统应当能够返回每个上下文的相似度分数」: as many scores as contexts, the best first."""
    found = rag.retrieve_with_metadata("green tea, keep it")
    assert len(found.scores) == len(found.contexts) == 2
    assert found.scores[0] >= found.scores[1] > 0


def test_scores_serve_analysis_and_debugging(rag):
    """「分数应当可以用于分析和调试」: they are plain numbers beside their texts, and make a run for evaluate."""
    found = rag.retrieve_with_metadata("green tea, keep it")
    assert json.loads(json.dumps(found.scores)) == found.scores
    assert [(hit.text, hit.score) for hit in found] == list(
        zip(found.contexts, found.scores, strict=True)
    )
    run = {"q": list(zip(found.context_ids, found.scores, strict=True))}
    assert evaluate(run, {"q": {found.context_ids[0]: 1}}, ["MRR"]).means == {"MRR": 1.0}


def test_retrieval_has_metadata():
    """「系统应当能够返回额外的元数据」: what the system gives is what the caller gets."""
    assert {*New().retrieve_with_metadata("q").metadata} == {"sources", "timestamp"}


def test_metadata_hold_sources_and_timestamps(rag):
    """「元数据可以包含来源、时间戳等信息」: sources for each context; ours say the seconds it took."""
    told = New().retrieve_with_metadata("q").metadata
    assert (told["sources"][0], told["timestamp"][:4]) == ("tea.txt", "2024")
    ours = rag.retrieve_with_metadata("green tea").metadata
    assert ours["sources"] == ["tea.txt"]
    assert ours["retrieval_time"] >= 0


def test_several_candidates_are_given():
    """「系统应当能够返回多个候选答案」: all of them, in order."""
    assert New().generate_with_metadata("q", ["a"]).multi_responses == ["a", "80"]


def test_candidates_serve_evaluation_and_analysis():
    """「这些候选答案应当可以用于评测和分析」: plain texts in a list, beside the answer that was chosen."""
    answer = New().generate_with_metadata("q", ["a"])
    assert answer.response in answer.multi_responses
    assert sum("80" in one for one in answer.multi_responses) == 1


def test_an_answer_has_its_confidence():
    """「系统应当能够返回答案的置信度」: the number that the system gives."""
    assert New().generate_with_metadata("q", ["a"]).confidence == 0.75


@pytest.mark.parametrize("confidence", [0, 0.0, 0.5, 1, 1.0, None])
def test_a_confidence_is_between_0_and_1(confidence):
    """「置信度应当在0-1之间」: both ends are allowed, and None where it is not known."""
    assert GenerationResult("a", confidence=confidence).confidence == confidence


@pytest.mark.parametrize("confidence", [-0.01, 1.01, 80, float("nan"), float("inf"), "0.5", True])
def test_another_confidence_is_refused(confidence):
    """「置信度应当在0-1之间」: whatever else is given is an error that says so."""
    with pytest.raises(ConfigError, match="number from 0 to 1"):
        GenerationResult("a", confidence=confidence)


def test_generation_has_metadata():
    """「系统应当能够返回额外的元数据」: what the system gives is what the caller gets."""
    assert {*New().generate_with_metadata("q", ["a"]).metadata} == {"tokens", "seconds"}


def test_metadata_hold_tokens_and_seconds(rag):
    """「元数据可以包含token数、耗时等信息」: numbers under names of the system's own; ours have both, too."""
    told = New().generate_with_metadata("q", ["a"]).metadata
    assert (told["tokens"], told["seconds"]) == (12, 0.3)
    assert {"prompt_tokens", "completion_tokens", "generation_time"} <= {
        *rag.generate_with_metadata("q", []).metadata
    }


def test_old_code_works_unchanged():
    """「旧代码应当无需修改继续工作」: a class with the two old methods is made and answers as before."""
    assert Old().retrieve("q") is CONTEXTS
    assert Old().generate("q", CONTEXTS) == CONTEXTS[0]


@pytest.mark.parametrize("method", BATCHES)
def test_all_functions_of_old_code_are_there(method):
    """「所有功能应当保持正常」: the batches answer on top of the old methods, question by question."""
    arguments = (["q", "r"],) if "retrieve" in method else (["q", "r"], [CONTEXTS, ["x"]])
    given = getattr(Old(), method)(*arguments)
    plain = [getattr(one, "contexts", getattr(one, "response", one)) for one in given]
    assert plain == ([CONTEXTS] * 2 if "retrieve" in method else [CONTEXTS[0], "x"])


def test_the_old_method_asks_the_new_one():
    """「系统应当自动调用新接口并提取contexts」: retrieve gives the contexts of retrieve_with_metadata, asked
    once.
    """
    asked = []

    class Counting(OnlyRetrieval):
        def retrieve_with_metadata(self, query):
            asked.append(query)
            return super().retrieve_with_metadata(query)

    assert Counting().retrieve("q") is CONTEXTS
    assert asked == ["q"]


def test_the_old_method_is_as_if_written():
    """「行为应当与直接实现旧接口一致」: the same value of the same type as that of a class with the old method."""
    assert OnlyRetrieval().retrieve("q") == Old().retrieve("q")
    assert type(OnlyRetrieval().retrieve("q")) is list
    assert OnlyRetrieval().batch_retrieve(["q"]) == Old().batch_retrieve(["q"])


def test_the_new_method_asks_the_old_one():
    """「系统应当自动调用旧接口并包装结果」: retrieve_with_metadata wraps what retrieve gives, asked once."""
    asked = []

    class Counting(Old):
        def retrieve(self, query):
            asked.append(query)
            return CONTEXTS

    found = Counting().retrieve_with_metadata("q")
    assert isinstance(found, RetrievalResult)
    assert asked == ["q"]


def test_what_is_wrapped_has_its_contexts():
    """「返回的RetrievalResult应当包含contexts字段」: the very list, and None for what nobody knows."""
    found = Old().retrieve_with_metadata("q")
    assert found.contexts is CONTEXTS
    assert (found.context_ids, found.scores, found.metadata) == (None, None, None)


def test_who_moves_retrieval_keeps_generation():
    """「用户应当可以继续使用旧的`generate()`方法」: new retrieval beside the old method, which is called as it
    is.
    """
    assert OnlyRetrieval().retrieve_with_metadata("q").context_ids == ["n1", "n2"]
    assert OnlyRetrieval().generate("q", CONTEXTS) == CONTEXTS[0]


def test_a_system_with_new_retrieval_works():
    """「系统应当正常工作」: all eight methods answer; what the old generation does not say is None."""
    answer = OnlyRetrieval().generate_with_metadata("q", CONTEXTS)
    assert (answer.response, answer.multi_responses, answer.confidence) == (CONTEXTS[0], None, None)
    assert OnlyRetrieval().batch_generate(["q"], [CONTEXTS]) == [CONTEXTS[0]]
    assert OnlyRetrieval().batch_retrieve_with_metadata(["q"])[0].scores == [0.9, 0.4]


def test_who_moves_generation_keeps_retrieval():
    """「用户应当可以继续使用旧的`retrieve()`方法」: new generation beside the old method, which is called as it
    is.
    """
    assert OnlyGeneration().generate_with_metadata("q", CONTEXTS).multi_responses == [
        CONTEXTS[0],
        "80",
    ]
    assert OnlyGeneration().retrieve("q") is CONTEXTS


def test_a_system_with_new_generation_works():
    """「系统应当正常工作」: all eight methods answer; what the old retrieval does not say is None."""
    assert OnlyGeneration().retrieve_with_metadata("q").context_ids is None
    assert OnlyGeneration().generate("q", CONTEXTS) == CONTEXTS[0]
    assert OnlyGeneration().batch_retrieve(["q"]) == [CONTEXTS]
    assert OnlyGeneration().batch_generate_with_metadata(["q"], [CONTEXTS])[0].confidence == 0.75


def test_who_moves_all_is_asked_by_the_new_methods():
    """「系统应当使用新接口」: the old methods, too, give what the new ones say."""
    assert New().retrieve("q") is CONTEXTS
    assert New().generate("q", ["a"]) == "a"


def test_all_metadata_go_through():
    """「所有额外元数据应当正确传递」: each field of both results, one by one and in batches."""
    found, answer = New().retrieve_with_metadata("q"), New().generate_with_metadata("q", ["a"])
    assert None not in found.to_dict().values()
    assert None not in answer.to_dict().values()
    assert New().batch_retrieve_with_metadata(["q"]) == [found]
    assert New().batch_generate_with_metadata(["q"], [["a"]]) == [answer]


def test_a_batch_of_retrieval_gives_results():
    """「系统应当返回RetrievalResult列表」: one for each question, in order."""
    found = New().batch_retrieve_with_metadata(["q", "r", "s"])
    assert isinstance(found, list)
    assert [type(one) for one in found] == [RetrievalResult] * 3


def test_each_result_of_a_batch_of_retrieval_has_its_metadata():
    """「每个结果应当包含对应的元数据」: that of its own question."""

    class Echo(OnlyRetrieval):
        def retrieve_with_metadata(self, query):
            return RetrievalResult([query], metadata={"query": query})

    assert [one.metadata["query"] for one in Echo().batch_retrieve_with_metadata(["q", "r"])] == [
        "q",
        "r",
    ]


def test_a_batch_of_generation_gives_results():
    """「系统应当返回GenerationResult列表」: one for each question, in order."""
    answers = New().batch_generate_with_metadata(["q", "r"], [["a"], ["b"]])
    assert isinstance(answers, list)
    assert [type(one) for one in answers] == [GenerationResult] * 2


def test_each_result_of_a_batch_of_generation_has_its_metadata():
    """「每个结果应当包含对应的元数据」: that of its own question and contexts."""

    class Echo(OnlyGeneration):
        def generate_with_metadata(self, query, contexts):
            return GenerationResult(query, metadata={"contexts": contexts})

    answers = Echo().batch_generate_with_metadata(["q", "r"], [["a"], ["b"]])
    assert [(one.response, one.metadata["contexts"]) for one in answers] == [
        ("q", ["a"]),
        ("r", ["b"]),
    ]


def test_results_cost_the_same_whatever_they_hold():
    """「对象创建开销应当可忽略」: a result of a million contexts takes no more memory to make than one of
    ten.
    """

    def cost(contexts):
        ids = contexts
        tracemalloc.start()
        made = RetrievalResult(contexts, ids)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert made.contexts is contexts
        return size

    cost(["a"])  # what is made once only
    assert cost(["a"] * 1_000_000) <= cost(["a"] * 10) + 64
    assert cost(["a"] * 10) < 1000


def test_wrapping_makes_one_object_for_each_question():
    """「不应当影响整体性能」: a thousand questions through the defaults cost a thousand small objects, no
    hits.
    """
    tracemalloc.start()
    many = Old().batch_retrieve_with_metadata(["q"] * 1000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(many) == 1000
    assert size / 1000 < 600
    assert all(one.hits is None for one in many)


@pytest.mark.parametrize(
    "made", [Old(), New(), OnlyRetrieval(), OnlyGeneration()], ids=lambda one: type(one).__name__
)
def test_nothing_is_copied_between_the_forms(made):
    """「应当避免不必要的数据复制」: whichever form is written and whichever is asked, the list is the very
    one.
    """
    assert made.retrieve("q") is CONTEXTS
    assert made.retrieve_with_metadata("q").contexts is CONTEXTS
    assert made.batch_retrieve(["q"])[0] is CONTEXTS
    assert made.batch_retrieve_with_metadata(["q"])[0].contexts is CONTEXTS


def test_contexts_are_handed_on_by_reference():
    """「应当尽可能使用引用」: a generator gets the caller's list, and its response is the very text."""
    seen = []

    class Seeing(Old):
        def generate(self, query, contexts):
            seen.append(contexts)
            return contexts[0]

    answer = Seeing().generate_with_metadata("q", CONTEXTS)
    Seeing().batch_generate_with_metadata(["q"], [CONTEXTS])
    assert answer.response is CONTEXTS[0]
    assert [one is CONTEXTS for one in seen] == [True, True]


@pytest.mark.parametrize("method", [*METHODS, *BATCHES])
def test_every_method_is_annotated(method):
    """「IDE应当能够提供准确的自动完成」: each parameter and each return value has its type, and the package says
    so.
    """
    signature = inspect.signature(getattr(RAGInterface, method))
    assert all(
        one.annotation is not one.empty
        for name, one in signature.parameters.items()
        if name != "self"
    )
    assert signature.return_annotation is not signature.empty
    assert (ROOT / "lazyrag" / "py.typed").exists()


def test_type_errors_are_found():
    """「类型检查器应当能够发现类型错误」: tests/typing/api.py, which mypy reads, has wrong uses that must be
    errors.
    """
    page = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    assert "class WrongRAG(RAGInterface[" in page
    assert "# type: ignore[override]" in page.partition("class WrongRAG(RAGInterface[")[2]


def test_metadata_may_have_a_type_of_ones_own():
    """「类型系统应当支持」: interface and results take the type of metadata as their parameter."""
    assert typing.get_args(RAGInterface[int]) == (int,)
    assert typing.get_args(RetrievalResult[int]) == typing.get_args(GenerationResult[int]) == (int,)

    class Typed(RAGInterface[dict[str, int]]):
        retrieve, generate = Old.retrieve, Old.generate

    assert Typed().retrieve("q") is CONTEXTS


def test_the_type_of_metadata_is_kept():
    """「应当保持类型安全」: the results of an interface of a type are of that type; api.py asserts it for
    checkers.
    """
    hints = typing.get_type_hints(RAGInterface.retrieve_with_metadata)
    assert typing.get_args(hints["return"]) == RAGInterface.__parameters__
    page = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    assert "assert_type(typed_rag.retrieve_with_metadata" in page


@pytest.mark.parametrize("page", ["docs/evaluation.md", "docs/zh/evaluation.md"])
def test_the_migration_has_steps(page):
    """「应当有清晰的迁移步骤」: the page lists them in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    steps = re.findall(r"^(\d)\. (.*)$", text, re.MULTILINE)
    assert [number for number, _ in steps] == ["1", "2", "3", "4"]
    named = ("", "retrieve_with_metadata", "generate_with_metadata", "batch_retrieve_with_metadata")
    assert [name for name, (_, step) in zip(named, steps, strict=True) if name not in step] == []


@pytest.mark.parametrize("page", ["docs/evaluation.md", "docs/zh/evaluation.md"])
def test_the_migration_shows_both_forms(page):
    """「应当有代码示例对比」: the same system before and after, in code that the documentation's tests run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    before, _, after = text.partition("def retrieve_with_metadata(self")
    assert "def retrieve(self" in before
    assert "def generate_with_metadata(self" in after


@pytest.mark.parametrize("page", ["docs/evaluation.md", "docs/zh/evaluation.md"])
def test_a_whole_system_is_shown(page):
    """「应当有完整的实现示例」: one class in the page with both new methods and both batches."""
    text = (ROOT / page).read_text(encoding="utf-8")
    [block] = [
        one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class After(" in one
    ]
    [shown] = [node for node in ast.parse(block).body if isinstance(node, ast.ClassDef)]
    methods = {node.name for node in shown.body if isinstance(node, ast.FunctionDef)}
    assert methods == {
        "retrieve_with_metadata",
        "generate_with_metadata",
        "batch_retrieve_with_metadata",
        "batch_generate_with_metadata",
    }


def test_all_metadata_are_shown():
    """「应当展示如何返回所有元数据」: the example names each field of both results."""
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    names = ("context_ids=", "scores=", "multi_responses=", "confidence=", "metadata=")
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("method", [*METHODS, *BATCHES])
def test_parameters_are_explained(method):
    """「应当有详细的参数说明」: each method's docstring explains each of its parameters."""
    told = (
        inspect.getdoc(getattr(RAGInterface, method)).partition("Args:")[2].partition("Returns:")[0]
    )
    names = [
        name
        for name in inspect.signature(getattr(RAGInterface, method)).parameters
        if name != "self"
    ]
    assert [name for name in names if f"{name}: " not in told] == []


@pytest.mark.parametrize("method", [*METHODS, *BATCHES])
def test_return_values_are_explained(method):
    """「应当有返回值说明」: each method's docstring says what it returns, and what its default does."""
    told = inspect.getdoc(getattr(RAGInterface, method)).partition("Returns:")[2]
    assert "By default" in told


def test_notes_on_use_are_there():
    """「应当有使用注意事项」: the class's docstring says what is refused, and what to beware of."""
    told = inspect.getdoc(RAGInterface)
    assert "Raises:" in told
    assert "is refused when it is defined" in told
    assert "must leave the other form" in told
