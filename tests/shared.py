"""The shared data beside the checkout, for tests and benchmarks that need real files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("LAZYRAG_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def is_required() -> bool:
    """Whether missing shared data are a failure, as in CI: LAZYRAG_REQUIRE_SHARED=1."""
    return os.environ.get("LAZYRAG_REQUIRE_SHARED") == "1"


def shared(*parts: str) -> Path:
    """Return a path in the shared data, for a test or fixture to call; mark tests that need it
    `shared`.

    The environment variable LAZYRAG_SHARED names the folder; by default it lies beside the
    checkout. Where it is missing, marked tests are not selected at all, and others are skipped
    here; with LAZYRAG_REQUIRE_SHARED=1, as in CI, they fail.
    """
    path = SHARED.joinpath(*parts)
    if path.exists():
        return path
    reason = f"No shared data at {path}. Set LAZYRAG_SHARED to their folder."
    if is_required():
        pytest.fail(reason)
    pytest.skip(reason)


def read_squad(path: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """The paragraphs of a file in SQuAD form, and its questions with the number of their
    paragraph.
    """
    paragraphs: list[str] = []
    questions: list[tuple[str, int]] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            questions += [(question["question"], len(paragraphs)) for question in paragraph["qas"]]
            paragraphs.append(paragraph["context"])
    return paragraphs, questions
