"""What of the sentence-transformers adapters is ours; tests/torch runs them on models, where torch
is installed.
"""

from __future__ import annotations

import sys

import pytest

from lazyrag.errors import MissingDependencyError
from lazyrag.models import SentenceTransformerCrossEncoder, SentenceTransformerEmbedder


@pytest.mark.parametrize("adapter", [SentenceTransformerEmbedder, SentenceTransformerCrossEncoder])
def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch, adapter):
    """Before anything is said about the model."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(
        MissingDependencyError,
        match=rf"^{adapter.__name__} needs .*'sentence_transformers'.*\.\[sentence-trans",
    ):
        adapter(tmp_path)
