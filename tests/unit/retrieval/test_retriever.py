"""Retriever: order, bounds, cut-offs, filters, several Documents, targets, output."""

from __future__ import annotations

import math
import random
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from lazyrag import (
    LAZY_ROOT_NAME,
    Condition,
    DataType,
    DocField,
    Document,
    Retriever,
    register_similarity,
)
from lazyrag.errors import ConfigError, EmbeddingError, NotRegisteredError, UnsupportedError
from lazyrag.ranking.fusion import rrf
from lazyrag.text.analyzers import chinese_terms, english_terms

WORDS = (
    "tea leaf garden kettle steam cup water spring harvest roast green black 茶叶 春天 水温".split()
)


def corpus(count, seed=0):
    """Seeded texts from few words, so that many nodes share terms."""
    chance = random.Random(seed)
    return {
        f"{number:03d}.txt": " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 30)))
        for number in range(count)
    }


def embed(text):
    """A bag of words in numbers."""
    return [1.0 + text.split().count(word) for word in WORDS]


class TestRanking:
    """Order, bounds and scores."""

    @pytest.mark.parametrize(
        ("similarity", "terms"), [("bm25", english_terms), ("bm25_chinese", chinese_terms)]
    )
    def test_okapi_scores_are_rank_bm25s(self, folder, similarity, terms):
        """Through the Retriever, variant okapi gives rank_bm25's scores to 1e-6 relative, for every
        node it ranks.
        """
        texts = corpus(120)
        docs = Document(folder(texts))
        oracle = BM25Okapi([terms(text) for text in texts.values()])
        retriever = Retriever(docs, LAZY_ROOT_NAME, similarity, topk=500, variant="okapi")
        for query in ("green tea", "春天的茶叶 kettle kettle", "steam"):
            expected = dict(zip(texts, oracle.get_scores(terms(query)), strict=True))
            found = retriever(query)
            assert 20 < len(found) < 120
            for node in found:
                assert node.score == pytest.approx(expected[node.path], rel=1e-6)

    def test_only_nodes_that_share_a_term_are_ranked(self, folder):
        """bm25 never pads its result with nodes that have nothing of the query."""
        docs = Document(folder({"a.txt": "green tea", "b.txt": "coffee", "c.txt": "a teapot"}))
        assert [node.path for node in Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=10)("tea")] == [
            "a.txt"
        ]

    def test_ties_go_by_uid(self, folder):
        """Nodes with equal texts have equal scores and stand in the order of their uids."""
        docs = Document(folder({f"{number}.txt": "green tea" for number in range(30)}), embed=embed)
        for similarity in ("bm25", "bm25_chinese", "cosine"):
            found = Retriever(docs, LAZY_ROOT_NAME, similarity, topk=12)("tea")
            assert len({node.score for node in found}) == 1
            everyone = sorted(node.uid for node in docs.get_nodes())
            assert [node.uid for node in found] == everyone[:12]

    @pytest.mark.slow
    def test_the_same_question_gives_the_same_answer_in_a_new_document(self, folder):
        """Two Documents over the same folder agree in uids, order and scores."""
        position = folder(corpus(60))
        answers = [
            [
                (node.uid, node.score)
                for similarity in ("bm25", "bm25_chinese", "cosine")
                for node in Retriever(Document(position, embed=embed), "FineChunk", similarity)(
                    "green tea 春天"
                )
            ]
            for _ in range(2)
        ]
        assert answers[0] == answers[1]
        assert len(answers[0]) == 18

    def test_topk_defaults_to_six_and_can_be_changed_for_a_call(self, folder):
        """Six nodes by default, as many as asked for otherwise, all there are at most."""
        docs = Document(folder({f"{number}.txt": "green tea" for number in range(9)}))
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea")) == 6
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=2)("tea")) == 2
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=2)("tea", topk=100)) == 9

    @pytest.mark.parametrize("topk", [0, -1, 2.5, "3", True, None])
    def test_an_impossible_topk_is_refused(self, topk):
        """topk is a whole number of at least 1."""
        with pytest.raises(ConfigError, match="topk"):
            Retriever(Document(), "FineChunk", "bm25", topk=topk)

    @pytest.mark.parametrize("number", [np.int8, np.int64, np.uint16])
    def test_numpys_whole_numbers_are_whole_numbers(self, folder, number):
        """topk may be one that numpy counted, for the retriever and for a call."""
        docs = Document(folder({f"{n}.txt": "green tea" for n in range(9)}))
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=number(2))("tea")) == 2
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea", topk=number(7))) == 7
        assert len(docs.get_nodes(limit=number(3), offset=number(1))) == 3
        with pytest.raises(ConfigError, match="topk"):
            Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=number(0))

    @pytest.mark.parametrize("query", ["", "  \n", "\u00ad\u200b", "。！"])
    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese"])
    def test_a_query_without_terms_finds_nothing(self, folder, query, similarity):
        """Blank, characters that nobody sees, punctuation alone: an empty result, no error."""
        docs = Document(folder({"a.txt": "the cup of tea。"}))
        assert Retriever(docs, LAZY_ROOT_NAME, similarity)(query) == []

    @pytest.mark.parametrize("options", [{}, {"variant": "okapi"}], ids=["lucene", "okapi"])
    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese"])
    def test_a_query_of_stop_words_finds_them(self, folder, similarity, options):
        """IT, The Who: texts with most of these words; other queries do not see the stop words in
        texts.
        """
        texts = {f"n{n}.txt": f"Filler number {n} about football. 天气" for n in range(6)}
        texts |= {
            "a.txt": "IT is on floor 2",
            "b.txt": "The Who",
            "c.txt": "floor 2",
            "d.txt": "谁写了茶经？为什么",
        }
        docs = Document(folder(texts))
        retriever = Retriever(docs, LAZY_ROOT_NAME, similarity, **options)
        assert [node.path for node in retriever("it")] == ["a.txt"]
        assert [node.path for node in retriever("The Who")] == ["b.txt"]
        assert {node.path for node in retriever("who football", topk=99)} == {
            f"n{n}.txt" for n in range(6)
        }
        if similarity == "bm25_chinese":
            assert [node.path for node in retriever("为什么")] == ["d.txt"]
            assert (
                "terms are 'the', 'who'"
                in retriever.why_not(
                    next(one for one in docs.get_nodes() if one.path == "c.txt").uid, "the who"
                ).message
            )
        equal = {node.path: node.score for node in retriever("floor")}
        assert equal["a.txt"] == equal["c.txt"]

    def test_texts_of_stop_words_alone_are_ranked(self, folder):
        """An index none of whose texts has another word; and a restricted part of one."""
        docs = Document(
            folder(
                {
                    "a.txt": "To be, or not to be",
                    "b.txt": "It is not",
                    "sub/c.txt": "long green tea",
                }
            )
        )
        only = Document()
        only.add_texts({"a.txt": "The Who", "b.txt": "IT"})
        assert [node.path for node in Retriever(only, LAZY_ROOT_NAME, "bm25")("Who")] == ["a.txt"]
        restricted = docs.restricted({"file_name": ["a.txt", "b.txt"]})
        for one in (docs, restricted):
            assert [
                node.path for node in Retriever(one, LAZY_ROOT_NAME, "bm25")("to be or not to be")
            ] == [
                "a.txt",
                "b.txt",
            ]

    def test_a_blank_query_is_never_embedded(self, folder):
        """The embed callable is not called for white space."""
        seen = []
        docs = Document(
            folder({"a.txt": "tea"}), embed=lambda text: seen.append(text) or [1.0, 2.0]
        )
        retriever = Retriever(docs, LAZY_ROOT_NAME)
        assert retriever(" \n ") == []
        assert retriever("tea")[0].path == "a.txt"
        assert seen == ["tea", "tea"]  # the file and the second query

    @pytest.mark.parametrize("query", [None, 3, ["tea"], b"tea"])
    def test_a_query_that_is_no_text_is_refused(self, query):
        """Only text can be asked."""
        with pytest.raises(ConfigError, match="query must be a string"):
            Retriever(Document(), "FineChunk", "bm25")(query)

    def test_an_empty_document_answers_nothing(self):
        """No files, no nodes, no error, for every built-in similarity."""
        docs = Document(embed=embed)
        for similarity in ("bm25", "bm25_chinese", "cosine"):
            assert Retriever(docs, "FineChunk", similarity)("tea") == []

    def test_cosine_scores_are_numpys(self, folder):
        """Vector search gives the cosines that numpy computes in float64, in their order."""
        texts = corpus(80, seed=3)
        docs = Document(folder(texts), embed=embed)
        query = np.array(embed("green tea kettle"))
        expected = {
            path: float(query @ vector / np.linalg.norm(query) / np.linalg.norm(vector))
            for path, vector in ((path, np.array(embed(text))) for path, text in texts.items())
        }
        found = Retriever(docs, LAZY_ROOT_NAME, "cosine", topk=80)("green tea kettle")
        assert len(found) == 80
        assert [node.score for node in found] == sorted(
            (node.score for node in found), reverse=True
        )
        for node in found:
            assert node.score == pytest.approx(expected[node.path], abs=1e-6)

    def test_the_default_similarity_is_by_embedding(self, folder):
        """Without similarity= a Retriever searches by cosine, and says what to do where nothing is
        embedded.
        """
        position = folder({"a.txt": "tea"})
        assert Retriever(Document(position, embed=embed), LAZY_ROOT_NAME)("tea")[
            0
        ].score == pytest.approx(1.0)
        with pytest.raises(ConfigError, match=r"similarity='bm25'"):
            Retriever(Document(position), LAZY_ROOT_NAME)

    def test_hits_are_copies_that_carry_scores(self, folder):
        """The stored node has no score after a search."""
        docs = Document(folder({"a.txt": "tea"}))
        [hit] = Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea")
        [stored] = docs.get_nodes()
        assert (hit == stored, hit.score > 0, stored.score) == (True, True, None)

    def test_a_failing_query_embedding_raises(self, folder):
        """Retrieval raises: a query that cannot be embedded is an EmbeddingError, not an empty
        result.
        """

        def moody(text):
            if text == "bad":
                raise RuntimeError("no")
            return [1.0, 2.0]

        docs = Document(folder({"a.txt": "tea"}), embed=moody)
        retriever = Retriever(docs, LAZY_ROOT_NAME)
        assert len(retriever("good")) == 1
        with pytest.raises(EmbeddingError, match="RuntimeError: no"):
            retriever("bad")

    @pytest.mark.slow
    def test_threads_get_what_one_thread_gets(self, folder):
        """Eight threads asking different questions at once get the single-threaded answers."""
        docs = Document(folder(corpus(200, seed=5)), embed=embed)
        retrievers = [
            Retriever(docs, "FineChunk", similarity)
            for similarity in ("bm25", "bm25_chinese", "cosine")
        ]
        questions = [f"{one} {other}" for one in WORDS for other in WORDS[:4]]
        expected = {
            (at, query): retriever(query)
            for at, retriever in enumerate(retrievers)
            for query in questions
        }
        wrong = []

        def ask(seed):
            chance = random.Random(seed)
            for _ in range(60):
                at, query = chance.choice(list(expected))
                found = retrievers[at](query)
                if [(n.uid, n.score) for n in found] != [
                    (n.uid, n.score) for n in expected[at, query]
                ]:
                    wrong.append((at, query))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestCutOff:
    """similarity_cut_off drops what is worse and keeps what is equal."""

    @pytest.fixture
    def docs(self, folder):
        """Texts of length 1 to 5."""
        register_similarity(lambda query, node: len(node.text), name="longest")
        register_similarity(lambda query, node: len(node.text), name="shortest", descend=False)
        return Document(folder({f"{n}.txt": "x" * n for n in range(1, 6)}), embed=embed)

    def test_a_descending_similarity_keeps_what_is_at_least_the_cut_off(self, docs):
        """Scores 3 to 5 pass a cut-off of 3."""
        found = Retriever(docs, LAZY_ROOT_NAME, "longest", similarity_cut_off=3)("q")
        assert [node.score for node in found] == [5, 4, 3]

    def test_an_ascending_similarity_keeps_what_is_at_most_the_cut_off(self, docs):
        """Scores 1 to 3 pass a cut-off of 3 where less is better."""
        found = Retriever(docs, LAZY_ROOT_NAME, "shortest", similarity_cut_off=3)("q")
        assert [node.score for node in found] == [1, 2, 3]

    @pytest.mark.parametrize("similarity", ["longest", "shortest"])
    def test_the_default_drops_nothing(self, docs, similarity):
        """-inf means no cut-off in both directions."""
        assert len(Retriever(docs, LAZY_ROOT_NAME, similarity)("q")) == 5

    def test_zero_is_a_cut_off(self, folder):
        """similarity_cut_off=0 (an int) drops negative scores only."""
        register_similarity(lambda query, node: len(node.text) - 3, name="centred")
        docs = Document(folder({f"{n}.txt": "x" * n for n in range(1, 6)}))
        found = Retriever(docs, LAZY_ROOT_NAME, "centred", similarity_cut_off=0)("q")
        assert [node.score for node in found] == [2, 1, 0]

    def test_it_applies_to_bm25(self, folder):
        """A bm25 result loses exactly the nodes below the cut-off; the one that equals it stays."""
        docs = Document(folder(corpus(50)))
        every = Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=50)("tea leaf")
        cut = every[len(every) // 2].score
        kept = Retriever(docs, LAZY_ROOT_NAME, "bm25", topk=50, similarity_cut_off=cut)("tea leaf")
        assert kept == [node for node in every if node.score >= cut]
        assert 0 < len(kept) < len(every)

    def test_by_key_it_acts_before_fusion(self, folder):
        """With a cut-off for one of two keys, nodes below it keep only the other key's share of the
        fused score.
        """
        docs = Document(
            folder({"a.txt": "a", "b.txt": "bb"}),
            embed={
                "near_a": lambda t: [1.0, t.count("b")],
                "near_b": lambda t: [t.count("b") + 0.1, 1.0],
            },
        )
        both = Retriever(docs, LAZY_ROOT_NAME)("a")
        assert {node.path: node.score for node in both} == pytest.approx(
            {"a.txt": 2 / 61, "b.txt": 2 / 62}
        )
        cut = Retriever(docs, LAZY_ROOT_NAME, similarity_cut_off={"near_a": 0.9})("a")
        assert {node.path: node.score for node in cut} == pytest.approx(
            {"a.txt": 2 / 61, "b.txt": 1 / 62}
        )

    @pytest.mark.parametrize("cut_off", ["0.5", None, float("nan"), True, {"default": "x"}])
    def test_something_else_than_numbers_is_refused(self, docs, cut_off):
        """A cut-off is a number, or numbers by key."""
        with pytest.raises(ConfigError, match="similarity_cut_off"):
            Retriever(docs, LAZY_ROOT_NAME, similarity_cut_off=cut_off)

    def test_an_unknown_key_names_the_nearest(self, docs):
        """A misspelt embed key in the cut-offs is refused."""
        with pytest.raises(ConfigError, match="Did you mean 'default'"):
            Retriever(docs, LAZY_ROOT_NAME, similarity_cut_off={"defualt": 0.5})


class TestEmbedKeys:
    """Several embeddings of one Document."""

    @pytest.fixture
    def docs(self, folder):
        """Two embeddings that disagree."""
        return Document(
            folder(corpus(40, seed=9)),
            embed={"words": embed, "length": lambda text: [float(len(text)), 50.0]},
        )

    def test_all_keys_are_fused_by_rank(self, docs):
        """Without embed_keys the result is the RRF of the keys' own rankings, to depth max(50, 4 x
        topk).
        """
        query = "green tea leaf"
        single = [
            [
                (node.uid, node.score)
                for node in Retriever(docs, LAZY_ROOT_NAME, embed_keys=[key], topk=50)(query)
            ]
            for key in ("words", "length")
        ]
        fused = Retriever(docs, LAZY_ROOT_NAME, topk=10)(query)
        expected = rrf(single)[:10]
        assert [(node.uid, node.score) for node in fused] == [
            (uid, pytest.approx(score)) for uid, score in expected
        ]
        assert [pair[0] for pair in expected] != [pair[0] for pair in single[0][:10]]

    def test_one_key_gives_its_own_scores(self, docs):
        """With one key the score is the cosine itself."""
        found = Retriever(docs, LAZY_ROOT_NAME, embed_keys=["words"], topk=1)(
            docs.get_nodes(LAZY_ROOT_NAME)[7].text
        )
        assert found[0].score == pytest.approx(1.0)

    def test_an_unknown_key_names_the_nearest(self, docs):
        """A misspelt embed key is refused when the Retriever is made."""
        with pytest.raises(ConfigError, match="Did you mean 'words'"):
            Retriever(docs, LAZY_ROOT_NAME, embed_keys=["word"])

    def test_a_single_text_is_no_list_of_keys(self, docs):
        """embed_keys="words" would be read letter by letter: it is refused."""
        with pytest.raises(ConfigError, match="embed_keys"):
            Retriever(docs, LAZY_ROOT_NAME, embed_keys="words")

    @pytest.mark.parametrize("make", [iter, set, dict.fromkeys, lambda keys: (key for key in keys)])
    def test_only_lists_of_keys_are_taken(self, docs, make):
        """An iterator could be read once only and a set has no order: they are refused."""
        with pytest.raises(ConfigError, match=r"embed_keys"):
            Retriever(docs, LAZY_ROOT_NAME, embed_keys=make(["words"]))

    def test_no_key_is_refused(self, docs):
        """An empty list is neither all keys nor any."""
        with pytest.raises(ConfigError, match="at least one embed key"):
            Retriever(docs, LAZY_ROOT_NAME, embed_keys=[])

    def test_a_hit_carries_the_vector_it_was_found_by(self, docs):
        """With one embed key hit.embedding is its vector, also after another retriever used another
        key.
        """
        text = docs.get_nodes()[3].text
        for key, expected in (
            ("words", embed(text)),
            ("length", [float(len(text)), 50.0]),
            ("words", embed(text)),
        ):
            hits = Retriever(docs, LAZY_ROOT_NAME, embed_keys=[key], topk=40)(text)
            [hit] = [hit for hit in hits if hit.path == "003.txt"]
            assert hit.embedding.tolist() == expected
            assert hit.with_score(0.5).embedding.tolist() == expected
        fused = Retriever(docs, LAZY_ROOT_NAME)(text)[0]
        with pytest.raises(ConfigError, match="several embeddings"):
            _ = fused.embedding

    def test_fusion_reads_each_ranking_to_four_times_topk(self, folder):
        """At topk 15 the node at rank 60 of a ranking gets its share of the score, the one at rank
        61 gets none.
        """
        second = [59, 60, *(n for n in range(69, -1, -1) if n not in (59, 60))]
        turns = {
            "first": {n: n for n in range(70)},
            "second": {n: at for at, n in enumerate(second)},
        }

        def turned(key):
            def vector(text):
                angle = 0.02 * turns[key][int(text)] if text.isdigit() else 0.0
                return [math.cos(angle), math.sin(angle)]

            return vector

        docs = Document(
            folder({f"{n}.txt": str(n) for n in range(70)}),
            embed={key: turned(key) for key in ("first", "second")},
        )
        found = {
            node.text: node.score for node in Retriever(docs, LAZY_ROOT_NAME, topk=15)("query")
        }
        assert next(iter(found)) == "59"
        # 60th in one ranking, first in the other
        assert found["59"] == pytest.approx(1 / (60 + 60) + 1 / (60 + 1))
        # 61st in one, second in the other: with both shares it would be the second hit
        assert "60" not in found
        assert len(found) == 15

    def test_a_text_similarity_has_no_use_for_keys(self, docs):
        """bm25 with embed_keys is a contradiction, not ignored."""
        with pytest.raises(ConfigError, match="omit embed_keys"):
            Retriever(docs, LAZY_ROOT_NAME, "bm25", embed_keys=["words"])

    def test_vectors_are_made_only_for_keys_that_are_searched(self, folder):
        """The other embedding is not computed."""
        called = []
        docs = Document(
            folder({"a.txt": "tea"}),
            embed={"used": embed, "unused": lambda text: called.append(text) or [1.0]},
        )
        Retriever(docs, LAZY_ROOT_NAME, embed_keys=["used"])("tea")
        assert called == []


class TestSeveralDocuments:
    """Documents asked together."""

    @pytest.mark.slow
    def test_their_bm25_is_that_of_one_document_with_all_files(self, folder, tmp_path):
        """Two halves asked together give the scores and order of the whole: statistics are
        common.
        """
        texts = corpus(80, seed=2)
        whole = Document(folder(texts))
        halves = [
            Document(
                doc_files={name: folder(texts) / name for name in list(texts)[at::2]},
                name=f"half{at}",
            )
            for at in (0, 1)
        ]
        for similarity in ("bm25", "bm25_chinese"):
            for query in ("green tea", "春天 kettle", "harvest"):
                one = Retriever(whole, LAZY_ROOT_NAME, similarity, topk=15)(query)
                two = Retriever(halves, LAZY_ROOT_NAME, similarity, topk=15)(query)
                assert [(node.uid, node.score) for node in two] == [
                    (node.uid, node.score) for node in one
                ]
                assert len(one) == 15

    def test_topk_counts_over_all_of_them(self, folder):
        """Six nodes from three Documents, not eighteen."""
        position = folder({f"{n}.txt": "tea" for n in range(9)})
        docs = [Document(position, name=name) for name in "abc"]
        assert len(Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea")) == 6

    def test_equal_uids_of_two_documents_are_two_hits(self, folder):
        """The same relative name in two Documents is found in both, each with its own text."""
        first = Document(doc_files={"x.txt": folder({"1/x.txt": "green tea"}) / "1/x.txt"})
        second = Document(doc_files={"x.txt": folder({"2/x.txt": "black tea tea"}) / "2/x.txt"})
        found = Retriever([first, second], LAZY_ROOT_NAME, "bm25")("tea")
        assert {node.text for node in found} == {"green tea", "black tea tea"}

    def test_vectors_of_two_documents_are_ranked_together(self, folder):
        """Cosine hits of two Documents are sorted by score across them; the query is embedded
        once.
        """
        texts = corpus(30, seed=4)
        position = folder(texts)
        calls = []

        def counting(text):
            calls.append(text)
            return embed(text)

        halves = [
            Document(doc_files={n: position / n for n in list(texts)[at::2]}, embed=counting)
            for at in (0, 1)
        ]
        found = Retriever(halves, LAZY_ROOT_NAME, topk=20)("a question of its own")
        whole = Retriever(Document(position, embed=embed), LAZY_ROOT_NAME, topk=20)(
            "a question of its own"
        )
        assert [(node.uid, node.score) for node in found] == [
            (node.uid, node.score) for node in whole
        ]
        assert calls.count("a question of its own") == 1

    def test_a_document_without_the_group_contributes_nothing(self, folder):
        """It is not left out in silence: a warning names it, and so does the explanation. None with
        it is an error.
        """
        first, second = Document(folder({"a.txt": "tea"}), name="first"), Document(name="second")
        first.create_node_group("line", transform=str.splitlines)
        with pytest.warns(UserWarning, match="second"):
            retriever = Retriever([second, first], "line", "bm25")
        assert [node.text for node in retriever("tea")] == ["tea"]
        assert "second" in str(retriever.explain("tea"))
        with pytest.raises(NotRegisteredError, match="second"):
            Retriever([second, Document()], "line", "bm25")

    def test_different_embed_keys_are_an_error(self):
        """Documents that are searched together by embedding need the same keys."""
        with pytest.raises(ConfigError, match="different embed keys"):
            Retriever([Document(embed={"a": embed}), Document(embed={"b": embed})], "FineChunk")

    @pytest.mark.parametrize("doc", [[], None, "folder", [Document, "x"]])
    def test_something_else_than_documents_is_refused(self, doc):
        """A path, nothing or an empty list is no Document."""
        with pytest.raises(ConfigError, match="Document"):
            Retriever(doc, "FineChunk", "bm25")

    def test_the_same_document_twice_is_refused(self):
        """A Document counts once."""
        docs = Document()
        with pytest.raises(ConfigError, match="twice"):
            Retriever([docs, docs], "FineChunk", "bm25")

    def test_views_of_one_document_count_as_that_document(self):
        """A Document and its view, or two views of it, would count its nodes twice: they are
        refused.
        """
        docs = Document()
        text, pdf = docs.restricted({"file_type": ".txt"}), docs.restricted({"file_type": ".pdf"})
        for several in ([docs, text], [text, pdf], [text, Document(), text]):
            with pytest.raises(ConfigError, match="the same Document twice"):
                Retriever(several, "FineChunk", "bm25")
        assert Retriever([docs, Document()], "FineChunk", "bm25")("tea") == []

    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine", "own"])
    def test_ties_go_by_uid_then_by_the_documents_order(self, folder, similarity):
        """Equal texts under equal paths alternate between the Documents, whatever was built before
        in one of them.
        """
        register_similarity(lambda query, node: 1.0, name="own")
        position = folder({f"{n}.txt": "green tea" for n in range(5)})
        first, second = Document(position, embed=embed), Document(position, embed=embed)
        first.activate_group("CoarseChunk", "MediumChunk")
        Retriever(first, "CoarseChunk", "bm25")("tea")
        for pair in ([first, second], [second, first]):
            found = Retriever(pair, "FineChunk", similarity, topk=7)("tea")
            expected = [
                node
                for nodes in zip(*(docs.get_nodes("FineChunk") for docs in pair), strict=True)
                for node in nodes
            ]
            # a stable sort: the Documents keep their order
            expected.sort(key=lambda node: node.uid)
            assert found == expected[:7]
            assert len({node.score for node in found}) == 1


class TestFilters:
    """Filters narrow what is ranked and nothing else."""

    FIELDS = {
        "year": DocField(DataType.INT32),
        "author": DocField(DataType.VARCHAR, default_value="nobody"),
    }

    @pytest.fixture
    def docs(self, folder):
        """Fifty files with years 2000 to 2004; every seventh without one."""
        return Document(
            folder(corpus(50, seed=6)),
            embed=embed,
            doc_fields=self.FIELDS,
            file_metadata=lambda path: (
                None
                if int(path.stem) % 7 == 0
                else {"year": 2000 + int(path.stem) % 5, "author": f"A{path.stem}"}
            ),
        )

    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine"])
    def test_a_filtered_ranking_is_the_whole_one_without_the_others(self, docs, similarity):
        """Filtering changes no score and no order, and never shortens the result below topk while
        nodes are left.
        """
        query = "green tea spring 茶叶"
        every = Retriever(docs, LAZY_ROOT_NAME, similarity, topk=50)(query)
        wanted = [node for node in every if node.global_metadata.get("year") in (2001, 2003)]
        assert 6 < len(wanted) < len(every)
        found = Retriever(docs, LAZY_ROOT_NAME, similarity, topk=6)(
            query, filters={"year": [2001, 2003]}
        )
        assert [(node.uid, node.score) for node in found] == [
            (node.uid, node.score) for node in wanted[:6]
        ]

    def test_all_conditions_of_a_mapping_must_hold(self, docs):
        """Several fields are joined by AND, values of one by OR."""
        found = Retriever(docs, LAZY_ROOT_NAME, "cosine", topk=50)(
            "tea", filters={"year": [2001, 2002], "author": ["A001", "A002", "A003"]}
        )
        assert sorted(node.path for node in found) == ["001.txt", "002.txt"]

    def test_conditions_can_be_combined(self, docs):
        """Condition objects with and, or, not work as filters."""
        wanted = (Condition("year", ">=", 2003) | ~Condition("year", "exists")) & Condition(
            "author", "!=", "A003"
        )
        found = Retriever(docs, LAZY_ROOT_NAME, "cosine", topk=50)("tea", filters=wanted)
        expected = [f"{n:03d}.txt" for n in range(50) if (n % 7 == 0 or n % 5 >= 3) and n != 3]
        assert sorted(node.path for node in found) == expected

    def test_chunks_inherit_their_files_fields(self, docs):
        """A filter on a file's field narrows its chunks, too."""
        retriever = Retriever(docs, "FineChunk", "bm25", topk=50)
        every = {node.path for node in retriever("green tea")}
        wanted = {"004.txt", "011.txt", "026.txt"} & every
        assert 0 < len(wanted) < len(every)
        found = retriever("green tea", filters={"author": ["A004", "A011", "A026"]})
        assert {node.path for node in found} == wanted

    def test_an_unknown_field_names_the_nearest(self, docs):
        """Spec 001's slip, declared public_year and filtered publish_year, would be found out like
        this.
        """
        with pytest.raises(ConfigError, match="Did you mean 'year'"):
            Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea", filters={"yaer": [2001]})

    @pytest.mark.parametrize("value", ["2001", 2001.5, True, [2001, "x"], 2**40])
    def test_a_value_of_another_type_is_refused(self, docs, value):
        """A filter that could never match is an error, not an empty result."""
        with pytest.raises(ConfigError, match="'year' is INT32"):
            Retriever(docs, LAZY_ROOT_NAME, "bm25")("tea", filters={"year": value})

    def test_a_filter_that_nothing_meets_gives_an_empty_result(self, docs):
        """No node, no hit, no error."""
        for similarity in ("bm25", "cosine"):
            assert (
                Retriever(docs, LAZY_ROOT_NAME, similarity)("tea", filters={"year": [1900]}) == []
            )

    def test_an_empty_list_of_values_lets_nothing_through(self, docs):
        """{field: []} allows no value; {} is no filter."""
        retriever = Retriever(docs, LAZY_ROOT_NAME, "bm25")
        assert retriever("tea", filters={"year": []}) == []
        assert retriever("tea", filters={}) == retriever("tea")


class TestTarget:
    """Hits mapped to another group."""

    @pytest.fixture
    def docs(self, folder):
        """Blocks of lines of sentences."""
        docs = Document(
            folder({"a.txt": "tea。leaf tea。\n\ncup。cup。", "b.txt": "tea tea tea。\n\nwater。"})
        )
        docs.create_node_group("block", transform=lambda d: d.split("\n\n"))
        docs.create_node_group("sentence", transform=lambda b: b.split("。"), parent="block")
        return docs

    def test_up_it_names_each_ancestor_once_with_the_best_score(self, docs):
        """Sentences become blocks, in the order and with the score of their best sentence."""
        sentences = Retriever(docs, "sentence", "bm25")("tea")
        blocks = Retriever(docs, "sentence", "bm25", target="block")("tea")
        assert len(sentences) == 3
        assert [(node.path, node.number) for node in blocks] == [("b.txt", 1), ("a.txt", 1)]
        assert blocks[0].score == sentences[0].score
        assert blocks[1].score == max(node.score for node in sentences if node.path == "a.txt")

    def test_down_it_gives_all_descendants_in_order(self, docs):
        """A block becomes its sentences, which inherit the score."""
        found = Retriever(docs, "block", "bm25", target="sentence", topk=1)("leaf")
        assert [node.text for node in found] == ["tea", "leaf tea"]
        assert len({node.score for node in found}) == 1

    def test_the_root_can_be_the_target(self, docs):
        """target accepts both spellings of the root group."""
        for name in (LAZY_ROOT_NAME, "lazyllm-root"):
            found = Retriever(docs, "sentence", "bm25", target=name)("leaf")
            assert [(node.group, node.path) for node in found] == [(LAZY_ROOT_NAME, "a.txt")]

    def test_sideways_it_goes_through_the_common_ancestor(self, docs):
        """A sentence's FineChunk siblings are reached through the root of its document."""
        found = Retriever(docs, "sentence", "bm25", target="FineChunk")("leaf")
        assert {(node.group, node.path) for node in found} == {("FineChunk", "a.txt")}

    def test_each_document_maps_its_own_hits(self, folder):
        """With several Documents a hit is mapped within the one it comes from."""
        position = folder({"a.txt": "tea\ncup", "b.txt": "tea\nwater"})
        docs = [Document(doc_files=[position / name]) for name in ("a.txt", "b.txt")]
        for one in docs:
            one.create_node_group("line", transform=str.splitlines)
        found = Retriever(docs, "line", "bm25", target=LAZY_ROOT_NAME)("tea")
        assert {node.text for node in found} == {"tea\ncup", "tea\nwater"}

    def test_an_unknown_target_names_the_nearest(self, docs):
        """A misspelt target is refused when the Retriever is made."""
        with pytest.raises(NotRegisteredError, match="Did you mean 'block'"):
            Retriever(docs, "sentence", "bm25", target="blok")


class TestOutput:
    """output_format and join."""

    @pytest.fixture
    def docs(self, folder):
        """Two files."""
        return Document(folder({"a.txt": "green tea", "b.txt": "tea and tea"}))

    def test_content_gives_texts(self, docs):
        """The format content gives the nodes' texts in order, join one text."""
        assert Retriever(docs, LAZY_ROOT_NAME, "bm25", output_format="content")("tea") == [
            "tea and tea",
            "green tea",
        ]
        joined = Retriever(docs, LAZY_ROOT_NAME, "bm25", output_format="content", join=" | ")
        assert joined("tea") == "tea and tea | green tea"
        assert (
            Retriever(docs, LAZY_ROOT_NAME, "bm25", output_format="content", join=True)("none")
            == ""
        )

    def test_dict_gives_the_fields_of_a_hit(self, docs):
        """The format dict gives plain dicts with id, text, score, source, document_id, chunk_id and
        metadata.
        """
        [first, _] = Retriever(docs, LAZY_ROOT_NAME, "bm25", output_format="dict")("tea")
        assert set(first) == {
            "id",
            "text",
            "score",
            "source",
            "document_id",
            "chunk_id",
            "metadata",
        }
        assert (first["source"], first["metadata"]["file_name"]) == ("b.txt", "b.txt")

    @pytest.mark.parametrize(
        "wrong",
        [{"output_format": "text"}, {"join": True}, {"join": 3, "output_format": "content"}],
    )
    def test_a_form_that_makes_no_sense_is_refused(self, docs, wrong):
        """Unknown formats, and join without texts, are ConfigErrors."""
        with pytest.raises(ConfigError, match=r"output_format|join"):
            Retriever(docs, LAZY_ROOT_NAME, "bm25", **wrong)


class TestIndex:
    """The index parameter."""

    def test_the_vector_stores_own_search_is_the_same_on_map(self, folder):
        """smart_embedding_index and default agree where the store is exact."""
        docs = Document(folder(corpus(40)), embed=embed)
        answers = [
            [
                (node.uid, node.score)
                for node in Retriever(docs, LAZY_ROOT_NAME, index=index)("tea cup")
            ]
            for index in ("default", "smart_embedding_index")
        ]
        assert answers[0] == answers[1]
        assert len(answers[0]) == 6

    def test_an_unknown_index_names_the_nearest(self):
        """A misspelt index is refused."""
        with pytest.raises(NotRegisteredError, match="Did you mean 'default'"):
            Retriever(Document(), "FineChunk", "bm25", index="defualt")

    def test_a_text_similarity_searches_no_vector_index(self):
        """bm25 with smart_embedding_index is a contradiction."""
        with pytest.raises(ConfigError, match="smart_embedding_index"):
            Retriever(Document(), "FineChunk", "bm25", index="smart_embedding_index")

    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese"])
    def test_native_search_is_not_a_thing_of_the_map_store(self, similarity):
        """The question is refused, naming the store and what has such a search."""
        ask = Retriever(Document(), "FineChunk", similarity, index="native")
        with pytest.raises(
            UnsupportedError,
            match=r"MapSegmentStore has none\. Use index='exact', or .*'opensearch'",
        ):
            ask("tea 茶")

    def test_native_search_of_several_documents_has_no_common_order(self):
        """A server ranks each Document by its own statistics: asking several is refused, saying
        so.
        """
        with pytest.raises(
            ConfigError, match=r"2 Documents together.*scores do not compare\. Search one Document"
        ):
            Retriever([Document(), Document()], "FineChunk", "bm25", index="server")

    @pytest.mark.parametrize("given", [{"k1": 1.2}, {"b": 0.5}, {"variant": "okapi"}], ids=repr)
    def test_native_search_has_parameters_of_its_own(self, given):
        """Those of our BM25 are refused when the Retriever is made; its defaults are not."""
        with pytest.raises(ConfigError, match=r"index='server' takes no k1.*index='exact'"):
            Retriever(Document(), "FineChunk", "bm25", index="server", **given)
        assert Retriever(Document(), "FineChunk", "bm25", index="server", k1=1.5, b=0.75)

    def test_native_search_takes_an_analyser(self):
        """It decides which terms the server is asked for, and is no parameter of the ranking."""
        assert Retriever(Document(), "FineChunk", "bm25", index="native", analyser="zh") is not None

    def test_native_search_is_by_terms(self):
        """A function of one's own is refused when the Retriever is made."""

        @register_similarity(mode="text", batch=False)
        def shared_letters(query, node):
            return len(set(query) & set(node.get_text()))

        with pytest.raises(ConfigError, match=r"'shared_letters' does not\. Use 'bm25'"):
            Retriever(Document(), "FineChunk", "shared_letters", index="server")


@given(query=st.text(max_size=60))
def test_any_text_can_be_asked(query):
    """No query, however odd, raises or returns more than topk nodes."""
    for similarity in ("bm25", "bm25_chinese"):
        found = Retriever(_SMALL, "FineChunk", similarity, topk=3)(query)
        assert len(found) <= 3
        assert all(node.score > 0 for node in found)


_SMALL = Document()


@pytest.fixture(autouse=True, scope="module")
def _small(tmp_path_factory):
    """One Document for the property test."""
    global _SMALL  # noqa: PLW0603  hypothesis takes no function-scoped fixtures
    position = tmp_path_factory.mktemp("small")
    for name, text in corpus(20).items():
        (position / name).write_text(text, encoding="utf-8")
    _SMALL = Document(position)
