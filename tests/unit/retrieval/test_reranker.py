"""Rerankers: registration, contracts, the two built-in ones."""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag import DocNode, Document, Reranker, RetrievalChain, Retriever, register_reranker
from lazyrag.errors import (
    AlreadyRegisteredError,
    AnswerWarning,
    ConfigError,
    NotRegisteredError,
    RetrievalError,
)
from lazyrag.models import CallableRerankModel

NODES = [
    DocNode(text="Green tea"),
    DocNode(text="Iced tea with milk"),
    DocNode(text="Coffee"),
    DocNode(text="绿茶和红茶"),
]


def texts(nodes):
    """The nodes' texts."""
    return [node.text for node in nodes]


class TestRegistration:
    """register_reranker and what it checks."""

    def test_a_batch_function_reorders(self):
        """It gets all nodes, the query and the Reranker's keywords, and its order is the result."""

        @register_reranker(batch=True)
        def by_length(nodes, query, reverse=False):
            assert query == "q"
            return sorted(nodes, key=lambda node: len(node.text), reverse=reverse)

        assert (
            texts(Reranker("by_length", reverse=True)(NODES, query="q"))[0] == "Iced tea with milk"
        )

    def test_a_single_function_filters(self):
        """It gets one node at a time; None drops it, order is kept."""

        @register_reranker
        def with_tea(node, **kwargs):
            return node if "tea" in node.text else None

        assert texts(Reranker("with_tea")(NODES, query="q")) == ["Green tea", "Iced tea with milk"]

    def test_a_function_without_query_is_not_given_one(self):
        """A function that names no query and takes no others is called without it."""

        @register_reranker(batch=True)
        def reverse(nodes):
            return nodes[::-1]

        assert texts(Reranker("reverse")(NODES, query="q"))[0] == "绿茶和红茶"

    def test_the_function_is_returned_unchanged(self):
        """The decorator leaves the plain function under its name."""

        def keep(node):
            return node

        assert register_reranker(keep) is keep
        assert register_reranker(batch=False, name="keep2")(keep) is keep

    def test_a_taken_name_is_refused(self):
        """Another function under a registered name needs replace=True."""
        with pytest.raises(AlreadyRegisteredError, match="KeywordFilter"):
            register_reranker(lambda node: node, name="KeywordFilter")

    def test_an_unknown_name_names_the_nearest(self):
        """A misspelt reranker is refused when it is made."""
        with pytest.raises(NotRegisteredError, match="Did you mean 'KeywordFilter'"):
            Reranker("KeywordFiltre")

    def test_a_keyword_that_the_function_does_not_take_is_refused(self):
        """A misspelt keyword is refused when the Reranker is made, with the nearest one."""
        with pytest.raises(ConfigError, match="Did you mean 'required_keys'"):
            Reranker("KeywordFilter", require_keys=["tea"])

    @pytest.mark.parametrize("returned", [None, "text", [1], 3], ids=repr)
    def test_a_batch_function_that_returns_no_nodes_is_named(self, returned):
        """Anything but a list of nodes is a RetrievalError."""
        register_reranker(lambda nodes: returned, batch=True, name="broken")
        with pytest.raises(RetrievalError, match="'broken' must return"):
            Reranker("broken")(NODES)

    def test_what_a_function_raises_is_wrapped_with_its_cause(self):
        """The error names the reranker and keeps the original exception as its cause."""
        register_reranker(lambda node: 1 / 0, name="broken")
        with pytest.raises(RetrievalError, match="'broken' raised ZeroDivisionError") as caught:
            Reranker("broken")(NODES)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_something_else_than_nodes_is_refused(self):
        """Texts, such as output_format="content" gives, cannot be reranked."""
        with pytest.raises(ConfigError, match="output_format=None"):
            Reranker("KeywordFilter", required_keys=["tea"])(["tea"])


class TestModuleReranker:
    """ModuleReranker with a callable model."""

    @staticmethod
    def by_length(query, documents, top_n):
        """Longer is better."""
        return [(index, float(len(text))) for index, text in enumerate(documents)][::-1]

    def test_topk_minus_one_means_all(self):
        """By default every node is returned, best first, with the model's scores."""
        found = Reranker("ModuleReranker", model=self.by_length)(NODES, query="q")
        assert [(node.text, node.score) for node in found] == [
            ("Iced tea with milk", 18.0),
            ("Green tea", 9.0),
            ("Coffee", 6.0),
            ("绿茶和红茶", 5.0),
        ]

    def test_topk_bounds_the_result_and_reaches_the_model(self):
        """The model is told how many are wanted; what it returns beyond is cut."""
        seen = []

        def model(query, documents, top_n):
            seen.append((query, len(documents), top_n))
            return self.by_length(query, documents, top_n)

        assert texts(Reranker("ModuleReranker", model=model, topk=1)(NODES, query="q")) == [
            "Iced tea with milk"
        ]
        assert seen == [("q", 4, 1)]

    def test_ties_keep_the_order_they_came_in(self):
        """Equal scores do not shuffle the retriever's order."""
        model = lambda query, documents, top_n: [(i, 1.0) for i in range(4)]  # noqa: E731
        assert Reranker("ModuleReranker", model=model)(NODES, query="q") == NODES

    @pytest.mark.parametrize(("weight", "score", "other"), [(1, 0.5, 0.5), (0.75, 1.0, 0.25)])
    @pytest.mark.parametrize("topk", [-1, 3])
    def test_what_a_model_leaves_out_is_not_dropped(self, weight, score, other, topk):
        """It comes behind, in the order it came in, with the model's lowest score or nothing of it,
        and is told.
        """
        nodes = [node.with_score(1.0) for node in NODES]
        model = CallableRerankModel(lambda query, documents, top_n: [(2, 0.5)])
        reranker = Reranker("ModuleReranker", model=model, weight=weight, topk=topk)
        message = (
            r"CallableRerankModel.* returned 1 scores for 4 passages with top_n=\d; the others "
        )
        message += (
            r"rank last\." if weight == 1 else r"keep only their share of the earlier score\."
        )
        with pytest.warns(AnswerWarning, match=message) as caught:
            found = reranker(nodes, query="q")
        order = ["Coffee", "Green tea", "Iced tea with milk", "绿茶和红茶"][
            : len(NODES) if topk == -1 else topk
        ]
        assert texts(found) == order
        assert [node.score for node in found] == [score, *[other] * (len(order) - 1)]
        assert [one.filename for one in caught] == [__file__]

    def test_no_nodes_are_not_sent_to_a_model(self):
        """An empty result stays empty without a call."""
        assert Reranker("ModuleReranker", model=lambda *args, **kwargs: 1 / 0)([], query="q") == []

    def test_further_keywords_reach_the_model(self):
        """What ModuleReranker does not know is for the model."""

        def model(query, documents, top_n, prompt):
            assert prompt == "p"
            return self.by_length(query, documents, top_n)

        assert len(Reranker("ModuleReranker", model=model, prompt="p")(NODES, query="q")) == 4

    @pytest.mark.parametrize("topk", [0, -2, 1.5, True])
    def test_an_impossible_topk_is_refused(self, topk):
        """topk is at least 1, or -1."""
        with pytest.raises(ConfigError, match="topk"):
            Reranker("ModuleReranker", model=self.by_length, topk=topk)(NODES)

    @pytest.mark.parametrize(
        "returned", [[(9, 1.0)], [(-1, 1.0)], [(0, float("nan"))], ["x"], 3, [("a", 1)]], ids=repr
    )
    def test_nonsense_of_a_model_is_named(self, returned):
        """Indexes out of range, nan and things that are no pairs are RetrievalErrors."""
        with pytest.raises(RetrievalError, match="rerank model"):
            Reranker("ModuleReranker", model=lambda query, documents, top_n: returned)(
                NODES, query="q"
            )

    def test_a_model_that_is_none_is_refused(self):
        """When the Reranker is made, with what may be given."""
        with pytest.raises(
            ConfigError, match="must be a folder, a name, a RerankModel, or a callable"
        ):
            Reranker("ModuleReranker", model=3)


class TestKeywordFilter:
    """KeywordFilter: all required, none excluded."""

    @pytest.mark.parametrize(
        ("required", "exclude", "expected"),
        [
            (["tea"], [], ["Green tea", "Iced tea with milk"]),
            (["TEA", "Iced"], [], ["Iced tea with milk"]),
            (["tea"], ["milk"], ["Green tea"]),
            ([], ["tea"], ["Coffee", "绿茶和红茶"]),
            (["绿茶"], [], ["绿茶和红茶"]),
            (["绿茶", "红茶"], ["咖啡"], ["绿茶和红茶"]),
            (["iced  tea"], [], ["Iced tea with milk"]),
            (["ea"], [], []),
        ],
    )
    def test_it_keeps_what_has_all_required_and_none_excluded(self, required, exclude, expected):
        """Case does not matter, English keys are whole words or phrases, Chinese ones
        substrings.
        """
        for language in ("en", "zh"):
            keep = Reranker(
                "KeywordFilter", required_keys=required, exclude_keys=exclude, language=language
            )
            assert texts(keep(NODES, query="q")) == expected

    def test_a_word_may_stand_right_beside_chinese(self):
        """RAG is a word of its own in 使用RAG技术."""
        node = DocNode(text="使用RAG技术")
        assert Reranker("KeywordFilter", required_keys=["rag"])([node]) == [node]
        assert Reranker("KeywordFilter", required_keys=["ra"])([node]) == []

    def test_full_width_letters_are_the_same_letters(self):
        """ＴＥＡ is found by tea."""
        node = DocNode(text="ＴＥＡ")
        assert Reranker("KeywordFilter", required_keys=["tea"])([node]) == [node]

    def test_regular_expression_marks_are_plain_text(self):
        """A key such as C++ or a.b is looked for as it stands."""
        nodes = [DocNode(text="written in C++ today"), DocNode(text="a.b"), DocNode(text="axb")]
        assert texts(Reranker("KeywordFilter", required_keys=["c++"])(nodes)) == [
            "written in C++ today"
        ]
        assert texts(Reranker("KeywordFilter", required_keys=["a.b"])(nodes)) == ["a.b"]

    def test_instances_do_not_share_keywords(self):
        """One filter's keys never act in another."""
        Reranker("KeywordFilter", required_keys=["milk"])(NODES)
        assert len(Reranker("KeywordFilter", required_keys=["tea"])(NODES)) == 2

    @pytest.mark.parametrize(
        "wrong",
        [
            {"required_keys": "tea"},
            {"exclude_keys": [""]},
            {"required_keys": [3]},
            {"language": "fr"},
        ],
        ids=repr,
    )
    def test_keys_that_make_no_sense_are_refused(self, wrong):
        """A single text, a blank key, a number or an unknown language is a ConfigError."""
        with pytest.raises(ConfigError, match="KeywordFilter"):
            Reranker("KeywordFilter", **wrong)(NODES)


def test_a_chain_of_retriever_and_rerankers(folder):
    """Nodes go from a Retriever through two Rerankers and keep their place in the tree."""
    docs = Document(folder({"a.txt": "green tea\n\nblack tea", "b.txt": "iced tea"}))
    docs.create_node_group("block", transform=lambda text: text.split("\n\n"))
    found = Retriever(docs, "block", "bm25")("tea")
    found = Reranker("KeywordFilter", exclude_keys=["iced"])(found, query="tea")
    found = Reranker("ModuleReranker", model=TestModuleReranker.by_length, topk=1)(
        found, query="tea"
    )
    [node] = found
    assert (node.text, node.path, node.parent.text) == (
        "green tea",
        "a.txt",
        "green tea\n\nblack tea",
    )


@pytest.mark.parametrize(
    "returned",
    [
        [(0.0, 1.0)],
        [(1.5, 1.0)],
        [("0", 1.0)],
        [(np.float64(1), 1.0)],
        [(0, 1.0), (0, 2.0)],
        [(1, 1.0), (np.int64(1), 1.0)],
    ],
)
def test_indices_of_a_rerank_model_are_whole_and_come_once(returned):
    """A float, or one index with two scores, is an error of the model and not rounded or
    overwritten.
    """
    with pytest.raises(RetrievalError, match="The rerank model"):
        Reranker("ModuleReranker", model=lambda query, documents, top_n: returned)(NODES, query="q")


@pytest.mark.parametrize("number", [np.int8, np.int64])
def test_numpys_whole_numbers_are_whole_numbers(number):
    """topk and the indices that a model returns may be numpy's."""

    def backwards(query, documents, top_n):
        return [(number(index), float(index)) for index in range(len(documents))]

    assert texts(Reranker("ModuleReranker", model=backwards, topk=number(2))(NODES, query="q")) == [
        "绿茶和红茶",
        "Coffee",
    ]
    assert len(Reranker("ModuleReranker", model=backwards, topk=number(-1))(NODES, query="q")) == 4


@pytest.mark.parametrize("keywords", ["required_keys", "exclude_keys"])
@pytest.mark.parametrize("make", [iter, set, lambda keys: (key for key in keys)])
def test_only_lists_of_keys_are_taken(keywords, make):
    """Keys that can be read once only would hold for the first node and for no other: they are
    refused at once.
    """
    with pytest.raises(ConfigError, match=f"{keywords} .*list"):
        Reranker("KeywordFilter", **{keywords: make(["tea"])})


@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("topk", [-1, 2])
def test_a_reranker_that_fails_keeps_the_order_where_that_is_allowed(weight, topk):
    """The nodes come as before, cut to topk; a warning has the cause, and the stage says it. By
    default it raises.
    """

    def broken(query, documents, top_n):
        raise OSError("the model is down")

    nodes = [
        DocNode(text=text).with_score(1.0 / (number + 1))
        for number, text in enumerate(("a", "b", "c"))
    ]
    strict = Reranker("ModuleReranker", model=broken, weight=weight, topk=topk)
    with pytest.raises(RetrievalError, match="the model is down"):
        strict(nodes, query="q")
    lenient = Reranker("ModuleReranker", model=broken, weight=weight, topk=topk, on_error="keep")
    with pytest.warns(AnswerWarning, match="order of before is kept.*the model is down"):
        assert lenient(nodes, query="q") == nodes[: None if topk == -1 else topk]


def test_a_chain_explains_that_the_order_of_before_is_kept(folder):
    """An explanation names the reranker and what became of it."""

    @register_reranker(batch=True, name="fails at once", replace=True)
    def fails(nodes, **kwargs):
        raise OSError("down")

    retriever = Retriever(Document(folder({"a.txt": "green tea"})), "FineChunk", similarity="bm25")
    chain = RetrievalChain(retriever, Reranker("fails at once", on_error="keep"))
    with pytest.warns(AnswerWarning):
        explained = chain.explain("tea")
    assert "the order of before is kept" in str(explained)
    with pytest.raises(ConfigError, match="on_error"):
        Reranker("fails at once", on_error="ignore")
