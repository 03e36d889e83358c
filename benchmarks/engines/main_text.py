"""What finds the main text of a page: our loader, and trafilatura."""

from __future__ import annotations

import importlib.metadata
import logging
import time
from pathlib import Path
from typing import Any


class Engine:
    """One way to find the main text."""

    packages: tuple[str, ...] = ()

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        return {name: importlib.metadata.version(name) for name in self.packages}

    def measure(self, path: str) -> dict[str, Any]:
        """The main text of a page, and the processor seconds that it takes."""
        started = time.process_time()
        text = self.read(Path(path))
        return {"seconds": time.process_time() - started, "text": text}

    def read(self, path: Path) -> str:
        """The main text of a page."""
        raise NotImplementedError


class Lazyrag(Engine):
    """Our loader."""

    main_text = True

    def __init__(self) -> None:
        super().__init__()
        from lazyrag.loaders.html import HtmlLoader

        self._loader = HtmlLoader(main_text=self.main_text)

    def read(self, path: Path) -> str:
        """As crawled pages are read."""
        return self._loader.load(path).text


class WholePage(Lazyrag):
    """Our loader, of everything."""

    main_text = False


class Trafilatura(Engine):
    """The library, as its own evaluation calls it."""

    packages = ("trafilatura",)

    def __init__(self) -> None:
        super().__init__()
        from trafilatura import extract

        self._extract = extract

    def read(self, path: Path) -> str:
        """With tables, without comments, with its fallbacks."""
        return self._extract(path.read_bytes(), include_comments=False, include_tables=True) or ""
