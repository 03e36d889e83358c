"""What Documents on a store find in XQuAD and Cranfield: what they find in memory, hence with the
same quality.
"""

from __future__ import annotations

import fcntl
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lazyrag import LAZY_ROOT_NAME, Document, OnnxEmbedder, Retriever
from lazyrag.evaluation import ndcg
from lazyrag.models.embedding_cache import CachedEmbedder
from lazyrag.types import Ranking
from tests.judged import Judged, judged_set
from tests.live.install import LIVE
from tests.shared import shared

TOPK = 10
SIMILARITIES = ("cosine", "bm25")
KNOWN = {
    ("cranfield", "cosine"): (0.394, 0.01),
    ("cranfield", "bm25"): (0.3861, 0.0001),
    ("xquad-en", "cosine"): (0.948, 0.01),
    ("xquad-en", "bm25"): (0.9689, 0.0001),
}
"""The nDCG@10 seen in memory, and by how much it may differ: an int8 model's vectors depend on the
processor."""


class StoreQuality:
    """Both sets on one store; subclass it as ``TestSomething`` and say how the store is
    configured.
    """

    threads = 1
    """How many ask at once: for servers that let each question wait."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A ``store_conf`` whose stores are new for each folder."""
        raise NotImplementedError

    @pytest.mark.parametrize("name", ["cranfield", "xquad-en"])
    def test_rankings_and_quality_are_those_in_memory(self, name: str, tmp_path: Path) -> None:
        """Every question has the same uids with the same scores in the same order, so that nDCG@10
        is the same.
        """
        judged, expected = judged_set(name), in_memory(name)
        conf = {"search": "exact", **self.conf(tmp_path)}
        own_name = f"quality {tmp_path.name}"
        found = rankings(judged, tmp_path, self.threads, store_conf=conf, name=own_name)
        for similarity in SIMILARITIES:
            assert found[similarity] == expected[similarity]
            quality = mean_ndcg(judged, found[similarity])
            assert quality == pytest.approx(mean_ndcg(judged, expected[similarity]), abs=1e-6)
            known, tolerance = KNOWN[name, similarity]
            assert quality == pytest.approx(known, abs=tolerance)


@functools.cache
def in_memory(name: str) -> dict[str, list[Ranking]]:
    """The rankings of the ``map`` stores. What is embedded for them is kept for all that come
    after.
    """
    with _alone(), tempfile.TemporaryDirectory() as folder:
        return rankings(judged_set(name), Path(folder))


@functools.cache
def embedder() -> CachedEmbedder:
    """The model of the shared data, asked once for each text on this machine."""
    model = OnnxEmbedder(shared("models", "all-minilm-l6-v2"))
    return CachedEmbedder(model, LIVE / "quality" / "embeddings.db")


def rankings(
    judged: Judged, folder: Path, threads: int = 1, **kwargs: Any
) -> dict[str, list[Ranking]]:
    """By similarity, for each question the (path, score) of the ten best files of a Document over a
    set's texts.
    """
    files = folder / "files"
    files.mkdir()
    for path, text in judged.texts.items():
        (files / path).write_text(text, encoding="utf-8")
    found = {}
    with (
        Document(files, embed=embedder(), **kwargs) as docs,
        ThreadPoolExecutor(threads) as executor,
    ):
        for similarity in SIMILARITIES:
            retriever = Retriever(docs, LAZY_ROOT_NAME, similarity=similarity, topk=TOPK)
            answers = executor.map(retriever, [question for question, _ in judged.questions])
            found[similarity] = [
                [(str(node.path), node.score) for node in nodes] for nodes in answers
            ]
    return found


def mean_ndcg(judged: Judged, found: Sequence[Ranking]) -> float:
    """The mean nDCG@10 of a set's questions, each with its ranking."""
    pairs = zip(judged.questions, found, strict=True)
    return sum(ndcg([path for path, _ in one], grades, TOPK) for (_, grades), one in pairs) / len(
        found
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Parts run side by side: the second one waits for what the first has embedded, instead of
    doing it as well.
    """
    (LIVE / "quality").mkdir(parents=True, exist_ok=True)
    with (LIVE / "quality" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
