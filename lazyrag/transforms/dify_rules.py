r"""Rules of spec 004: declare how documents are cleaned and split into parents and children.

rule = Rule(Segmentation(500, 50), parent_mode="paragraph", subchunk_segmentation=Segmentation(100,
0, "\n")) groups = rule.create_groups(docs, "part")
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
from lazyrag.transforms.splitters import RecursiveSplitter, chunks
from lazyrag.types import JsonMapping, JsonObject
from lazyrag.validation import (
    known_arguments,
    known_keywords,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    without_none,
)

_REMOVERS: Mapping[str, Callable[[str], list[Span]]] = {
    "remove_urls_emails": web_addresses,  # before the spaces, as it leaves some
    "remove_extra_spaces": extra_spaces,
}
_RULE_IDS = (*_REMOVERS, "remove_stopwords")


class PreProcessingRule(NamedTuple):
    """One of `PreProcessingRules`.

    Args:
        id: ``"remove_extra_spaces"`` or ``"remove_urls_emails"``.
        enabled: Whether to apply it.
    """

    id: str
    enabled: bool = True


RulesLike = Sequence["PreProcessingRule | JsonMapping | str"]


class PreProcessingRules(Sequence[PreProcessingRule]):
    """Cleaning of text before it is split (spec 004).

    ``"remove_extra_spaces"`` removes repeated empty lines and repeated spaces.
    ``"remove_urls_emails"`` removes addresses, always first; the text of a Markdown link and images
    stay.

    Args:
        rules: Ids, or mappings ``{"id": ..., "enabled": ...}``.

    Raises:
        ConfigError: If a rule is unknown, or is ``"remove_stopwords"``: without "not" a sentence
            means the opposite, and keyword search ignores such words anyway.

    Example:
        >>> rules = PreProcessingRules(["remove_urls_emails", "remove_extra_spaces"])
        >>> rules.apply("Write to  me@tea.org today")
        'Write to today'
    """

    __slots__ = ("rules",)

    def __init__(self, rules: RulesLike = ()) -> None:
        is_list = isinstance(rules, Sequence) and not isinstance(rules, str)
        require(is_list, "Pre-processing rules", rules, "a list, such as ['remove_extra_spaces']")
        self.rules = tuple(_one_rule(rule) for rule in rules)

    def apply(self, text: str) -> str:
        """Return the cleaned text."""
        return self.cleaned(text).text

    def cleaned(self, text: str) -> Cleaned:
        """Return the cleaned text with its spans in the original."""
        cleaned = Cleaned(text)
        for name in self.enabled:
            cleaned = cleaned.without(_REMOVERS[name](cleaned.text))
        return cleaned

    @property
    def enabled(self) -> tuple[str, ...]:
        """Ids of the enabled rules, in the order in which they are applied."""
        enabled = {rule.id for rule in self.rules if rule.enabled}
        return tuple(name for name in _REMOVERS if name in enabled)

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
        rules = [rule.id if rule.enabled else rule._asdict() for rule in self.rules]
        return f"PreProcessingRules({rules})"


def _one_rule(rule_like: PreProcessingRule | JsonMapping | str) -> PreProcessingRule:
    if isinstance(rule_like, Mapping):
        values = known_values("A pre-processing rule", rule_like, {"id": None, "enabled": None})
        rule = PreProcessingRule(
            values.get("id", ""), validate_boolean("enabled", values.get("enabled", True))
        )
    else:
        rule = PreProcessingRule(rule_like) if isinstance(rule_like, str) else rule_like
    if not isinstance(rule, PreProcessingRule) or rule.id not in _RULE_IDS:
        name = rule.id if isinstance(rule, PreProcessingRule) else rule
        raise ConfigError(
            f"Unknown pre-processing rule {name!r}. {known_names(str(name), _REMOVERS)}"
        )
    if rule.enabled and rule.id not in _REMOVERS:
        raise ConfigError(
            "The pre-processing rule 'remove_stopwords' is not supported: without 'not' a sentence"
            " means the opposite, and bm25 ignores such words anyway. Leave it out, or pass"
            " enabled=False."
        )
    return rule


def known_values(subject: str, values: JsonMapping, names: Mapping[str, str | None]) -> JsonObject:
    """Rename the values of a mapping.

    Args:
        subject: The mapping, for messages.
        values: The values.
        names: Allowed names, each with its name in lazyrag; None for the same.
    """
    require(isinstance(values, Mapping), subject, values, "a mapping of names to values")
    renamed = {}
    for name, value in values.items():
        if name not in names:
            raise UnknownKeywordError(f"{subject} has no {name!r}. {known_names(str(name), names)}")
        new_name = names[name] or name
        if new_name in renamed:
            raise ConfigError(f"{subject} has {new_name} under two names: {dict(values)!r:.80}.")
        renamed[new_name] = value
    return renamed


MIN_TOKENS = 50
MAX_TOKENS = 2000
"""The bounds of `Segmentation.max_tokens`."""


class ParentMode(str, enum.Enum):
    """Parents of the chunks that are searched (spec 004).

    Accepts a value with hyphen or underscore, in any case: ``ParentMode("FULL_DOC")
    is ParentMode("full-doc")``.
    """

    PARAGRAPH = "paragraph"
    """Parents are parts of a document."""
    FULL_DOC = "full-doc"
    """The whole document is the parent."""

    @classmethod
    def _missing_(cls, value: object) -> ParentMode:
        name = value.strip().lower().replace("_", "-") if isinstance(value, str) else value
        for mode in cls:
            if mode.value == name:
                return mode
        raise ConfigError(
            f"Unknown parent_mode {value!r}."
            f" {known_names(str(value), [mode.value for mode in cls])}"
        )


@known_arguments
@dataclass(frozen=True, slots=True)
class Segmentation:
    r"""Settings of a splitter (spec 004).

    Args:
        max_tokens: Maximum tokens of a chunk, from 50 to 2000.
        chunk_overlap: Maximum tokens that two neighbours share, from 0 to half of max_tokens.
        separator: Preferred place to split, not empty. A piece that is too long is split at line
            ends and sentences.

    Raises:
        ConfigError: If an argument is invalid. It is a `ValueError`, as spec 004 says.

    Example:
        >>> Segmentation(500, 50).separator
        '\n\n'
    """

    max_tokens: int
    chunk_overlap: int = 0
    separator: str = "\n\n"

    def __post_init__(self) -> None:
        tokens = f"between {MIN_TOKENS} and {MAX_TOKENS}"  # the sentences of the specification
        validate_integer("max_tokens", self.max_tokens, MIN_TOKENS, MAX_TOKENS, tokens)
        most = self.max_tokens // 2
        validate_integer(
            "chunk_overlap", self.chunk_overlap, 0, most, "between 0 and max_tokens * 0.5"
        )
        is_valid = isinstance(self.separator, str) and self.separator != ""
        require(is_valid, "separator", self.separator, "a string that is not empty")

    @classmethod
    def from_dict(cls, values: JsonMapping) -> Segmentation:
        r"""Create a segmentation from JSON, with the names of lazyrag or Dify.

        Args:
            values: ``max_tokens`` (or ``max_length``), ``chunk_overlap`` (0 by default) and
                ``separator`` (or ``delimiter``), in which ``\n`` and ``\t`` may be escaped, as
                people type them.

        Raises:
            ConfigError: If a name is unknown or repeated, or a value is invalid.

        Example:
            >>> Segmentation.from_dict({"delimiter": "\\n", "max_length": 500})
            Segmentation(max_tokens=500, chunk_overlap=0, separator='\n')
        """
        values_by_name = known_values(
            "A segmentation", values, {**_SAME, **dict.fromkeys(cls.__slots__)}
        )
        if "max_tokens" not in values_by_name:
            raise ConfigError(f"A segmentation needs max_tokens; got {dict(values)!r:.80}.")
        separator = values_by_name.get("separator")
        if isinstance(separator, str):
            values_by_name["separator"] = separator.replace("\\n", "\n").replace("\\t", "\t")
        return cls(**without_none(values_by_name))

    def splitter(self, counter: TokenCounter | str = "utf8") -> RecursiveSplitter:
        """Create the splitter."""
        separators = (self.separator,) if self.separator == "\n" else (self.separator, "\n")
        return RecursiveSplitter(separators, self.max_tokens, self.chunk_overlap, counter=counter)


_SAME: Mapping[str, str | None] = {"max_length": "max_tokens", "delimiter": "separator"}


class RuleGroup(NamedTuple):
    """A node group of a rule.

    Args:
        name: Its name.
        transform: Its transform.
        parent: Name of its parent group.
    """

    name: str
    transform: NodeTransform
    parent: str


class RuleGroups(NamedTuple):
    """Names of the groups of a rule, for ``Retriever(docs, groups.child, target=groups.parent)``.

    Args:
        parent: Group whose nodes are returned.
        child: Group that is searched; the same if the rule has no children.
    """

    parent: str
    child: str


class GroupOwner(Protocol):
    """Object on which groups can be defined: a Document."""

    @property
    def create_node_group(self) -> Callable[..., None]:
        """Define a group by name, transform and parent."""


@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Rule:
    r"""How documents are cleaned and split (spec 004): small chunks for search, their parents as
    results.

    Args:
        segmentation: How to split documents into parents; unused if the parent is the whole
            document.
        pre_processing_rules: Cleaning before that; see `PreProcessingRules`.
        parent_mode: A `ParentMode` or its value.
        subchunk_segmentation: How to split parents into children; None for no children.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid. It is a `ValueError`, as spec 004 says.

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
        segmentation: Segmentation | JsonMapping | None = None,
        pre_processing_rules: RulesLike | None = None,
        parent_mode: ParentMode | str = ParentMode.PARAGRAPH,
        subchunk_segmentation: Segmentation | JsonMapping | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        rules = pre_processing_rules
        if not isinstance(rules, PreProcessingRules):
            rules = PreProcessingRules(rules or ())
        values = {
            "segmentation": _segmentation("segmentation", segmentation),
            "pre_processing_rules": rules,
            "parent_mode": ParentMode(parent_mode),
            "subchunk_segmentation": _segmentation("subchunk_segmentation", subchunk_segmentation),
            "counter": counter,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        RecursiveSplitter(counter=counter)  # validates the counter

    @classmethod
    def automatic(cls) -> Rule:
        """Create the rule of Dify's automatic mode: 500 tokens, overlap 50, split at line ends, no
        extra spaces.
        """
        return cls(Segmentation(500, 50, "\n"), ["remove_extra_spaces"])

    @classmethod
    def from_dict(cls, values: JsonMapping) -> Rule:
        r"""Create a rule from JSON, with the names of lazyrag or Dify.

        Args:
            values: The arguments of a Rule by name; or such a mapping under ``"rules"``, beside a
                ``"mode"``: ``"automatic"``, ``"custom"`` or ``"hierarchical"``. Dify's ``"limits"``
                are ignored.

        Raises:
            ConfigError: If a name is unknown, a value is invalid, or the rules do not fit the mode.

        Example:
            >>> children = {"separator": "\n", "max_tokens": 200}
            >>> rules = {"parent_mode": "full-doc", "subchunk_segmentation": children}
            >>> Rule.from_dict({"mode": "hierarchical", "rules": rules}).parent_mode.name
            'FULL_DOC'
        """
        mode = None
        if isinstance(values, Mapping) and "mode" in values:
            process_rule = known_values(
                "A process rule", values, dict.fromkeys(("mode", "rules", "limits"))
            )
            mode = process_rule["mode"]
            rules = process_rule.get("rules") or {}
            validate_choice("mode of a process rule", mode, ("automatic", "custom", "hierarchical"))
            if mode == "automatic" and not rules:
                return cls.automatic()
            values = rules
        rule_values = known_values(
            "A rule", values, dict.fromkeys(name for name in cls.__slots__ if name != "counter")
        )
        rule = cls(**without_none(rule_values))
        needed = None
        if mode is not None:
            needed = "subchunk_segmentation" if mode == "hierarchical" else "segmentation"
        if needed is not None and getattr(rule, needed) is None:
            raise ConfigError(
                f"A process rule of mode {mode!r} needs {needed}, with max_tokens and a separator."
            )
        return rule

    def groups(self, name: str = "part") -> tuple[RuleGroup, ...]:
        """Return the node groups of the rule, parents first.

        Args:
            name: Name of the parents' group; that of the children is ``f"{name}-child"``.

        Raises:
            ConfigError: If the segmentation of parents, or of whole documents into children, is
                missing.
        """
        is_full_doc = self.parent_mode is ParentMode.FULL_DOC
        if is_full_doc and self.subchunk_segmentation is None:
            raise ConfigError(
                "A rule whose parents are whole documents needs subchunk_segmentation=."
            )
        if not is_full_doc and self.segmentation is None:
            raise ConfigError(
                "A rule whose parents are paragraphs needs segmentation=, such as Segmentation(500,"
                " 50)."
            )
        splitter = (
            None
            if is_full_doc or self.segmentation is None
            else self.segmentation.splitter(self.counter)
        )
        parents = RuleGroup(name, RuleParents(self.pre_processing_rules, splitter), LAZY_ROOT_NAME)
        if self.subchunk_segmentation is None:
            return (parents,)
        return parents, RuleGroup(
            f"{name}-child", self.subchunk_segmentation.splitter(self.counter), name
        )

    @known_keywords
    def create_groups(
        self, docs: GroupOwner | type[Any], name: str = "part", *, replace: bool = False
    ) -> RuleGroups:
        """Define the rule's groups on a Document, or on the class for all Documents.

        Args:
            docs: The Document.
            name: See `groups`.
            replace: Whether to replace other definitions of these names.

        Returns:
            The names of the groups.

        Raises:
            ConfigError: If ``docs`` is no Document, and as `groups`.
            AlreadyRegisteredError: If a name has another definition and ``replace`` is False.

        Example:
            >>> from lazyrag import Document
            >>> rule = Rule(Segmentation(500), subchunk_segmentation=Segmentation(100))
            >>> rule.create_groups(Document(), "part")
            RuleGroups(parent='part', child='part-child')
        """
        require(
            callable(getattr(docs, "create_node_group", None)),
            "docs",
            docs,
            "a Document, or the class",
        )
        groups = self.groups(name)
        for group in groups:
            docs.create_node_group(
                group.name,
                group.transform,
                group.parent,
                replace=validate_boolean("replace", replace),
            )
        return RuleGroups(groups[0].name, groups[-1].name)


class RuleParents(NodeTransform):
    """Cleans documents and splits them into the parents of a rule.

    A parent has a span in the document, unless something was removed from it.

    Args:
        rules: Cleaning rules.
        splitter: Splits the cleaned text; None keeps it whole.
    """

    reads_text_only = True

    def __init__(self, rules: PreProcessingRules, splitter: RecursiveSplitter | None) -> None:
        self.rules = rules
        self.splitter = splitter
        if type(self) is RuleParents:
            cut = None if splitter is None else splitter.identity
            self.identity = f"RuleParents/1 removed={rules.enabled!r} cut={cut!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Clean and split the text of a document."""
        cleaned = self.rules.cleaned(node.get_text())
        spans = (
            [(0, len(cleaned.text))] if self.splitter is None else self.splitter.split(cleaned.text)
        )
        return chunks(cleaned, spans)


def _segmentation(
    name: str, segmentation: Segmentation | JsonMapping | None
) -> Segmentation | None:
    if segmentation is None or isinstance(segmentation, Segmentation):
        return segmentation
    if isinstance(segmentation, Mapping):
        return Segmentation.from_dict(segmentation)
    raise ConfigError(
        f"{name} must be a Segmentation, such as Segmentation(500, 50); got {segmentation!r:.80}."
    )
