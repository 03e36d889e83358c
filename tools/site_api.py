"""Pages of the Python API for the site, from signatures and docstrings.

Public is what `lazyrag.__all__` names, every error, and what the code of a page of docs/ or of the
README imports.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import lazyrag
from lazyrag import errors

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("Document", "Retriever", "HybridRetriever", "RAGPipeline")
"""These come before the others, which are in alphabetical order."""
INTRODUCTION = {
    "lazyrag": "The names that `from lazyrag import ...` gives. The other pages of this section have the rest.",
    "lazyrag.errors": "Every error and warning. All errors derive from `LazyRAGError`.",
}


def public() -> dict[str, list[str]]:
    """The public names by module."""
    found: dict[str, set[str]] = defaultdict(set)
    found["lazyrag"] = {name for name in lazyrag.__all__ if name != "__version__"}
    for name, value in vars(errors).items():
        if (
            inspect.isclass(value)
            and value.__module__ == errors.__name__
            and not name.startswith("_")
        ):
            found["lazyrag.errors"].add(name)
    pages = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "how-to").glob("*.md"),
        ROOT / "README.md",
    ]
    for page in pages:
        for code in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lazyrag."):
                    found[node.module or ""] |= {one.name for one in node.names} - set(
                        lazyrag.__all__
                    )
    return {
        module: sorted(
            names,
            key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name.lower()),
        )
        for module, names in sorted(found.items())
        if names
    }


def pages() -> dict[str, str]:
    """A page for each public module, by its path below docs/."""
    found = {}
    for module, names in public().items():
        there = importlib.import_module(module)
        about = INTRODUCTION.get(module) or markdown(inspect.getdoc(there) or "")
        parts = [
            f"# {module}\n\n{about}\n",
            *(described(name, getattr(there, name), module) for name in names),
        ]
        found[f"api/{module}.md"] = "\n".join(part for part in parts if part)
    return found


def described(name: str, value: Any, module: str) -> str:
    """A public name with its signature, its docstring and its public members."""
    if inspect.ismodule(value):
        return ""
    imported = f"```python\nfrom {module} import {name}\n```\n"
    if not callable(value) or not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"## {name}\n\n{imported}\n{constant(value)}\n"
    text = f"## {name}\n\n{imported}\n{signature(name, value)}{markdown(inspect.getdoc(value) or '')}\n"
    if not inspect.isclass(value):
        return text
    members = []
    for key, member in sorted(vars(value).items()):
        kind = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if key.startswith("_") or not (inspect.isfunction(kind) or isinstance(kind, property)):
            continue
        doc = inspect.getdoc(getattr(value, key)) or ""
        if not doc:
            continue
        shown = "" if isinstance(kind, property) else signature(key, kind)
        kind_of = "*property*\n\n" if isinstance(kind, property) else ""
        members.append(f"### {name}.{key}\n\n{kind_of}{shown}{markdown(doc)}\n")
    return "\n".join([text, *members])


def constant(value: Any) -> str:
    """A value that is no class or function: its type, and itself where it is short."""
    own = (
        markdown(inspect.getdoc(value) or "")
        if inspect.getdoc(value) != inspect.getdoc(type(value))
        else ""
    )
    shown = repr(value)
    return own or (
        f"`{shown}`"
        if len(shown) < 200 and " at 0x" not in shown
        else f"A `{type(value).__name__}`."
    )


def signature(name: str, value: Any) -> str:
    """How it is called, one parameter a line where it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(value):
        found = found.replace(return_annotation=inspect.Signature.empty)
    parameters = [
        one.replace(
            annotation=one.annotation if one.annotation is one.empty else _Bare(one.annotation)
        )
        for one in found.parameters.values()
        if one.name not in {"self", "cls"}
    ]
    returns = found.return_annotation
    found = found.replace(
        parameters=parameters,
        return_annotation=returns if returns is inspect.Signature.empty else _Bare(returns),
    )
    text = re.sub(r" at 0x[0-9a-f]+", "", f"{name}{found}")
    if len(text) > 90 and parameters:
        lines = []
        for index, one in enumerate(parameters):
            if one.kind is one.KEYWORD_ONLY and all(
                other.kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
                for other in parameters[:index]
            ):
                lines.append("    *,\n")
            lines.append(f"    {one},\n")
        end = f") -> {found.return_annotation!r}" if returns is not inspect.Signature.empty else ")"
        text = re.sub(r" at 0x[0-9a-f]+", "", f"{name}(\n{''.join(lines)}{end}")
    return f"```text\n{text}\n```\n\n"


class _Bare:
    """An annotation that is printed as it is written."""

    def __init__(self, annotation: Any) -> None:
        self.text = (
            annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        )

    def __repr__(self) -> str:
        return self.text.strip("'")


def markdown(doc: str) -> str:
    """A docstring as Markdown: its sections as bold words, their entries as lists, examples as
    code.
    """
    doc = inspect.cleandoc(doc).replace("``", "`")
    found: list[str] = []
    section = ""
    for line in doc.splitlines():
        head = re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields|Examples?|Note|Warns):", line)
        if head:
            section = head[1]
            found += ["", f"**{section}**", ""]
            found += ["```pycon"] if section.startswith("Example") else []
        elif section and line and not line.startswith(" "):
            found += ["```", ""] if section.startswith("Example") else [""]
            section = ""
            found.append(line)
        elif section in ("Args", "Attributes", "Raises", "Warns") and (
            entry := re.match(r" {4}(\S[^:]*?): (.*)", line)
        ):
            found.append(f"- `{entry[1]}`: {entry[2]}")
        elif section.startswith("Example"):
            found.append(line[4:])
        else:
            found.append(
                line[2:]
                if section and line.startswith("     ")
                else line.strip()
                if section
                else line
            )
    if section.startswith("Example"):
        found = [*_without_blank_end(found), "```"]
    return "\n".join(found).strip()


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
