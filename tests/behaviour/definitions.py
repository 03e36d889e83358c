"""Groups by every built-in transform and by functions of every kind, over files small enough to
read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lazyrag import DocNode, Document, LLMParser, NodeTransform, Retriever, SentenceSplitter
from lazyrag.transforms import (
    CharacterSplitter,
    CodeSplitter,
    HTMLSplitter,
    JSONSplitter,
    MarkdownSplitter,
    PreProcessingRules,
    RecursiveSplitter,
    Rule,
    Segmentation,
    SemanticSplitter,
    SentenceWindow,
    TokenSplitter,
)
from tests.behaviour.dumps import dump_rows
from tests.behaviour.library import Letters, Pairs, dated, lines, words

FILES = {
    "a.md": "# Tea\n\nGreen tea is fired. Black tea is oxidised.\n\n## Picking 采摘\n\n一芽二叶。雨天不采。\n\nhttps://tea.cn\n",
    "b.html": "<html><body><h1>Tea</h1><p>Green.</p><h2>Price</h2><p>128 yuan.</p></body></html>",
    "c.json": '{"teas": [{"name": "green", "kg": 2}, {"name": "红茶", "kg": 3}]}',
    "d.py": "def pick(leaf):\n    return leaf\n\n\nclass Pan:\n    def fire(self):\n        return 220\n",
}
RAW = {"raw json": FILES["c.json"], "raw html": FILES["b.html"]}
OUTSIDE = "."
DAY = "2026-11-24"  # of the last change of all files: it is in their nodes
MODIFIED = 1_795_521_600  # noon of that day


class Counter:
    """A counter of tokens."""

    name = "words of behaviour"

    def count(self, text: str) -> int:
        """Words."""
        return len(text.split())


class EveryThird(NodeTransform):
    """A user's transform with parameters."""

    def __init__(self, step: int = 3) -> None:
        self.step = step

    def transform(self, node: DocNode) -> Iterator[str]:
        """Every so many characters."""
        yield from (
            node.text[start : start + self.step] for start in range(0, len(node.text), self.step)
        )


class ByPath(EveryThird):
    """One that reads the path."""

    def transform(self, node: DocNode) -> Iterator[str]:
        """The path before the text."""
        yield f"{node.path}: {node.text[: self.step]}"

    def path_key(self, path: str) -> str:
        """All of it."""
        return path


class Named:
    """A callable that says what it is."""

    identity = "named by itself 1"

    def __call__(self, text: str) -> str:
        """The first ten characters."""
        return text[:10]


def model(prompt: str) -> str:
    """A function in the place of a chat model."""
    return "Tea, 茶" if "JSON" not in prompt else '["Tea", "茶"]'


model.identity = "behaviour model 1"  # type: ignore[attr-defined]


def json_only(text: str) -> str | None:
    """What JSONSplitter can read."""
    return text if text.startswith("{") else None


def split_at(text: str, mark: str = "\n") -> list[str]:
    """A function with a parameter."""
    return text.split(mark)


def at(mark: str) -> Any:
    """A function that closes over a value."""
    return lambda text: text.split(mark)


def reads_outside(text: str) -> list[str]:
    """A function that reads a value and a function of its module."""
    return [part for line in lines(text) for part in line.split(OUTSIDE)]


def spans(node: DocNode) -> Iterator[DocNode]:
    """Nodes with spans and metadata of their own."""
    for match in re.finditer(r"\w+ tea", node.text):
        yield DocNode(text=match[0], span=match.span(), metadata={"start": match.start()})


GROUPS: dict[str, dict[str, Any]] = {
    "SentenceSplitter": {"transform": SentenceSplitter(chunk_size=20, chunk_overlap=5)},
    "SentenceSplitter default": {"transform": SentenceSplitter},
    "SentenceSplitter by name": {
        "transform": "SentenceSplitter",
        "chunk_size": 20,
        "chunk_overlap": 5,
    },
    "SentenceSplitter counter": {
        "transform": SentenceSplitter(chunk_size=8, chunk_overlap=0, counter=Counter())
    },
    "CharacterSplitter": {"transform": CharacterSplitter(separator="。", chunk_size=20)},
    "RecursiveSplitter": {
        "transform": RecursiveSplitter,
        "separators": ["\n\n", "\n"],
        "chunk_size": 20,
    },
    "TokenSplitter": {"transform": TokenSplitter(chunk_size=10, chunk_overlap=2)},
    "MarkdownSplitter": {"transform": MarkdownSplitter(chunk_size=30)},
    "HTMLSplitter": {"transform": HTMLSplitter(chunk_size=30, text_only=True)},
    "JSON": {"transform": json_only},
    "JSONSplitter": {"transform": JSONSplitter(chunk_size=20), "parent": "JSON"},
    "CodeSplitter": {"transform": CodeSplitter(chunk_size=20, language="python")},
    "SemanticSplitter": {"transform": SemanticSplitter(Letters(), chunk_size=40)},
    "SentenceWindow": {"transform": SentenceWindow(before=1, after=1)},
    "LLMParser summary": {"transform": LLMParser(model, "en", "summary", num_workers=1)},
    "LLMParser keywords": {
        "transform": "llm",
        "llm": model,
        "task_type": "keywords",
        "num_workers": 1,
    },
    "a function": {"transform": lines},
    "a function below": {"transform": words, "parent": "a function"},
    "a function of nodes": {"transform": dated, "parent": "a function", "trans_node": True},
    "a lambda": {"transform": lambda text: text.split("\n\n")},
    "a lambda of nodes": {"transform": lambda node: node.path + node.text[:3], "trans_node": True},
    "a number": {"transform": len, "parent": "a lambda"},
    "a method of str": {"transform": str.splitlines},
    "a partial": {"transform": functools.partial(split_at, mark=".")},
    "a closure": {"transform": at("tea")},
    "another closure": {"transform": at("Tea")},
    "what lies outside": {"transform": reads_outside},
    "spans": {"transform": spans, "trans_node": True},
    "a version": {"transform": at("tea"), "version": "2"},
    "a class": {"transform": EveryThird, "step": 40},
    "an object": {"transform": EveryThird(50)},
    "a class that reads paths": {"transform": ByPath(10)},
    "an identity": {"transform": Named()},
}


def bare(text: str) -> list[float]:
    """An embed callable without an identity."""
    return [1.0, float(len(text)), float(text.count("e"))]


def definition_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Fingerprints, identities of embeddings, and digests of the nodes."""
    files = folder / "definitions"
    files.mkdir()
    for name, text in FILES.items():
        (files / name).write_bytes(text.encode())
        os.utime(files / name, (MODIFIED, MODIFIED))
    embed = {
        "letters": Letters(),
        "pairs": Pairs(),
        "bare": bare,
        "lambda": lambda text: [1.0, float(len(text))],
    }
    with Document(files, embed=embed, name="definitions", workers=1) as docs:
        docs.add_texts(RAW)
        for name, how in GROUPS.items():
            docs.create_node_group(name, **how)
        rule = Rule(
            Segmentation(max_tokens=60, chunk_overlap=0, separator="\n\n"),
            PreProcessingRules(["remove_extra_spaces", "remove_urls_emails"]),
            subchunk_segmentation=Segmentation(max_tokens=50, chunk_overlap=0, separator="。"),
        ).create_groups(docs, "rule")
        for name in (*GROUPS, *rule, "FineChunk", "MediumChunk", "CoarseChunk"):
            docs.activate_group(name)
        Retriever(docs, "a function")("tea")
        unseen = [list(one) for one in docs.plan().unseen]
        yield from dump_rows(docs, "definitions", added=dict.fromkeys(RAW, DAY))
        yield {"key": "definitions: unseen", "unseen": sorted(unseen)}
