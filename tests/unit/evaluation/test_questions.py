"""Golden questions without labels: inverse cloze, and questions of a chat model."""

from __future__ import annotations

import json

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.evaluation import judge, read_golden, write_questions

PLANTS = "oolong sencha matcha pu-erh assam darjeeling keemun gunpowder".split()
STEPS = "withering rolling firing sorting packing".split()
TEXTS = {
    plant: " ".join(
        f"In the {step} room the {plant} rests for {at + 2} hours on shelf {plant[0]}{at}."
        for at, step in enumerate(STEPS)
    )
    for plant in PLANTS
} | {
    "绿茶": "采茶工清晨上山采摘嫩芽和叶片。绿茶杀青的温度大约是二百八十度。揉捻之后还要在竹匾上摊凉两个小时。"
}


@pytest.fixture(scope="module")
def docs():
    """Nine texts."""
    docs = Document()
    docs.add_texts(TEXTS)
    return docs


def test_sentences_are_cut_out_and_what_was_around_them_is_found(docs, tmp_path):
    """In English and Chinese; most of these sentences lead back to their text. The same seed gives
    the same file.
    """
    path = write_questions(docs, tmp_path / "one", count=20)
    golden = read_golden(path)
    kept = {one.name: one.read_text("utf-8") for one in (tmp_path / "one" / "texts").iterdir()}
    assert len(golden.questions) == len(TEXTS)  # one a text: two would stand side by side
    for one in golden.questions:
        assert not any(one.question in text for text in kept.values())
        assert any(one.question in text for text in TEXTS.values())
    report = judge(golden)
    found = {one.measure: one.value for one in report.verdicts}
    assert found["span_success@5"] > 0.8
    with Document(golden.documents) as written:
        nothing = Retriever(written, "FineChunk", topk=1, similarity=lambda query, node: 0.0)
        worse = judge(golden, written, nothing)
    assert report.compared_with(worse)["span_success@5"].difference > 0
    again = write_questions(docs, tmp_path / "two", count=20)
    assert again.read_bytes() == path.read_bytes()
    assert (
        len(read_golden(write_questions(docs, tmp_path / "three", count=3, seed=1)).questions) == 3
    )


def test_a_model_writes_questions(docs, tmp_path):
    """About passages that stay where they are; an answer twice, or none, is left out."""
    prompts = []

    def model(prompt):
        prompts.append(prompt)
        return "" if len(prompts) == 1 else f"What about {len(prompts) // 2}?"

    path = write_questions(docs, tmp_path / "model", count=5, model=model)
    questions = json.loads(path.read_text("utf-8"))["questions"]
    assert [one["question"] for one in questions] == ["What about 1?", "What about 2?"]
    assert len(prompts) == 5
    assert all(any(one["texts"][0]["text"] in text for text in TEXTS.values()) for one in questions)
    assert judge(read_golden(path)).questions


def test_what_cannot_be_done_is_an_error(docs, tmp_path):
    """A folder with something in it, texts without three sentences, no count."""
    with pytest.raises(ConfigError, match="must be empty"):
        write_questions(docs, write_questions(docs, tmp_path / "full").parent)
    short = Document()
    short.add_texts({"a": "Too short."})
    with pytest.raises(ConfigError, match="no sentence to ask"):
        write_questions(short, tmp_path / "short")
    with pytest.raises(ConfigError, match="count"):
        write_questions(docs, tmp_path / "none", count=0)
