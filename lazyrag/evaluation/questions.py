"""Golden questions without labels: by inverse cloze, or written by a chat model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyrag.data.segment import Span
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.evaluation.golden import LocationLabel
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocols import ChatModel
from lazyrag.text.sentences import sentence_spans
from lazyrag.types import PathLike
from lazyrag.validation import validate_integer

_LETTERS = 12, 300  # of a sentence that is asked
_APART = 4  # sentences between two that are asked, so that the text around each stays
_PROMPT = (
    "Write one question that this passage answers, in the passage's language and in other words"
    " than its own. Return the question alone.\n\n{passage}"
)


def write_questions(
    docs: Document,
    folder: PathLike,
    count: int = 100,
    *,
    model: ChatModel | ChatCallable | None = None,
    seed: int = 0,
) -> Path:
    """Write a golden file of generated questions, to compare configurations where nobody has judged
    any.

    Without a model by inverse cloze: sentences are cut out of the documents; each is a question,
    and the text around its cut must be found. A model writes a question about three sentences,
    which must be found. Values of such questions compare two configurations on the same documents;
    they do not predict those of real questions.

    Args:
        docs: The documents. Their texts are copied into the folder, without what was cut out.
        folder: An empty folder, or a new one.
        count: At most so many questions, at least 1.
        model: A chat model, or a function from prompt to answer; one call for each question.
        seed: The same seed chooses the same sentences.

    Returns:
        The golden file, for `read_golden` and ``lazyrag eval``.

    Raises:
        ConfigError: If the folder is not empty, or the documents have no sentence to ask.
        GenerationError: If the model fails.

    Source:
        Lee, Chang, Toutanova: Latent Retrieval for Weakly Supervised Open Domain Question
            Answering, ACL 2019,
        doi:10.18653/v1/P19-1612 (inverse cloze).

    Example:
        >>> import tempfile
        >>> docs = Document()
        >>> text = "Tea grows on hills. Pick the leaves in April. Dry them on a tray."
        >>> _ = docs.add_texts({"tea": text})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     questions = json.loads(write_questions(docs, folder).read_text())["questions"]
        >>> questions[0]["question"], questions[0]["texts"][0]["text"]
        ('Pick the leaves in April.', 'Tea grows on hills. Dry them on a tray.')
    """
    validate_integer("count", count, 1)
    texts = Path(folder) / "texts"
    if Path(folder).exists() and any(Path(folder).iterdir()):
        raise ConfigError(f"The folder {str(folder)!r} must be empty. Pass a new one.")
    documents = [node.text for node in docs.get_nodes()]
    picked = _picked([sentence_spans(text) for text in documents], documents, count, seed)
    write = None if model is None else _writer(model)
    questions = []
    texts.mkdir(parents=True, exist_ok=True)
    written = set()
    for number, text in enumerate(documents):
        path = f"{number:05d}.txt"
        places = [place for place in picked if place.document == number]
        remainder = text if write else _without(text, places)
        (texts / path).write_text(remainder, encoding="utf-8")
        for place in places:
            passage, question = place.question(text, write)
            if question and question not in written and _is_found(passage, path, remainder):
                written.add(question)
                questions.append(
                    {"question": question, "texts": [{"text": passage.strip(), "path": path}]}
                )
    if not questions:
        raise ConfigError(
            "The documents have no sentence to ask: texts of three sentences and more are needed."
        )
    golden = {
        "documents": "texts",
        "retriever": {"method": "full_text_search", "group": "FineChunk", "topk": 10},
        "questions": questions,
        "thresholds": {"span_MRR": 0.01, "span_success@1": 0.01, "span_success@5": 0.01},
    }
    file = Path(folder) / "golden.json"
    file.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return file


@dataclass(frozen=True, slots=True)
class _Place:
    """A sentence of a document, with the one before and the one after it, as positions in its
    text.
    """

    document: int
    before: int
    start: int
    end: int
    after: int

    def around(self, text: str) -> str:
        """The two sentences beside it, as they stand when it is cut out."""
        return text[self.before : self.start] + text[self.end : self.after]

    def question(self, text: str, write: Callable[[str], str] | None) -> tuple[str, str]:
        """The passage that answers, and the question: a model's, or the sentence cut out of it."""
        if write is None:
            return self.around(text), text[self.start : self.end].strip()
        passage = text[self.before : self.after]
        return passage, write(passage).strip()


def _picked(
    spans: Sequence[list[Span]], texts: Sequence[str], count: int, seed: int
) -> list[_Place]:
    """Sentences of all documents, drawn, in the order of the texts."""
    places = list(_places(spans, texts))
    random.Random(seed).shuffle(places)  # noqa: S311
    taken: dict[int, set[int]] = {}
    picked: list[_Place] = []
    for at, place in places:
        near = taken.setdefault(place.document, set())
        if len(picked) < count and not near.intersection(range(at - _APART, at + _APART + 1)):
            near.add(at)
            picked.append(place)
    return sorted(picked, key=lambda place: (place.document, place.start))


def _places(spans: Sequence[list[Span]], texts: Sequence[str]) -> Iterator[tuple[int, _Place]]:
    for number, sentences in enumerate(spans):
        for at in range(1, len(sentences) - 1):
            start, end = sentences[at]
            if _LETTERS[0] <= sum(map(str.isalnum, texts[number][start:end])) <= _LETTERS[1]:
                yield at, _Place(number, sentences[at - 1][0], start, end, sentences[at + 1][1])


def _without(text: str, places: Sequence[_Place]) -> str:
    for place in reversed(places):
        text = text[: place.start] + text[place.end :]
    return text


def _is_found(passage: str, path: str, text: str) -> bool:
    """Whether a passage is in a text, and only once."""
    try:
        LocationLabel(path, passage.strip() or "\0", None, None, 0).locate({path: text})
    except ConfigError:
        return False
    return True


def _writer(model: ChatModel | ChatCallable) -> Callable[[str], str]:
    chat = as_chat_model(model)
    return lambda passage: chat.chat(_PROMPT.format(passage=passage.strip())).text
