"""What failed, by step and document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from lazyrag.document.report import Failure
from lazyrag.document.step import Step
from lazyrag.errors import IngestionError, IngestionWarning, LazyRAGError, NoReaderError, sentence, warn_user


class Failures:
    """What failed in this process, until it is tried again.

    Args:
        where: The Document, as messages name it.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where
        self._by_step: dict[tuple[Step, str], Failure] = {}  # by step and the document's identity
        self._new: dict[Step, list[Failure]] = {}
        self.misnamed: dict[str, Failure] = {}  # keys of file_metadata that name no file

    def __iter__(self) -> Iterator[Failure]:
        return iter([*self._by_step.values(), *self.misnamed.values()])

    def add(self, step: Step, identity: str, error: LazyRAGError) -> Failure:
        """Enter a failure."""
        failure = Failure(identity, str(step), error)
        self._by_step[step, identity] = failure
        self._new.setdefault(step, []).append(failure)
        return failure

    def has(self, steps: Collection[Step], identity: str) -> bool:
        """Whether a document failed in one of some steps."""
        return any((step, identity) in self._by_step for step in steps)

    def steps(self) -> set[Step]:
        """The steps in which something failed."""
        return {step for step, _ in self._by_step}

    def of_step(self, step: Step) -> list[Failure]:
        """What failed in a step."""
        return [failure for (at, _), failure in self._by_step.items() if at == step]

    def forget(self, wanted: Callable[[Step, str], bool]) -> None:
        """Forget what is to be tried again, or does not count any more."""
        self._by_step = {at: failure for at, failure in self._by_step.items() if not wanted(*at)}

    def check(self, step: Step, done: int) -> None:
        """Warn of what has failed in a step since the last check; raise if nothing at all was done in it.

        Args:
            step: What was done.
            done: For how many documents it is done.

        Raises:
            IngestionError: If every document failed.
        """
        failed = self.of_step(step)
        new = self._new.pop(step, [])
        total = done + len(failed)
        if failed and not done:
            msg = (
                f"All {total} files failed to {step}, so there is nothing to answer from. The first: "
                f"{sentence(failed[0])} Mend the cause, then call retry_failed(). ({self._where()})"
            )
            raise IngestionError(msg) from failed[0].error
        without_text = [failure for failure in new if isinstance(failure.error, NoReaderError)]
        new = [failure for failure in new if not isinstance(failure.error, NoReaderError)]
        aside = f"{len(without_text)} of {total} files are pictures, sound or films, and are left out."
        if new:
            msg = (
                f"{len(new)} of {total} files failed to {step}; the others are in. The first: {new[0]} "
                f"({self._where()}: last_report names them all, retry_failed() tries them again)"
            )
            warn_user(f"{msg} {aside}" if without_text else msg, IngestionWarning)
        elif without_text:  # nobody's mistake
            warn_user(f"{aside} The first: {without_text[0]} ({self._where()})", IngestionWarning)
