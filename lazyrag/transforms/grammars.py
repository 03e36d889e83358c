"""The grammars of tree-sitter: which languages there are, and a text's syntax tree as plain values."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from lazyrag.errors import ConfigError, known_names, missing_package

# By language: the package that brings its grammar, the function in it, and the suffixes of its files.
_GRAMMARS: Mapping[str, tuple[str, str, str]] = {
    "bash": ("tree_sitter_bash", "language", ".bash .sh"),
    "c": ("tree_sitter_c", "language", ".c .h"),
    "cpp": ("tree_sitter_cpp", "language", ".cc .cpp .cxx .hpp"),
    "csharp": ("tree_sitter_c_sharp", "language", ".cs"),
    "go": ("tree_sitter_go", "language", ".go"),
    "java": ("tree_sitter_java", "language", ".java"),
    "javascript": ("tree_sitter_javascript", "language", ".js .jsx .mjs"),
    "php": ("tree_sitter_php", "language_php", ".php"),
    "python": ("tree_sitter_python", "language", ".py .pyi"),
    "ruby": ("tree_sitter_ruby", "language", ".rb"),
    "rust": ("tree_sitter_rust", "language", ".rs"),
    "tsx": ("tree_sitter_typescript", "language_tsx", ".tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript", ".ts"),
}
LANGUAGES = tuple(_GRAMMARS)
"""Names of the languages."""

_BY_SUFFIX = {suffix: name for name, (_, _, suffixes) in _GRAMMARS.items() for suffix in suffixes.split()}


class Part(NamedTuple):
    """A node of a syntax tree.

    Args:
        start: Where it begins in the text, in characters.
        end: Where it ends.
        kind: What the grammar calls it.
        depth: How many nodes it stands in.
        name: The name that it defines; "" where it defines nothing.
        is_leaf: Whether nothing stands in it: a token.
    """

    start: int
    end: int
    kind: str
    depth: int
    name: str
    is_leaf: bool


def language_of(path: str) -> str:
    """The language of a file by its suffix; "" for another one.

    Example:
        >>> language_of("brew/Kettle.RS"), language_of("notes.txt")
        ('rust', '')
    """
    return _BY_SUFFIX.get(PurePath(path).suffix.lower(), "")


def checked_language(language: Any) -> str:
    """A language's name.

    Raises:
        ConfigError: If there is none of that name.
    """
    if language not in _GRAMMARS:
        msg = f"language is {language!r:.80}. {known_names(str(language), LANGUAGES)}"
        raise ConfigError(msg)
    return str(language)


@functools.cache
def is_installed(language: str) -> bool:
    """Whether a language's grammar is there; nothing is imported."""
    return all(importlib.util.find_spec(package) for package in ("tree_sitter", _GRAMMARS[language][0]))


@functools.cache
def _language(language: str) -> Any:
    package, function, _ = _GRAMMARS[language]
    try:
        import tree_sitter

        grammar = importlib.import_module(package)
    except ModuleNotFoundError as exc:
        raise missing_package(f"CodeSplitter(language={language!r})", exc, "code") from exc
    return tree_sitter.Language(getattr(grammar, function)())


def load_grammar(language: str) -> None:
    """Import a language's grammar.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    _language(language)


def syntax(text: str, language: str) -> Iterator[Part]:
    """The nodes of a text's syntax tree, each before what stands in it; broken code has one, too.

    Raises:
        MissingDependencyError: If the language's grammar is not installed.
    """
    grammar = _language(language)
    import tree_sitter

    data = text.encode("utf-8", "surrogatepass")
    places = _places(text, data)
    cursor: Any = tree_sitter.Parser(grammar).parse(data).walk()
    depth = 0
    while True:
        node = cursor.node
        named = _named(node) if _defines(node.type) else None
        name = "" if named is None else text[places(named.start_byte) : places(named.end_byte)]
        start, end = places(node.start_byte), places(node.end_byte)
        yield Part(start, end, node.type, depth, name, node.child_count == 0)
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _named(node: Any) -> Any:
    """The node of the name that a definition gives; in C it stands inside of what is declared."""
    found = node.child_by_field_name("name")
    inner = node.child_by_field_name("declarator") if node.type == "function_definition" else None
    while found is None and inner is not None:
        inner, outer = inner.child_by_field_name("declarator"), inner
        found = outer if inner is None else None
    return found


def _defines(kind: str) -> bool:
    return kind in _DEFINING or kind.endswith(("_definition", "_declaration", "_item", "_specifier", "_spec"))


_DEFINING = frozenset(["class", "module", "method", "singleton_method", "class_body", "function", "type_spec"])


class _Bytes:
    """From places in bytes to places in characters."""

    def __init__(self, text: str) -> None:
        self._at = []
        for number, character in enumerate(text):
            self._at += [number] * len(character.encode("utf-8", "surrogatepass"))
        self._at.append(len(text))

    def __call__(self, place: int) -> int:
        return self._at[place]


def _places(text: str, data: bytes) -> Callable[[int], int]:
    return int if len(text) == len(data) else _Bytes(text)
