"""What chat models say when they judge and rank: thoughts, scales, lists, words that only look like a verdict."""

from __future__ import annotations

import math
import time

import pytest

from lazyrag import PointwiseRerankModel
from lazyrag.errors import AnswerWarning
from lazyrag.models.protocols import ChatChoice, TokenLogprob
from lazyrag.models.rerank import read_permutation, read_probability, read_score, read_verdict


@pytest.mark.parametrize(
    "text",
    [
        *("非常相关", "不仅相关，而且完整", "毫无疑问，是", "没错", "没错，是", "不错，是", "当然", "是非题：是"),
        *("是的，文中提到绿茶不宜久存。", "相关性：高", "Relevance: high", "No doubt: yes", "Yes/No: Yes"),
        *("Is it relevant? Yes", "Yes, it says that tea does not keep.", '{"relevant": true, "why": "no coffee"}'),
        *("答案是：是", "我的回答是肯定的。", "判斷：相關", "沒錯", '{"relevant": 1, "why": "not told"}'),
        *('{"reason": "no coffee", "relevant": true}', "It does not only speak of tea. Answer: Yes"),
    ],
)
def test_a_yes_is_read_beside_words_that_look_like_a_no(text):
    """Fixed words, questions and what stands behind a verdict change nothing about it."""
    assert read_verdict(text) is True


@pytest.mark.parametrize(
    "text",
    [
        *("对不起，无法判断。", "对于这个问题，该段落没有给出答案。", "该段落是关于咖啡的，不相关。", "相关性低"),
        *("可能不相关", "不完全相关", "该段落讨论的是咖啡，与绿茶无关。", "相关性：低", "能否回答？不能。"),
        *("该段落讨论相关内容。结论：不能回答", "Is the passage relevant? No.", "Yes and no", "Absolutely not."),
        *("答案是否定的。", "判断为不相关", "對不起，無法判斷。", '{"relevant": 0}', "該段落與綠茶無關"),
        *("Yes, but it is not relevant.", "Relevance: low"),
    ],
)
def test_a_no_is_read_beside_words_that_look_like_a_yes(text):
    """是, 对, 有 and 能 within a sentence are no verdict, and a negation in the sentence that decides wins."""
    assert read_verdict(text) is False


class TestThoughts:
    """Nothing is read in them, whichever of their tags is there."""

    def test_what_comes_behind_them_counts(self):
        """Also where the opening tag stands in the prompt, or a thought comes later."""
        assert read_verdict("Hmm, yes maybe...\n</think>\n\nNo") is False
        assert read_verdict("Well. <think>No, no.</think> Yes") is True
        assert read_score("I think that 3 facts match.</think>\n8", 10) == 0.8
        assert read_permutation("[1] > [2]?</think>[2] > [1]", 2) == [1, 0]

    @pytest.mark.parametrize("text", ["<think>Yes, it has 8 of them", "Hm. <think>[8], yes", "<think>" * 14_000])
    def test_one_that_was_cut_is_no_answer(self, text):
        """It counts as unreadable, with a warning."""
        assert read_verdict(text) is None
        assert read_score(text, 10) is None
        assert read_permutation(text, 9) == []
        with pytest.warns(AnswerWarning, match="1 of 1 answers"):
            assert PointwiseRerankModel(lambda _: text)("tea?", ["tea"]) == [(0, 0.0)]

    @pytest.mark.parametrize("text", ["No", "<think>No, wait</think>No"])
    def test_their_words_tell_no_probability(self, text):
        """The first no of the thought was all but impossible, that of the answer nearly sure."""
        words = [("<think>", 0.0), ("No", -9.0), (" wait", -1.0), ("</think>", 0.0), ("No", math.log(0.9))]
        choice = ChatChoice(text, logprobs=tuple(TokenLogprob(*word) for word in words))
        assert read_probability(choice) == pytest.approx(0.05)

    def test_thoughts_without_tags_tell_no_probability_either(self):
        """Some servers take the tags out of the text and leave the thought's words among the tokens."""
        words = [("Yes", -5.0), (" maybe", -1.0), ("Yes", math.log(0.8))]
        choice = ChatChoice("Yes", logprobs=tuple(TokenLogprob(*word) for word in words))
        assert read_probability(choice) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        *(("Score (0-10): 8", 0.8), ("评分（0-10）：8", 0.8), ("0-10: 7", 0.7), ("我给8分，满分10分", 0.8)),
        *(("I give it 7 on a scale from 0 to 10", 0.7), ("The score is between 0 and 10: 6", 0.6)),
        *(("满分10分，我给8分", 0.8), ("分数是8分（满分10分）", 0.8), ('{"score": 8, "max": 10}', 0.8)),
        *(
            ("滿分10分，評分：7", 0.7),
            ("0到10分中，我给7分", 0.7),
            ("On a scale of 1-5: 4", 0.8),
            ("Scale 0-100: 70%", 0.7),
            ("0-10", None),
        ),
    ],
)
def test_a_scale_is_no_score(text, score):
    """It is taken out before the score is read, and says what the score is a part of."""
    assert read_score(text, 10) == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("text", "order"),
    [
        *(("1. Passage 3\n2. Passage 1\n3. Passage 2", [2, 0, 1]), ("1) 3\n2) 1\n3) 2", [2, 0, 1])),
        *(("| rank | passage |\n|---|---|\n| 1 | 3 |\n| 2 | 1 |\n| 3 | 2 |", [2, 0, 1]), ("1、3\n2、1", [2, 0])),
        *(("The order:\n\n1. **[3]** has 2 of 3\n2. **[1]**\n", [2, 0]), ("1: 3\n2: 1\n3: 2", [2, 0, 1])),
        *(("The passages 1, 2, 3 in order: [3] > [1]", [2, 0]), ("[3] > [1] = [2]", [2, 0, 1])),
        *(("第3段 > 第1段 > 第2段，共1、2、3段", [2, 0, 1]), ("Passage 3 > Passage 1 (of 1, 2, 3)", [2, 0])),
        *(
            ("1. Passage 3\n2. Passage 1\n\nWhy:\n1. Passage 3 is it.\n2. Passage 1 is near.", [2, 0]),
            ("1. Passage 2", [1]),
        ),
        *(('{\n "1": 3,\n "2": 1\n}', [2, 0]), ("2. tea\n1. coffee", [1, 0])),
    ],
)
def test_ranks_before_passages_are_no_passages(text, order):
    """Numbered lists and tables give their passages in the order of the lines; ``>`` comes before commas."""
    assert read_permutation(text, 3) == order


@pytest.mark.parametrize(
    "piece", ["<think>", "1. ", "1", "1,", "[ ", "no ", "不", " ", "1.1", "relevant:", "1\n", "yes?"]
)
def test_long_answers_are_read_in_time(piece):
    """99,000 characters of one piece after the other take well under a second."""
    text = piece * (99_000 // len(piece))
    started = time.perf_counter()
    read_verdict(text)
    read_score(text, 10)
    read_permutation(text, 9)
    assert time.perf_counter() - started < 2
