"""What is removed from text before it is cut (spec 004)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, overload

from lazyrag.data.segment import Span
from lazyrag.errors import ConfigError, UnknownKeywordError, known_names
from lazyrag.text.structure import Cleaned, extra_spaces, web_addresses
from lazyrag.validation import yes_or_no

_REMOVERS: Mapping[str, Callable[[str], list[Span]]] = {
    "remove_urls_emails": web_addresses,  # before the spaces, as it leaves some
    "remove_extra_spaces": extra_spaces,
}
_RULE_IDS = (*_REMOVERS, "remove_stopwords")


class PreProcessingRule(NamedTuple):
    """One of `PreProcessingRules`.

    Args:
        id: ``"remove_extra_spaces"`` or ``"remove_urls_emails"``.
        enabled: Whether it is done.
    """

    id: str
    enabled: bool = True


RulesLike = Sequence["PreProcessingRule | Mapping[str, Any] | str"]


class PreProcessingRules(Sequence[PreProcessingRule]):
    """What is removed from text before it is cut (spec 004).

    ``"remove_extra_spaces"``: all but one of several empty lines, all but the first of several spaces.
    ``"remove_urls_emails"``: addresses; of a Markdown link its text stays, images stay. Addresses go first, whatever
    the order.

    Args:
        rules: Ids, or mappings ``{"id": ..., "enabled": ...}``.

    Raises:
        ConfigError: If a rule is unknown, or is ``"remove_stopwords"``: without "not" a sentence says the contrary, and
            the indexes of terms leave such words out anyway.

    Example:
        >>> PreProcessingRules(["remove_urls_emails", "remove_extra_spaces"]).apply("Write to  me@tea.org today")
        'Write to today'
    """

    __slots__ = ("rules",)

    def __init__(self, rules: RulesLike = ()) -> None:
        if isinstance(rules, (str, Mapping)) or not isinstance(rules, Sequence):
            msg = f"Pre-processing rules are {rules!r:.80}; give a list, such as ['remove_extra_spaces']."
            raise ConfigError(msg)
        self.rules = tuple(_one_rule(one) for one in rules)

    def apply(self, text: str) -> str:
        """The text without what the enabled rules remove."""
        return self.cleaned(text).text

    def cleaned(self, text: str) -> Cleaned:
        """The same, with where what is left stood."""
        cleaned = Cleaned(text)
        for name in self.enabled:
            cleaned = cleaned.without(_REMOVERS[name](cleaned.text))
        return cleaned

    @property
    def enabled(self) -> tuple[str, ...]:
        """Ids of the rules that are done, in the order in which they are."""
        wanted = {rule.id for rule in self.rules if rule.enabled}
        return tuple(name for name in _REMOVERS if name in wanted)

    @overload
    def __getitem__(self, index: int) -> PreProcessingRule: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PreProcessingRule, ...]: ...
    def __getitem__(self, index: int | slice) -> PreProcessingRule | tuple[PreProcessingRule, ...]:
        return self.rules[index]

    def __len__(self) -> int:
        return len(self.rules)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):  # as spec 004 has it
            try:
                other = PreProcessingRules(other)
            except ConfigError:
                return False
        return isinstance(other, PreProcessingRules) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def __repr__(self) -> str:
        return f"PreProcessingRules({[one.id if one.enabled else one._asdict() for one in self.rules]})"


def _one_rule(given: PreProcessingRule | Mapping[str, Any] | str) -> PreProcessingRule:
    if isinstance(given, Mapping):
        values = known_values("A pre-processing rule", given, {"id": None, "enabled": None})
        rule = PreProcessingRule(values.get("id", ""), yes_or_no("enabled", values.get("enabled", True)))
    else:
        rule = PreProcessingRule(given) if isinstance(given, str) else given
    if not isinstance(rule, PreProcessingRule) or rule.id not in _RULE_IDS:
        told = rule.id if isinstance(rule, PreProcessingRule) else rule
        msg = f"There is no pre-processing rule {told!r}. {known_names(str(told), tuple(_REMOVERS))}"
        raise ConfigError(msg)
    if rule.enabled and rule.id not in _REMOVERS:
        msg = (
            "The pre-processing rule 'remove_stopwords' is not done: without 'not' a sentence says the contrary, and "
            "bm25 leaves such words out anyway. Leave it out, or give it enabled=False."
        )
        raise ConfigError(msg)
    return rule


def known_values(what: str, values: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    """Values by the names that they have here.

    Args:
        what: What has them, for messages.
        values: The values as they came.
        names: Names that are allowed, with what they are called here, None for the same.
    """
    if not isinstance(values, Mapping):
        msg = f"{what} is {values!r:.80}; give a mapping of names to values."
        raise ConfigError(msg)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in names:
            msg = f"{what} has no {name!r}. {known_names(str(name), [*names])}"
            raise UnknownKeywordError(msg)
        own = names[name] or name
        if own in found:
            msg = f"{what} has {own} twice, under two names: {dict(values)!r:.80}."
            raise ConfigError(msg)
        found[own] = value
    return found
