r"""Spec 004's rules: a declarative way to write a tree of parents and children.

rule = Rule(Segmentation(500, 50), parent_mode="paragraph", subchunk_segmentation=Segmentation(100, 0, "\n"))
groups = rule.create_groups(docs, "part")
Retriever(docs, groups.child, target=groups.parent)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, overload

from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, Span
from lazyrag.errors import ConfigError, UnknownKeywordError, known_names
from lazyrag.text.structure import Cleaned, extra_spaces, web_addresses
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform
from lazyrag.transforms.splitters import RecursiveSplitter
from lazyrag.validation import known_arguments, known_keywords, whole_number, yes_or_no

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


MIN_TOKENS, MAX_TOKENS = 50, 2000
"""The bounds of `Segmentation.max_tokens`."""


class ParentMode(str, enum.Enum):
    """What children are answered from (spec 004).

    Both spellings of a value are understood, and its name: ``ParentMode("FULL_DOC") is ParentMode("full-doc")``.
    """

    PARAGRAPH = "paragraph"
    """Parents are parts of the document."""
    FULL_DOC = "full-doc"
    """The one parent is the document."""

    @classmethod
    def _missing_(cls, value: object) -> ParentMode:
        told = value.strip().lower().replace("_", "-") if isinstance(value, str) else value
        for mode in cls:
            if mode.value == told:
                return mode
        msg = f"parent_mode is {value!r}. {known_names(str(value), [mode.value for mode in cls])}"
        raise ConfigError(msg)


@known_arguments
@dataclass(frozen=True, slots=True)
class Segmentation:
    r"""How text is cut into chunks (spec 004).

    Args:
        max_tokens: Most tokens of a chunk, from 50 to 2000.
        chunk_overlap: Most tokens that two neighbours share, from 0 to half of max_tokens.
        separator: Where text may be cut, if that gives chunks of at most that size; not empty. What stands between two
            of them and is too long is cut at line ends and sentences.

    Raises:
        ConfigError: If a value is out of its range. It is a `ValueError`, as spec 004 says.

    Example:
        >>> Segmentation(500, 50).separator
        '\n\n'
    """

    max_tokens: int
    chunk_overlap: int = 0
    separator: str = "\n\n"

    def __post_init__(self) -> None:
        whole_number("max_tokens", self.max_tokens, MIN_TOKENS, MAX_TOKENS)
        whole_number("chunk_overlap (at most half of max_tokens)", self.chunk_overlap, 0, self.max_tokens // 2)
        if not isinstance(self.separator, str) or not self.separator:
            msg = f"separator is {self.separator!r}; give a text that is not empty, such as '\\n\\n'."
            raise ConfigError(msg)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Segmentation:
        r"""A segmentation from JSON, in this spelling or Dify's.

        Args:
            values: ``max_tokens`` (or ``max_length``), ``chunk_overlap`` (0 if it is left out) and ``separator`` (or
                ``delimiter``), in which ``\n`` and ``\t`` may be spelt out, as people type them.

        Raises:
            ConfigError: If a name is unknown or given twice, or a value out of its range.

        Example:
            >>> Segmentation.from_dict({"delimiter": "\\n", "max_length": 500})
            Segmentation(max_tokens=500, chunk_overlap=0, separator='\n')
        """
        known = known_values("A segmentation", values, {**_SAME, **dict.fromkeys(cls.__slots__)})
        if "max_tokens" not in known:
            msg = f"A segmentation needs max_tokens, from {MIN_TOKENS} to {MAX_TOKENS}: {dict(values)!r:.80}."
            raise ConfigError(msg)
        separator = known.get("separator")
        if isinstance(separator, str):
            known["separator"] = separator.replace("\\n", "\n").replace("\\t", "\t")
        return cls(**{name: value for name, value in known.items() if value is not None})

    def splitter(self, counter: TokenCounter | str = "utf8") -> RecursiveSplitter:
        """The transform that cuts so."""
        separators = (self.separator,) if self.separator == "\n" else (self.separator, "\n")
        return RecursiveSplitter(separators, self.max_tokens, self.chunk_overlap, counter=counter)


_SAME: Mapping[str, str | None] = {"max_length": "max_tokens", "delimiter": "separator"}


class RuleGroup(NamedTuple):
    """A node group that a rule writes.

    Args:
        name: Its name.
        transform: Its transform.
        parent: The group it is made of.
    """

    name: str
    transform: NodeTransform
    parent: str


class RuleGroups(NamedTuple):
    """Names of the groups of a rule: ``Retriever(docs, groups.child, target=groups.parent)``.

    Args:
        parent: What is answered from.
        child: What is searched; the same one where the rule makes no children.
    """

    parent: str
    child: str


class GroupOwner(Protocol):
    """What groups can be defined on: a Document."""

    @property
    def create_node_group(self) -> Callable[..., None]:
        """Define a group by name, transform and parent."""


@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Rule:
    r"""How documents are cleaned and cut (spec 004): small pieces to be found, their parents to be read.

    Args:
        segmentation: How parents are cut; of no use where the parent is the whole document.
        pre_processing_rules: What is removed before that; see `PreProcessingRules`.
        parent_mode: A `ParentMode` or its value.
        subchunk_segmentation: How each parent is cut into children; None makes none.
        counter: What counts tokens: a TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is of the wrong kind or out of its range. It is a `ValueError`, as spec 004 says.

    Example:
        >>> rule = Rule(Segmentation(500, 50), subchunk_segmentation=Segmentation(100, 0, "\n"))
        >>> [(group.name, group.parent) for group in rule.groups("part")]
        [('part', 'lazyllm_root'), ('part-child', 'part')]
    """

    segmentation: Segmentation | None
    pre_processing_rules: PreProcessingRules
    parent_mode: ParentMode
    subchunk_segmentation: Segmentation | None
    counter: TokenCounter | str

    def __init__(
        self,
        segmentation: Segmentation | Mapping[str, Any] | None = None,
        pre_processing_rules: RulesLike | None = None,
        parent_mode: ParentMode | str = ParentMode.PARAGRAPH,
        subchunk_segmentation: Segmentation | Mapping[str, Any] | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        given = pre_processing_rules
        values = {
            "segmentation": _segmentation("segmentation", segmentation),
            "pre_processing_rules": given if isinstance(given, PreProcessingRules) else PreProcessingRules(given or ()),
            "parent_mode": ParentMode(parent_mode),
            "subchunk_segmentation": _segmentation("subchunk_segmentation", subchunk_segmentation),
            "counter": counter,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        RecursiveSplitter(counter=counter)  # refuses what is no counter

    @classmethod
    def automatic(cls) -> Rule:
        """Dify's automatic mode: chunks of 500 tokens with 50 of overlap, cut at line ends, without extra spaces."""
        return cls(Segmentation(500, 50, "\n"), ["remove_extra_spaces"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rule:
        r"""A rule from JSON, in this spelling or Dify's.

        Args:
            values: The arguments of a Rule by name; or such a mapping under ``"rules"``, beside a ``"mode"``:
                ``"automatic"``, ``"custom"`` or ``"hierarchical"``. What Dify says of its ``"limits"`` is passed over.

        Raises:
            ConfigError: If a name or a value is unknown or out of its range, or the rules do not fit the mode.

        Example:
            >>> rules = {"parent_mode": "full-doc", "subchunk_segmentation": {"separator": "\n", "max_tokens": 200}}
            >>> Rule.from_dict({"mode": "hierarchical", "rules": rules}).parent_mode.name
            'FULL_DOC'
        """
        mode = None
        if isinstance(values, Mapping) and "mode" in values:
            known = known_values("A process rule", values, dict.fromkeys(("mode", "rules", "limits")))
            mode, rules = known["mode"], known.get("rules") or {}
            if mode not in _MODES:
                msg = f"The mode of a process rule is {mode!r}. {known_names(str(mode), _MODES)}"
                raise ConfigError(msg)
            if mode == "automatic" and not rules:
                return cls.automatic()
            values = rules
        given = known_values("A rule", values, dict.fromkeys(one for one in cls.__slots__ if one != "counter"))
        rule = cls(**{name: value for name, value in given.items() if value is not None})
        needed = "subchunk_segmentation" if mode == "hierarchical" else "segmentation" if mode is not None else None
        if needed is not None and getattr(rule, needed) is None:
            msg = f"A process rule of mode {mode!r} needs {needed}, with max_tokens and a separator."
            raise ConfigError(msg)
        return rule

    def groups(self, name: str = "part") -> tuple[RuleGroup, ...]:
        """The node groups that the rule writes, parents first.

        Args:
            name: Of the parents' group; the children's is called ``f"{name}-child"``.

        Raises:
            ConfigError: If it is not said how parents, or the children of whole documents, are cut.
        """
        whole = self.parent_mode is ParentMode.FULL_DOC
        if whole and self.subchunk_segmentation is None:
            msg = "A rule whose parents are whole documents needs subchunk_segmentation=, to cut them into children."
            raise ConfigError(msg)
        if not whole and self.segmentation is None:
            msg = "A rule whose parents are paragraphs needs segmentation=, such as Segmentation(500, 50)."
            raise ConfigError(msg)
        splitter = None if whole or self.segmentation is None else self.segmentation.splitter(self.counter)
        parents = RuleGroup(name, RuleParents(self.pre_processing_rules, splitter), LAZY_ROOT_NAME)
        if self.subchunk_segmentation is None:
            return (parents,)
        return parents, RuleGroup(f"{name}-child", self.subchunk_segmentation.splitter(self.counter), name)

    @known_keywords
    def create_groups(self, docs: GroupOwner | type[Any], name: str = "part", *, replace: bool = False) -> RuleGroups:
        """Define the rule's groups on a Document, or on the class for all of them.

        Args:
            docs: The Document.
            name: See `groups`.
            replace: Take the place of other definitions of these names.

        Returns:
            The names of both groups.

        Raises:
            ConfigError: If ``docs`` is no Document; see `groups`.
            AlreadyRegisteredError: If a name is taken by another definition and ``replace`` is false.

        Example:
            >>> from lazyrag import Document
            >>> Rule(Segmentation(500), subchunk_segmentation=Segmentation(100)).create_groups(Document(), "part")
            RuleGroups(parent='part', child='part-child')
        """
        if not callable(getattr(docs, "create_node_group", None)):
            msg = f"create_groups got {docs!r:.80} for docs; give a Document, or the class."
            raise ConfigError(msg)
        groups = self.groups(name)
        for group in groups:
            docs.create_node_group(group.name, group.transform, group.parent, replace=yes_or_no("replace", replace))
        return RuleGroups(groups[0].name, groups[-1].name)


_MODES = ("automatic", "custom", "hierarchical")


class RuleParents(NodeTransform):
    """Whole documents into the parents of a rule: cleaned, then cut, or left whole.

    A parent has a span where it stands in the document as it is; one from which something was removed has none.

    Args:
        rules: What is removed.
        splitter: Cuts what is left; None leaves it whole.
    """

    reads_text_only = True

    def __init__(self, rules: PreProcessingRules, splitter: RecursiveSplitter | None) -> None:
        self.rules = rules
        self.splitter = splitter
        if type(self) is RuleParents:
            cut = None if splitter is None else splitter.identity
            self.identity = f"RuleParents/1 removed={rules.enabled!r} cut={cut!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The parents of a document's text."""
        cleaned = self.rules.cleaned(node.get_text())
        spans = [(0, len(cleaned.text))] if self.splitter is None else self.splitter.split(cleaned.text)
        for start, end in spans:
            text = cleaned.text[start:end]
            if text and not text.isspace():
                yield DocNode(text=text, span=cleaned.span(start, end))


def _segmentation(what: str, given: Segmentation | Mapping[str, Any] | None) -> Segmentation | None:
    if given is None or isinstance(given, Segmentation):
        return given
    if isinstance(given, Mapping):
        return Segmentation.from_dict(given)
    msg = f"{what} is {given!r:.80}; give a Segmentation, such as Segmentation(500, 50)."
    raise ConfigError(msg)
