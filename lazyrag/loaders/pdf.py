"""PDF documents."""

from __future__ import annotations

import functools
import logging
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lazyrag.errors import LoadError, sentence
from lazyrag.loaders.base import LoadedFile, join_parts
from lazyrag.loaders.limits import check_pages

# PDF writers map glyphs back to radicals (U+2F46 for U+65E0, U+2ED3 for U+957F) and ligatures; a reader means the
# letters. Those without a compatibility mapping are Unicode's equivalent unified ideographs.
_RADICALS: dict[int, int] = str.maketrans(
    "\u2e81\u2e84\u2e88\u2e8a\u2e8c\u2e8d\u2e92\u2e93\u2e96\u2e98\u2e99\u2e9b\u2e9c\u2e9d\u2e9e\u2e9f\u2ea0"
    "\u2ea1\u2ea3\u2ea4\u2ea5\u2ea6\u2ea7\u2ea8\u2ea9\u2eab\u2eac\u2ead\u2eaf\u2eb0\u2eb1\u2eb2\u2eb6\u2eb9"
    "\u2eba\u2ebb\u2ebc\u2ebe\u2ebf\u2ec0\u2ec1\u2ec2\u2ec3\u2ec4\u2ec5\u2ec6\u2ec8\u2ec9\u2ecb\u2ecc\u2ecd"
    "\u2ece\u2ed0\u2ed1\u2ed3\u2ed4\u2ed6\u2ed7\u2ed8\u2ed9\u2eda\u2edb\u2edc\u2edd\u2edf\u2ee0\u2ee2\u2ee3"
    "\u2ee4\u2ee5\u2ee6\u2ee7\u2ee8\u2ee9\u2eea\u2eeb\u2eec\u2eed\u2eee\u2eef\u2ef0\u2ef1\u2ef2\u2ef3",
    "厂乙刀卜小小巳幺忄扌攵旡日月歺母民氵灬爫爫丬牛犭王目示礻糹纟罓罒羊耂肀聿肉艹艹艹虎衤覀西见角讠贝车辶"
    "辶辶钅長长门阝雨青韦页风飞食飠饣马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟",
)
_LETTERS: dict[int, str | int] = {
    **{
        code: letter
        for first, last in ((0x2E80, 0x2FDF), (0xF900, 0xFAFF), (0xFB00, 0xFB06))
        for code in range(first, last + 1)
        if (letter := unicodedata.normalize("NFKC", chr(code))) != chr(code)
    },
    **_RADICALS,
}


class PdfLoader:
    """Reads the text layer of a PDF, page by page; each page is a place. Title and author become metadata."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        import pypdf  # a tenth of a second to import
        from pypdf.errors import DependencyError, FileNotDecryptedError

        try:
            with _unheard():
                reader = pypdf.PdfReader(path)
                check_pages(len(reader.pages))
                pages = [(page.extract_text() or "").translate(_LETTERS).strip() for page in reader.pages]
                information = reader.metadata
                said = {"title": information.title, "author": information.author} if information else {}
        except FileNotDecryptedError as exc:
            msg = "The PDF is encrypted and needs a password. Save it again without one."
            raise LoadError(msg) from exc
        except DependencyError as exc:
            why = sentence(f"The PDF is encrypted: {exc}")
            msg = f'{why} Install what reads it with: pip install "lazyrag[pdf]"'
            raise LoadError(msg) from exc
        if not any(pages):
            msg = f"The PDF has no text layer on its {len(pages)} pages; they need text recognition first."
            raise LoadError(msg)
        text, places = join_parts(pages, [("page", str(number)) for number in range(1, len(pages) + 1)])
        metadata = {name: value.strip() for name, value in said.items() if isinstance(value, str) and value.strip()}
        return LoadedFile(text, places, metadata)


class _OfOtherThreads(logging.Filter):
    """Lets through what other threads log than those that are inside of `_unheard`."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[int] = []

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return threading.get_ident() not in self.inside


_others = _OfOtherThreads()
_changing_filters = threading.Lock()


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep from the log what pypdf says of a file's flaws in this thread: what matters of them is reported by us.

    A logger does not pass its filters on to those beneath it, so each of them gets ours, until the last thread is done.
    """
    with _changing_filters:
        _others.inside.append(threading.get_ident())
        for logger in _loggers():
            logger.addFilter(_others)
    try:
        yield
    finally:
        with _changing_filters:
            _others.inside.remove(threading.get_ident())
            for logger in () if _others.inside else _loggers():
                logger.removeFilter(_others)


@functools.cache
def _loggers() -> tuple[logging.Logger, ...]:
    """The loggers of pypdf's modules, which bear their names; some are imported in the midst of reading."""
    import pypdf

    root = Path(pypdf.__file__).parent
    names = (".".join(file.relative_to(root.parent).with_suffix("").parts) for file in root.rglob("*.py"))
    return tuple(logging.getLogger(name.removesuffix(".__init__")) for name in names)
