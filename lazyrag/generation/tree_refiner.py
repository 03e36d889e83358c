"""`TreeRefiner`: the best parts of texts by their own structure, whole sections where they fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, known_names
from lazyrag.generation.extractive import cut, scores_of
from lazyrag.generation.refine import as_counter
from lazyrag.models.protocol import RerankModel
from lazyrag.models.rerank import RerankCallable
from lazyrag.ranking.scores import min_max
from lazyrag.text.analyzers import term_function
from lazyrag.text.sentences import sentence_spans, spoken
from lazyrag.text.structure import markdown_headings
from lazyrag.text.tokens import TokenCounter
from lazyrag.validation import whole_number

_HEADING_WEIGHT = 0.5
_TOP = 0
_UNDERLINE = re.compile(r"\A {0,3}(?:=+|-+)[ \t]*(?:\n|\Z)")  # of a heading in the line above


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    r"""A part of a text with the parts it is made of.

    Args:
        text: Its words, those of its parts among them.
        title: Its heading; "" for none.
        parts: What it is made of, in order.

    Example:
        >>> [part.title for part in part_of_text("# Tea\n\nGreen.\n\n# Coffee\n\nBlack.").parts]
        ['Tea', 'Coffee']
    """

    text: str
    title: str = ""
    parts: tuple[Part, ...] = ()


def part_of_text(text: str, title: str = "") -> Part:
    """The tree of a text: sections under Markdown headings, paragraphs, sentences.

    Example:
        >>> [part.text for part in part_of_text("Green tea. Black tea.").parts]
        ['Green tea.', 'Black tea.']
    """
    headings = list(markdown_headings(text))
    first = headings[0].start if headings else len(text)
    parts = list(_paragraphs(text[:first]))
    if headings:
        level = min(heading.level for heading in headings)
        starts = [heading for heading in headings if heading.level == level]
        if starts[0].start > first:  # deeper sections before the first of this level
            parts += part_of_text(text[first : starts[0].start]).parts
        ends = [*(heading.start for heading in starts[1:]), len(text)]
        for heading, end in zip(starts, ends, strict=True):
            parts.append(_section(text[heading.start : end], heading.title))
    return Part(text.strip(), title, tuple(parts) if len(parts) > 1 else parts[0].parts if parts else ())


def _section(text: str, title: str) -> Part:
    body = _UNDERLINE.sub("", text.partition("\n")[2], count=1)
    return Part(text.strip(), title, part_of_text(body).parts or ((Part(body.strip()),) if body.strip() else ()))


def _paragraphs(text: str) -> Iterator[Part]:
    for paragraph in text.split("\n\n"):
        if stripped := paragraph.strip():
            sentences = [sentence for span in sentence_spans(stripped) if (sentence := stripped[slice(*span)].strip())]
            yield Part(stripped, "", tuple(map(Part, sentences)) if len(sentences) > 1 else ())


def part_of_node(node: DocNode, *groups: str) -> Part:
    """The tree of a node, by its children in these node groups, from the top down.

    Args:
        node: The whole.
        groups: Names of node groups, each made of the one before; without one the node is a leaf.

    Raises:
        ConfigError: If a group is not made of the one before, or nothing has asked for it yet.

    Example:
        >>> part_of_node(DocNode(text="Green tea.")).parts
        ()
    """
    children = node.children if groups else {}
    if groups and groups[0] not in children:
        msg = (
            f"No node group {groups[0]!r:.60} is made of {node.group!r}, or nothing has asked for it yet: "
            f"docs.activate_group({groups[0]!r:.60}). {known_names(groups[0], children)}"
        )
        raise ConfigError(msg)
    below = children[groups[0]] if groups else []
    title = node.metadata.get("title")
    return Part(
        node.text, title if isinstance(title, str) else "", tuple(part_of_node(one, *groups[1:]) for one in below)
    )


class TreeRefiner:
    r"""Chooses parts of trees for a question, within a budget of tokens.

    Leaves are scored, a part is as good as its parts on average, and all scores are brought to [0, 1]. A part gains
    by the share of the question's terms that stand in its own heading. The best one that fits is taken first, a part
    takes the place of what was already taken of it if that fits, and what does not fit is passed over. No part is taken
    together with one that it is made of.

    Args:
        model: Scores the leaves: a `RerankModel` or a callable ``(query, documents=[...], top_n=n)``; None: BM25.
        heading_weight: What a heading that has all of the question's terms adds, at least 0.

    Source:
        After LongRefiner (Jin et al.: Hierarchical Document Refinement for Long-context Retrieval-augmented Generation,
        arXiv:2505.10413), with a text's own structure instead of one written by a model.

    Example:
        >>> from lazyrag.text.tokens import token_counters
        >>> tree = part_of_text("# Tea\n\nGreen tea is hot.\n\n# Hills\n\nThey are steep. They are far.")
        >>> TreeRefiner().refine("How hot is tea?", [tree], budget=10, counter=token_counters["utf8"])
        ['# Tea\n\nGreen tea is hot.']
    """

    def __init__(
        self, model: RerankModel | RerankCallable | None = None, *, heading_weight: float = _HEADING_WEIGHT
    ) -> None:
        self.model = model
        self.heading_weight = heading_weight

    def refine(self, query: str, trees: Sequence[Part], *, budget: int, counter: TokenCounter | str) -> list[str]:
        """What is chosen of each tree, its parts in order, on lines of their own.

        Args:
            query: What the parts are to answer.
            trees: Of `part_of_text` or `part_of_node`.
            budget: Tokens at most, at least 1.
            counter: Counts them; the name of a registered counter, or an object with ``name`` and ``count(text)``.

        Returns:
            One text for each tree, "" where nothing is chosen. Their tokens together are at most the budget.

        Raises:
            ConfigError: If an argument is not of its kind.
            GenerationError: If the model has no score for a part.
        """
        whole_number("budget", budget, 1)
        counter = as_counter(counter)
        if isinstance(trees, str) or not all(isinstance(one, Part) for one in trees):
            msg = f"trees is {trees!r:.60}; give a list of trees: [part_of_text(text)] or [part_of_node(node, group)]."
            raise ConfigError(msg)
        chosen = self.choose(query, trees, budget=budget, counter=counter)
        if not any(chosen):
            return self._cut(query, trees, budget, counter)
        return ["\n".join(part.text for part in parts) for parts in chosen]

    def choose(self, query: str, trees: Sequence[Part], *, budget: int, counter: TokenCounter) -> list[list[Part]]:
        """The parts that are taken of each tree, in order; none contains another."""
        rows = [row for number, tree in enumerate(trees) for row in _rows(tree, number)]
        scores = self._scores(query, rows)
        taken: list[list[int]] = [[] for _ in trees]
        tokens = [0] * len(trees)
        for at in sorted(range(len(rows)), key=lambda one: (-scores[one], one)):
            row = rows[at]
            own = taken[row.tree]
            if not row.part.text.strip() or any(rows[one].first <= row.first < rows[one].last for one in own):
                continue  # something that it is part of is there
            first = at - row.first
            kept = [one for one in own if not at <= one < first + row.last]
            tried = sorted([*kept, at])
            count = counter.count("\n".join(rows[one].part.text for one in tried))
            if sum(tokens) - tokens[row.tree] + count <= budget:
                taken[row.tree], tokens[row.tree] = tried, count
        return [[rows[one].part for one in own] for own in taken]

    def _scores(self, query: str, rows: Sequence[_Row]) -> list[float]:
        leaves = [at for at, row in enumerate(rows) if not row.part.parts]
        found = dict(zip(leaves, scores_of(query, [rows[at].part.text for at in leaves], self.model), strict=True))
        scores: dict[int, float] = {}
        for at in reversed(range(len(rows))):  # what a part is made of stands behind it
            below = [scores[at + 1 + one] for one in rows[at].steps]
            scores[at] = math.fsum(below) / len(below) if below else found[at]
        terms_of = term_function(spoken("auto", query))
        asked = {*terms_of(query)}
        common = dict(min_max(list(scores.items())))
        titled = [len(asked & {*terms_of(row.part.title)}) / max(1, len(asked)) for row in rows]
        return [common[at] + self.heading_weight * titled[at] for at in range(len(rows))]

    def _cut(self, query: str, trees: Sequence[Part], budget: int, counter: TokenCounter) -> list[str]:
        """The beginning of the best leaf, where no part fits."""
        rows = [row for number, tree in enumerate(trees) for row in _rows(tree, number) if not row.part.parts]
        scores = scores_of(query, [row.part.text for row in rows], self.model)
        best = max(range(len(rows)), key=lambda at: (bool(rows[at].part.text.strip()), scores[at], -at), default=None)
        kept = [""] * len(trees)
        if best is not None:
            kept[rows[best].tree] = cut(rows[best].part.text, budget, counter)
        return kept


@dataclass(frozen=True, slots=True)
class _Row:
    """A part in a list of its tree, parents first: it and all below it stand at [first, last) of the tree's list."""

    part: Part
    tree: int
    first: int
    last: int
    steps: tuple[int, ...]  # from the row behind it to each of its parts


def _rows(part: Part, tree: int, first: int = _TOP) -> list[_Row]:
    below: list[_Row] = []
    steps = []
    for one in part.parts:
        steps.append(len(below))
        below += _rows(one, tree, first + 1 + len(below))
    return [_Row(part, tree, first, first + 1 + len(below), tuple(steps)), *below]


def refine_by_parts(
    query: str,
    texts: Sequence[str],
    *,
    budget: int,
    counter: TokenCounter,
    model: RerankModel | RerankCallable | None = None,
    heading_weight: float = _HEADING_WEIGHT,
) -> list[str]:
    """A `TreeRefiner` over texts, each by its headings, paragraphs and sentences."""
    refiner = TreeRefiner(model, heading_weight=heading_weight)
    return refiner.refine(query, [part_of_text(text) for text in texts], budget=budget, counter=counter)
