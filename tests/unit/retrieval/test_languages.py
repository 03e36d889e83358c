"""A multilingual model, and questions whose answers are in another language."""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag import Document, HybridRetriever, Retriever
from lazyrag.types import Vector

TOPICS = range(20)
QUESTION = "哪份文献提到过往 7 次的事情？"


def multilingual(text: str) -> Vector:
    """As such a model: texts of one language are near each other, and less so those of a topic,
    which is the number in them.
    """
    number = int("".join(filter(str.isdigit, text)))
    is_english = "number" in text
    meaning = np.eye(41)[number]
    meaning[40] = -2.0 if is_english else 2.0
    return meaning.astype(np.float32)


def texts_of_both() -> dict[str, str]:
    """Twenty English texts, and as many Chinese ones about other topics."""
    english = {f"en{n}": f"The history of the valley and number {n}" for n in TOPICS}
    return english | {f"zh{n}": f"关于山谷的历史，第{n + 20}章的内容" for n in TOPICS}


@pytest.fixture
def docs() -> Document:
    """A Document with texts in both languages."""
    document = Document(embed=multilingual)
    document.add_texts(texts_of_both())
    return document


def test_a_question_finds_texts_in_another_language(docs: Document) -> None:
    """The answer in English comes before all Chinese texts, which vectors alone have nearer."""
    question = QUESTION
    assert Retriever(docs, "FineChunk", topk=20)(question)[-1].path.startswith("zh")
    hybrid = HybridRetriever.over(docs, "FineChunk")
    assert hybrid(question)[0].path == "en7"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (
            "Das Tal und die Jahre, Teil {}: später werden aber mehr Dörfer zwischen",
            "Welches Schriftstück behandelt die Angelegenheit 7?",
        ),
        (
            "El valle y los años, parte {}: además puede tener entre tres y más aldeas",
            "¿Qué documento trata el asunto 7?",
        ),
        ("หุบเขาและการเดินทางที่ {} ของความทรงจำ", "เอกสารใดกล่าวถึงเรื่อง 7"),
    ],
)
def test_questions_of_other_languages_find_english_texts(text: str, question: str) -> None:
    """Also in the letters of English, without accents, and in a script without spaces."""
    docs = Document(embed=multilingual)
    english = {f"en{n}": f"The history of the valley and number {n}" for n in TOPICS}
    docs.add_texts(english | {f"own{n}": text.format(n + 20) for n in TOPICS})
    assert Retriever(docs, "FineChunk", topk=20)(question)[-1].path.startswith("own")
    assert HybridRetriever.over(docs, "FineChunk")(question)[0].path == "en7"


def test_a_question_finds_texts_in_its_language(docs: Document) -> None:
    """Chinese texts stay first where they answer."""
    assert HybridRetriever.over(docs, "FineChunk")("山谷的历史，第27章")[0].path == "zh7"


def test_explain_says_what_was_compared(docs: Document) -> None:
    """The stage of the vectors says it, the keywords are names, and their weight is smaller."""
    stages = HybridRetriever.over(docs, "FineChunk").explain(QUESTION).stages
    assert stages[1].settings["query"] == "7"
    assert stages[2].settings["weights"] == [0.6, 0.05]
    assert stages[0].settings["compared"] == "across languages"


def test_english_questions_are_as_before(docs: Document) -> None:
    """They are compared as they are."""
    stages = HybridRetriever.over(docs, "FineChunk").explain("The history, number 7").stages
    assert "compared" not in stages[0].settings


def test_hidden_texts_of_a_language_change_nothing(docs: Document) -> None:
    """A restricted view ranks as a Document of what it shows: here without any English text."""
    shown = {path: text for path, text in texts_of_both().items() if path.startswith("zh")}
    alone = Document(embed=multilingual)
    alone.add_texts(shown)
    view = docs.restricted({"file_name": list(shown)})
    question = QUESTION
    results = [
        [(node.path, node.score) for node in HybridRetriever.over(some, "FineChunk")(question)]
        for some in (view, alone)
    ]
    assert results[0] == results[1]


def test_removed_texts_no_longer_count(docs: Document) -> None:
    """The means follow additions and removals."""
    hybrid = HybridRetriever.over(docs, "FineChunk")
    assert hybrid(QUESTION)
    docs.delete_files([f"en{n}" for n in TOPICS])
    settings = hybrid.explain(QUESTION).stages[0].settings
    assert "compared" not in settings
