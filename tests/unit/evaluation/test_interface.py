"""Spec 002's interface beyond its sentences: what a class must have, what is refused, and that
nothing recurs.
"""

from __future__ import annotations

import abc

import numpy as np
import pytest

from lazyrag import GenerationResult, LazyRAGError, RAGInterface, RetrievalResult
from lazyrag.errors import ConfigError, InterfaceError
from lazyrag.evaluation import RetrieverRAG, Sample, prepare


class Old(RAGInterface):
    """Both old forms."""

    def retrieve(self, query):
        """Two texts."""
        return [query, "a"]

    def generate(self, query, contexts):
        """The texts, joined."""
        return "|".join(contexts)


class New(RAGInterface):
    """Both new forms."""

    def retrieve_with_metadata(self, query):
        """Two texts with ids."""
        return RetrievalResult([query, "a"], ["1", "2"], [0.5, 0.25], {"n": 2})

    def generate_with_metadata(self, query, contexts):
        """The texts, joined, with candidates."""
        return GenerationResult("|".join(contexts), ["x", "y"], 0.5, {"tokens": 3})


@pytest.mark.parametrize(
    ("methods", "missing"),
    [
        ({}, "neither retrieve"),
        ({"retrieve": Old.retrieve}, "neither generate"),
        ({"generate_with_metadata": New.generate_with_metadata}, "neither retrieve"),
        ({"batch_retrieve": print, "batch_generate": print}, "neither retrieve"),
    ],
)
def test_a_class_without_one_of_a_pair_is_refused_when_it_is_made(methods, missing):
    """The error names the class and both methods, and is a TypeError as well as one of ours."""
    with pytest.raises(InterfaceError, match=f"Mine implements {missing}") as caught:
        type("Mine", (RAGInterface,), methods)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, LazyRAGError)


def test_a_base_that_says_it_is_abstract_may_leave_methods_to_others():
    """A class that names abc.ABC among its bases is no system yet; a class of it must be
    complete.
    """

    class Base(RAGInterface, abc.ABC):
        def generate(self, query, contexts):
            return "same"

    class Whole(Base):
        def retrieve(self, query):
            return ["a"]

    assert Whole().generate_with_metadata("q", []).response == "same"
    with pytest.raises(InterfaceError, match="Half implements neither retrieve"):
        type("Half", (Base,), {})


@pytest.mark.parametrize(
    "method",
    ["retrieve", "retrieve_with_metadata", "batch_retrieve", "batch_retrieve_with_metadata"],
)
def test_what_nothing_implements_is_an_error_and_no_recursion(method):
    """The interface itself, and an abstract base, say what is missing when they are asked."""

    class Base(RAGInterface, abc.ABC):
        pass

    for made in (RAGInterface(), Base()):
        with pytest.raises(InterfaceError, match="not implemented either"):
            getattr(made, method)(["q"] if method.startswith("batch") else "q")


def test_an_override_that_calls_its_own_default_is_an_error_and_no_recursion():
    """The default asks the other form, whose default would ask back."""

    class Circular(Old):
        retrieve = RAGInterface.retrieve

        def retrieve_with_metadata(self, query):
            return super().retrieve_with_metadata(query)

    with pytest.raises(
        InterfaceError, match=r"Circular\.retrieve_with_metadata\(\) calls retrieve\(\)"
    ):
        Circular().retrieve("q")


def test_an_override_may_call_the_default_of_a_class_above():
    """A new form on top of an old one adds ids to what the default wraps."""

    class Numbered(Old):
        def retrieve_with_metadata(self, query):
            plain = super().retrieve_with_metadata(query)
            return RetrievalResult(plain.contexts, [str(number) for number in range(len(plain))])

    assert Numbered().retrieve_with_metadata("q").context_ids == ["0", "1"]
    assert Numbered().retrieve("q") == ["q", "a"]


def test_a_mixin_before_the_interface_counts_and_one_behind_it_does_not():
    """What Python would call is what counts."""

    class Finds:
        def retrieve(self, query):
            return ["a"]

    class Right(Finds, RAGInterface):
        generate = Old.generate

    assert Right().retrieve_with_metadata("q").contexts == ["a"]
    with pytest.raises(InterfaceError, match="A mixin goes before RAGInterface"):
        type("Wrong", (RAGInterface, Finds), {"generate": Old.generate})


def test_old_classes_take_arguments_and_other_metaclasses():
    """The interface has no constructor of its own: subclasses have any."""

    class Made(Old, metaclass=abc.ABCMeta):
        def __init__(self, first, *, second):
            self.both = (first, second)

    assert Made(1, second=2).both == (1, 2)
    with pytest.raises(TypeError):
        Old(1)


@pytest.mark.parametrize(
    ("methods", "call", "said"),
    [
        (
            {"retrieve_with_metadata": lambda self, q: ["a"]},
            lambda r: r.retrieve("q"),
            "return a RetrievalResult",
        ),
        (
            {"retrieve": lambda self, q: "a"},
            lambda r: r.retrieve_with_metadata("q"),
            "return a list of texts",
        ),
        (
            {"retrieve": lambda self, q: None},
            lambda r: r.retrieve_with_metadata("q"),
            "return a list of texts",
        ),
        (
            {"generate_with_metadata": lambda self, q, c: "a"},
            lambda r: r.generate("q", []),
            "return a GenerationResult",
        ),
        (
            {"generate": lambda self, q, c: 7},
            lambda r: r.generate_with_metadata("q", []),
            "return a text",
        ),
        (
            {"batch_retrieve": lambda self, q: [["a"]]},
            lambda r: r.batch_retrieve_with_metadata(["q", "r"]),
            "return a list of 2 items",
        ),
        (
            {"batch_generate_with_metadata": lambda self, q, c: ["a"]},
            lambda r: r.batch_generate(["q"], [[]]),
            "each a GenerationResult",
        ),
    ],
)
def test_what_is_no_result_is_refused_with_the_methods_name(methods, call, said):
    """The message says which method of which class returned what, and what is needed."""
    named = next(iter(methods))
    own = {"retrieve": Old.retrieve, "generate": Old.generate}
    for form in ("retrieve", "generate"):
        if f"{form}_with_metadata" in methods:
            del own[form]
    with pytest.raises(InterfaceError, match=rf"Mine\.{named}\(\) returned .*{said}"):
        call(type("Mine", (RAGInterface,), own | methods)())


def test_batches_of_the_new_form_keep_metadata_before_they_are_fast():
    """A fast batch of texts is not used where the single questions have ids; where they have none,
    it is.
    """

    class Fast(Old):
        def batch_retrieve(self, queries):
            return [["fast"] for _ in queries]

        def batch_generate(self, queries, contexts_list):
            return ["fast" for _ in queries]

    class FastNew(New):
        batch_retrieve, batch_generate = Fast.batch_retrieve, Fast.batch_generate

    assert [one.contexts for one in Fast().batch_retrieve_with_metadata(["q"])] == [["fast"]]
    assert [one.response for one in Fast().batch_generate_with_metadata(["q"], [[]])] == ["fast"]
    assert [one.context_ids for one in FastNew().batch_retrieve_with_metadata(["q"])] == [
        ["1", "2"]
    ]
    assert [one.confidence for one in FastNew().batch_generate_with_metadata(["q"], [["a"]])] == [
        0.5
    ]
    assert FastNew().batch_retrieve(["q"]) == [["fast"]]


def test_batches_of_the_old_form_use_those_of_the_new_one():
    """A batch of results answers for the batch of texts, by reference."""
    held = [RetrievalResult(["a"]), RetrievalResult(["b"])]

    class Batched(New):
        def batch_retrieve_with_metadata(self, queries):
            return held

        def batch_generate_with_metadata(self, queries, contexts_list):
            return [GenerationResult("x") for _ in queries]

    assert [
        one is two.contexts
        for one, two in zip(Batched().batch_retrieve(["q", "r"]), held, strict=True)
    ] == [True] * 2
    assert Batched().batch_generate(["q"], [[]]) == ["x"]


@pytest.mark.parametrize("method", ["batch_generate", "batch_generate_with_metadata"])
def test_a_batch_needs_contexts_for_each_question(method):
    """Other numbers of lists are refused before anything is asked."""
    with pytest.raises(ConfigError, match="2 queries need as many lists of contexts; got 1"):
        getattr(Old(), method)(["q", "r"], [[]])


@pytest.mark.parametrize("made", [Old(), New()], ids=["old", "new"])
def test_all_eight_methods_answer_whichever_form_is_written(made):
    """Both systems give the same texts through every method, one by one and in batches; no question
    gives nothing.
    """
    contexts = [["q", "a"], ["r", "a"]]
    assert [made.retrieve("q"), made.retrieve("r")] == made.batch_retrieve(["q", "r"]) == contexts
    assert [one.contexts for one in made.batch_retrieve_with_metadata(["q", "r"])] == contexts
    assert made.batch_generate(["q", "r"], contexts) == ["q|a", "r|a"]
    assert [one.response for one in made.batch_generate_with_metadata(["q", "r"], contexts)] == [
        "q|a",
        "r|a",
    ]
    assert (
        made.batch_retrieve([])
        == made.batch_retrieve_with_metadata([])
        == made.batch_generate([], [])
        == []
    )


def test_an_old_form_over_a_new_one_is_refused():
    """An evaluation would ask the base's new form: another system than the one that was written."""
    with pytest.raises(
        InterfaceError,
        match=r"Mine implements generate.*generate_with_metadata\(\) of RetrieverRAG",
    ):

        class Mine(RetrieverRAG):
            def generate(self, query, contexts):
                """Never heard."""
                return "mine"

    class Heard(RetrieverRAG):
        generate_with_metadata = RAGInterface.generate_with_metadata

        def generate(self, query, contexts):
            """Asked by the default."""
            return "mine"

    heard = Heard(lambda query, filters=None, topk=None: [])
    [sample] = prepare([{"user_input": "tea?"}], heard)
    assert sample.response == "mine"


def test_what_was_retrieved_is_checked_before_the_model_is_paid_for():
    """Ids of another kind are told, and no answer is asked for; numbers of numpy are ids."""

    class Odd(RAGInterface):
        asked = 0

        def retrieve_with_metadata(self, query):
            """Ids that are none."""
            return RetrievalResult(["a"], [1.5])

        def generate(self, query, contexts):
            """Counts."""
            Odd.asked += 1
            return "a"

    with pytest.raises(ConfigError, match="retrieved_context_ids"):
        prepare([{"user_input": "tea?"}], Odd())
    assert Odd.asked == 0
    assert Sample("q", retrieved_context_ids=[np.int64(3)]).retrieved_context_ids == [3]


def test_confidences_of_numpy_are_numbers():
    """From 0 to 1 as any; one text is no list of candidates."""
    assert GenerationResult("a", confidence=np.float32(0.5)).confidence == 0.5
    with pytest.raises(ConfigError, match="text"):
        GenerationResult("a", "abc")


def test_one_text_is_no_list_of_questions():
    """Its characters would be asked one by one."""
    system = RetrieverRAG(lambda query, filters=None, topk=None: [], lambda prompt: "a")
    for call in (
        lambda: system.batch_retrieve("abc"),
        lambda: system.batch_retrieve_with_metadata("abc"),
        lambda: system.batch_generate("abc", [[], [], []]),
    ):
        with pytest.raises(ConfigError, match="list of questions"):
            call()
