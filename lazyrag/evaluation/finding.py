"""Where words stand: in documents, to know their spans; in what was found, to know whether it answers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lazyrag.errors import ConfigError, nearest
from lazyrag.evaluation.spans import SourceSpan
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.validation import text_list, whole_number

_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD_EDGE = re.compile(r"[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Texts:
    r"""The whole texts of documents, in which labels are looked up.

    Args:
        by_path: By path, the text of the root node.

    Example:
        >>> Texts({"tea.txt": "Pick it.\nDry it."}).only_place("it. Dry", "", line=3)
        SourceSpan(path='tea.txt', start=5, end=12)
    """

    by_path: Mapping[str, str]

    def span(self, path: str, start: int | None, end: int | None, line: int) -> SourceSpan:
        """A span that lies within a document; the whole document without start and end.

        Raises:
            ConfigError: If there is no such document, or it ends before; the message begins with the line.
        """
        text = self._text(path, line)
        if start is None or end is None:
            return SourceSpan(path, 0, len(text))
        if end > len(text):
            msg = f"line {line}: The span ends at {end}, and {path!r} has {len(text)} characters. Count anew."
            raise ConfigError(msg)
        return SourceSpan(path, start, end)

    def only_place(self, words: str, path: str, line: int) -> SourceSpan:
        """The one place in which words stand, where white space between them may be any.

        Args:
            words: As they stand in a document.
            path: In which document; "" where they stand in one only.
            line: For messages.

        Raises:
            ConfigError: If they stand nowhere, or in several places; the message begins with the line.
        """
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())))
        searched = {path: self._text(path, line)} if path else self.by_path
        found = [SourceSpan(name, *match.span()) for name, text in searched.items() for match in pattern.finditer(text)]
        if len(found) == 1:
            return found[0]
        where = repr(path) if path else "the documents"
        if not found:
            msg = f"line {line}: The text {words!r:.60} does not stand in {where}. Copy it as it stands there."
        else:
            paths = ", ".join(sorted({one.path for one in found})[:3])
            msg = (
                f"line {line}: The text {words!r:.60} stands in {len(found)} places ({paths}). Give a longer one, or "
                "its path."
            )
        raise ConfigError(msg)

    def _text(self, path: str, line: int) -> str:
        if path not in self.by_path:
            near = nearest(path, self.by_path)
            meant = f"Did you mean {near!r}?" if near else "Give the path relative to the documents' folder."
            msg = f"line {line}: None of the {len(self.by_path)} documents is named {path!r}. {meant}"
            raise ConfigError(msg)
        return self.by_path[path]


def has_answer(texts: Sequence[str], references: Sequence[str], k: int | None = None) -> float:
    """Whether one of the first k texts contains one of the answers: 1 or 0.

    Both are compared case-folded and in compatibility form (NFKC). White space counts as one space, between Chinese
    letters not at all. An answer that begins or ends with a Latin letter or digit must begin or end a word.

    Args:
        texts: What was found, best first.
        references: Answers, any of which will do.
        k: How many of the texts count; None: all of them.

    Raises:
        ConfigError: If the answers are no list of texts, or one of them is blank.

    Source:
        The answer recall of retrievers: Karpukhin et al.: Dense Passage Retrieval, EMNLP 2020,
        doi:10.18653/v1/2020.emnlp-main.550.

    Example:
        >>> has_answer(["Steep at 80 degrees."], ["80 Degrees"]), has_answer(["Steep for 180 s."], ["80"])
        (1.0, 0.0)
    """
    answers = text_list("references", references)
    first = texts if k is None else texts[: whole_number("k", k, 1)]
    patterns = [_pattern(_normal(reference)) for reference in answers]
    return float(any(pattern.search(text) for text in map(_normal, first) for pattern in patterns))


def _normal(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return re.sub(rf"(?<=[{CJK_LETTERS}]) | (?=[{CJK_LETTERS}])", "", folded) if _CJK.search(folded) else folded


def _pattern(answer: str) -> re.Pattern[str]:
    before = r"(?<![a-z0-9])" if _WORD_EDGE.match(answer) else ""
    behind = r"(?![a-z0-9])" if _WORD_EDGE.match(answer[-1:]) else ""
    return re.compile(before + re.escape(answer) + behind)
