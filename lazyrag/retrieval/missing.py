"""Why a node is not among those that a `Retriever` gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lazyrag.data.filters import And, Condition, Filter, Not, Or, matches
from lazyrag.data.segment import Segment
from lazyrag.retrieval.asking import Asked, merged
from lazyrag.retrieval.search import Question, TermSearch, TextSearch, VectorSearch
from lazyrag.retrieval.stages import Cause, Reason
from lazyrag.typing import Fields

_TERMS_SHOWN = 12


def missing(asked: Asked, embed_key: str | None, uid: str) -> Reason:
    """Why a node is not among those of a ranking; it belongs into the read in which the ranking was made.

    What cannot be seen through a restricted view does not exist for it.

    Args:
        asked: The question.
        embed_key: Of the ranking.
        uid: Of a node that the ranking did not give.
    """
    return _Missing(asked, embed_key, uid).reason()


@dataclass(frozen=True, slots=True)
class _Missing:
    """See `missing`."""

    asked: Asked
    embed_key: str | None
    uid: str

    def reason(self) -> Reason:
        """The first of all reasons that holds."""
        asked = self.asked
        if not asked.query.strip():
            return self._told("query", "The query is blank, and finds nothing.")
        held = [(number, one) for number, reader in enumerate(asked.readers) for one in reader.held(self.uid)]
        if not held:
            where = "the Document" if len(asked.readers) == 1 else "the Documents"
            return self._told("unknown", f"There is no node {self.uid!r} in {where}.")
        group, target = asked.plan.group, asked.plan.target
        own = [(number, one) for number, one in held if one.group == group]
        if not own and target in [one.group for _, one in held]:
            own = asked.leading(self.uid)
            if not own:
                return self._told(
                    "group", f"It is of the target group {target!r}, and no node of {group!r} leads to it."
                )
            reason = self._of(own)
            return replace(reason, told=not_led(group, len(own), reason.told))
        if not own:
            told = f"It is a node of the group {held[0][1].group!r}, and this retriever searches {group!r}."
            return self._told("group", told)
        return self._of(own)

    def _of(self, own: Sequence[tuple[int, Segment]]) -> Reason:
        """Why none of some nodes of the searched group was given: the best reason."""
        filters = self.asked.filters
        left = [(number, one) for number, one in own if _satisfies(filters[number], one)]
        if left:
            return self._too_low(left) or self._unranked(left)
        number, one = own[-1]
        wanted = filters[number]
        told = "The filter excludes it." if wanted is None else excluded(wanted, one.fields)
        return Reason(self.uid, "filter", told, cause="filter")

    def _told(self, cause: Cause, told: str, rank: int | None = None, score: float | None = None) -> Reason:
        return Reason(self.uid, self.asked.name_of(self.embed_key), told, rank, score, cause=cause)

    def _too_low(self, own: Sequence[tuple[int, Segment]]) -> Reason | None:
        """The node's place in the ranking of all nodes; None if it has none."""
        asked, plan = self.asked, self.asked.plan
        search, exact = plan.search, ""
        if isinstance(search, VectorSearch) and search.way != "exact":
            search, exact = replace(search, way="exact"), " in the exact ranking"
        everything = max([asked.depth, *(reader.size(plan.group) for reader in asked.readers)])
        question = Question(
            asked.query, plan.group, asked.readers, asked.filters, everything, self.embed_key, plan.query_vectors
        )
        ranking = merged(search.rank(question), plan.similarity)
        keys = {(number, one.key) for number, one in own}
        at = next((at for at, ((_, number, key), _) in enumerate(ranking) if (number, key) in keys), None)
        if at is None:
            return None
        rank, score = at + 1, ranking[at][1]
        if plan.is_cut(self.embed_key, score):
            told = f"Its score {score:.4g} is worse than similarity_cut_off={plan.cut_off_of(self.embed_key):.4g}."
            return Reason(self.uid, "similarity_cut_off", told, rank, score, cause="cut-off")
        if rank <= asked.depth:
            told = f"Its rank is {rank}{exact}, and the search that was asked for missed it: index='default' does not."
        else:
            told = f"Its rank is {rank} of {len(ranking)}{exact}, and {asked.depth} were asked for."
        return self._told("depth", told, rank, score)

    def _unranked(self, own: Sequence[tuple[int, Segment]]) -> Reason:
        """Why a node has no place in the ranking of all nodes."""
        asked, search = self.asked, self.asked.plan.search
        if isinstance(search, (TermSearch, TextSearch)):
            terms = list(dict.fromkeys(search.terms(asked.query)))
            named = ", ".join(map(repr, terms[:_TERMS_SHOWN])) + (", ..." if len(terms) > _TERMS_SHOWN else "")
            if not terms:
                return self._told("query", "The query has no terms that could be looked for.")
            return self._told("terms", f"It shares no term with the query, whose terms are {named}.")
        if self.embed_key is not None and not any(
            self.embed_key in asked.readers[number].embeddings(one) for number, one in own
        ):
            return self._told("embedding", f"It has no embedding under the key {self.embed_key!r}.")
        if isinstance(search, VectorSearch):
            return self._told("terms", "Its vector shares no dimension with the query's.")
        return self._told("terms", f"The similarity {asked.plan.similarity.name!r} gave it no score.")


def not_led(group: str, count: int, told: str) -> str:
    """Why a node of a target group was not reached, of the reason why the best node that leads there was not given.

    Example:
        >>> not_led("line", 2, "Its rank is 3 of 9, and 1 were asked for.")
        "No hit of 'line' leads to it. Of the best of the 2 nodes that would: its rank is 3 of 9, and 1 were asked for."
    """
    which = "the only node" if count == 1 else f"the best of the {count} nodes"
    return f"No hit of {group!r} leads to it. Of {which} that would: {told[:1].lower()}{told[1:]}"


def _satisfies(wanted: Filter | None, one: Segment) -> bool:
    return wanted is None or matches(wanted, one.fields)


def excluded(wanted: Filter, fields: Fields) -> str:
    """Which condition of a filter excludes a node, and what the node has there instead.

    Args:
        wanted: A bound filter that the fields do not satisfy.
        fields: The node's.

    Example:
        >>> excluded(And(Condition("year", "gt", 2000), Condition("author", "eq", "A")), {"year": 2004, "author": "B"})
        "The filter author == 'A' excludes it: its author is 'B'."
    """
    while isinstance(wanted, And):
        wanted = next(part for part in wanted.filters if not matches(part, fields))
    names = list(dict.fromkeys(_names(wanted)))
    has = [
        f"its {name} is {_shown(fields[name])}" if fields.get(name) is not None else f"it has no {name}"
        for name in names
    ]
    return f"The filter {filter_text(wanted)} excludes it{': ' if has else ''}{', '.join(has)}."


_SIGNS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def filter_text(wanted: Filter) -> str:
    """A filter as people write it.

    Example:
        >>> filter_text(Condition("year", "in", [2003, 2004]) & ~Condition("author", "exists"))
        'year in [2003, 2004] and not (author exists)'
    """
    if isinstance(wanted, Condition):
        if wanted.op == "exists":
            return f"{wanted.field} exists" if wanted.value else f"{wanted.field} is missing"
        return f"{wanted.field} {_SIGNS.get(wanted.op, wanted.op)} {_shown(wanted.value)}"
    if isinstance(wanted, Not):
        return f"not ({filter_text(wanted.filter)})"
    if not wanted.filters:
        return "everything" if isinstance(wanted, And) else "nothing"
    word = " and " if isinstance(wanted, And) else " or "
    parts = [
        f"({filter_text(part)})" if isinstance(part, (And, Or)) and len(wanted.filters) > 1 else filter_text(part)
        for part in wanted.filters
    ]
    return word.join(parts)


def _shown(value: object) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


def _names(wanted: Filter) -> Iterator[str]:
    """The fields that a filter looks at."""
    if isinstance(wanted, Condition):
        yield wanted.field
    else:
        for part in (wanted.filter,) if isinstance(wanted, Not) else wanted.filters:
            yield from _names(part)
