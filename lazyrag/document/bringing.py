"""Bringing any number of documents to what they are to have, a batch at a time, with their failures noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lazyrag.document.failures import Failures
from lazyrag.document.ingestion import Ingestion, batches
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.loading import Loading
from lazyrag.document.pool import executor_of
from lazyrag.document.progress import OnProgress, ProgressMeter
from lazyrag.document.step import Step
from lazyrag.document.work import Batch, Outcome, Targets, Work
from lazyrag.errors import IngestionError, LazyRAGError, sentence

_BATCH = 256  # documents that become live together
_BATCH_BYTES = 8 * 2**20  # of their files; bounds the memory of what is made of them


class Bringer:
    """Brings documents to targets. Who uses it holds the ledger's lease.

    Args:
        ledger: The ledger.
        ingestion: Brings a batch.
        failures: Where failures are entered.
        where: The Document, as messages name it.
        loading: Calls loaders.
        workers: How many threads call loaders and transforms.
        on_progress: Told how far it is.
        owner: Whose threads the workers are, see `lazyrag.document.pool.is_worker_of`.
    """

    def __init__(
        self,
        ledger: Ledger,
        ingestion: Ingestion,
        failures: Failures,
        where: Callable[[], str],
        loading: Loading,
        workers: int,
        on_progress: OnProgress | None,
        *,
        owner: object,
    ) -> None:
        self._ledger = ledger
        self._ingestion = ingestion
        self._failures = failures
        self._where = where
        self._loading = loading
        self._workers = workers
        self._on_progress = on_progress
        self._owner = owner

    def bring(
        self, works: Iterable[Work], targets: Targets, what: str, count: int, *, stop: bool = False, steps: int = 0
    ) -> list[Outcome]:
        """Bring documents to targets, batch by batch.

        Args:
            works: The documents; each is made when its batch begins, and let go of when that is done.
            targets: What they are brought to.
            what: What is done, for the progress bar.
            count: How many documents there are.
            stop: Stop after the first batch in which one fails.
            steps: How many steps each of them takes; 0 for all of the targets.

        Returns:
            What became of each document.

        Raises:
            IngestionError: If one fails and ``stop`` is set.
        """
        done: list[Outcome] = []
        if not count:
            return done
        with self._loading.running(count), executor_of(self._workers, count, self._owner) as executor:
            steps = steps or len(targets.groups) + len(targets.spaces) + 1
            with ProgressMeter(what, count, steps, self._on_progress) as meter:
                for some in batches(works, _size_of, _BATCH, _BATCH_BYTES):
                    self._read_before(some)
                    self._ingestion.bring(Batch(some, targets, executor, self._failed, meter.tick))
                    self._note_failures(some)
                    done += [work.outcome for work in some]
                    meter.reach(len(done))
                    failed = [(step, error) for work in some for step, error in work.failures.items()]
                    if stop and failed:
                        step, error = failed[0]
                        told = f"A file failed to {step}: {sentence(error)}"
                        msg = f"{told} What was done before is kept. ({self._where()})"
                        raise IngestionError(msg) from error
        return done

    def _read_before(self, batch: Sequence[Work]) -> None:
        live = self._ledger.builds.live({row.id for work in batch for row in work.sources if row.id})
        for work in batch:
            moved = work.moved_from
            work.begin(live.get(work.row.id, {}), live.get(moved.id, {}) if moved is not None else {})

    def _failed(self, step: Step, work: Work, error: LazyRAGError) -> None:
        self._failures.add(step, work.row.identity, error)

    def note_failures(self) -> None:
        """What has failed is what is known to fail: a sync has tried everything."""
        failed = [(one.path, one.stage, type(one.error).__name__, str(one.error)) for one in self._failures]
        self._ledger.documents.set_failures(None, failed)

    def _note_failures(self, batch: Sequence[Work]) -> None:
        failed = [
            (work.row.identity, str(step), type(error).__name__, str(error))
            for work in batch
            for step, error in work.failures.items()
        ]
        self._ledger.documents.set_failures([work.row.identity for work in batch], failed)


def _size_of(work: Work) -> int:
    return work.row.signature.size if work.row.signature is not None else 0
