"""Which state of the tree a question sees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lazyrag.document.definitions import Definitions
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.ledger.tree import Tree, View


@dataclass(slots=True)
class Pin:
    """The view that a question keeps to.

    Args:
        view: The view.
        used: Whether something was read from it.
        moved: Whether it was replaced after that, since something had to be built first.
    """

    view: View
    used: bool = False
    moved: bool = False


class Views:
    """The present view of a Document, and those that questions in progress keep to, each in its thread.

    Args:
        ledger: What is live.
        definitions: What is defined.
    """

    def __init__(self, ledger: Ledger, definitions: Definitions) -> None:
        self._ledger = ledger
        self._definitions = definitions
        self._pins = threading.local()
        self._last: tuple[Tree, int, View] | None = None

    def now(self) -> View:
        """What is live and current now."""
        tree, changes = self._ledger.tree, self._definitions.graph.changes
        known = self._last
        if known is not None and known[0] is tree and known[1] == changes:
            return known[2]
        groups = {name: group for name, group in self._definitions.current(tree).items() if group.whole}
        view = View(tree, groups)
        self._last = tree, changes, view
        return view

    def of_question(self) -> View:
        """What is live and current now, or was when the question began that this thread is answering."""
        pin = self._pin
        if pin is None:
            return self.now()
        pin.used = True
        return pin.view

    def kept(self) -> View:
        """The same, without reading from it."""
        pin = self._pin
        return self.now() if pin is None else pin.view

    def keep(self, view: View) -> View:
        """Go on with another view: something had to be built for the question."""
        pin = self._pin
        if pin is not None:
            pin.moved |= pin.used and view is not pin.view
            pin.view = view
            pin.used = True
        return view

    @contextmanager
    def pinned(self) -> Iterator[Pin]:
        """Keep to one view; the pin says whether that was possible all the time."""
        outer = self._pin
        pin = outer or Pin(self.now())
        self._pins.pin = pin
        try:
            yield pin
        finally:
            self._pins.pin = outer

    @property
    def is_pinned(self) -> bool:
        """Whether this thread is answering a question, which keeps to one view."""
        return self._pin is not None

    @property
    def _pin(self) -> Pin | None:
        found: Pin | None = getattr(self._pins, "pin", None)
        return found
