"""The recorded behaviour (tests/behaviour) on stores that need a server or a package of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour import answers, dumps, goldens
from tests.behaviour.library import Library, open_library
from tests.behaviour.retrievers import RESTRICTED, SCOPES

BLOCKS = {"none": (12,)}
CASES = (
    "bm25",
    "bm25 target section",
    "bm25 two Documents",
    "cosine",
    "cosine all keys",
    "cosine cut-off",
    "cosine target root",
    "sparse",
    "climbing",
    "products",
    "hybrid rrf",
    "HybridRetriever.over",
    "Feedback over hybrid",
    "chain AutoMerge",
    "chain Windows",
    "chain MMR",
    "chain of all",
)
"""The retrievers that ask the stores in different ways."""
EXPLAINED = ("bm25", "climbing", "hybrid weighted", "chain of all")


class StoreBehaviour:
    """The golden files on one kind of store; subclass it as ``TestSomething`` and say how the store
    is configured.
    """

    has_sparse = True
    is_map = False
    cases: tuple[str, ...] = CASES
    scopes: tuple[str, ...] = tuple(SCOPES)
    explained: tuple[str, ...] = EXPLAINED

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A ``store_conf`` whose stores are new for each folder."""
        raise NotImplementedError

    @pytest.fixture
    def lib(self, tmp_path: Path) -> Iterator[Library]:
        """The sample Documents on the store."""

        def conf_of(folder: Path) -> Mapping[str, Any]:
            folder.mkdir(parents=True, exist_ok=True)
            return {"search": "exact", **self.conf(folder)}

        with ExitStack() as stack:
            yield open_library(
                stack, tmp_path, conf_of, has_sparse=self.has_sparse, is_map=self.is_map
            )

    def test_dumps(self, lib: Library) -> None:
        """What the Documents hold."""
        goldens.check("dumps", dumps.library_rows(lib))

    def test_hits(self, lib: Library) -> None:
        """What retrievers give under every filter."""
        fitting = answers.fitting(lib)
        for name in self.cases:
            for label in answers.filters_of(fitting[name]) if name in fitting else ():
                answers.check_hits(lib, name, label, BLOCKS.get(label, ()))

    def test_restricted(self, lib: Library) -> None:
        """What restricted Documents give."""
        for name in set(RESTRICTED).intersection(self.cases):
            for scope in self.scopes:
                answers.check_restricted(lib, name, scope, (2,))

    def test_explanations(self, lib: Library) -> None:
        """What explains a result."""
        goldens.check("explanations", answers.explanation_rows(lib, self.explained))
