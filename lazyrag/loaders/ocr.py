"""Text recognition (OCR): words of a page's image by `RapidOcr` on this machine, or by `HttpOcr`, a
service.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.util
import json
import operator
import re
import threading
import unicodedata
import urllib.error
import urllib.request
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyrag.data.pictures import write_png
from lazyrag.data.segment import digest
from lazyrag.errors import ConfigError, LoadError, missing_package, sentence
from lazyrag.loaders.pdf_layout import letters, turned
from lazyrag.loaders.pdf_lines import BLANK, Glyph
from lazyrag.types import AnyCallable, JsonMapping
from lazyrag.validation import (
    known_arguments,
    require,
    validate_choice,
    validate_integer,
    validate_seconds,
)


class OcrWord(NamedTuple):
    """A word in an image; its edges are shares of the image's width and height, from the top left.

    Args:
        text: Its letters, with a blank at the end if one follows on the line, or a line end after
            its last word.
        x0: Left edge, in [0, 1].
        y0: Top edge.
        x1: Right edge.
        y1: Bottom edge.
        turn: Quarter turns of its line to the left: 3 for a line that is read downwards.
    """

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    turn: int = 0


Ocr: TypeAlias = "Callable[[np.ndarray], str | Sequence[OcrWord]]"
"""Recognizes the text in an image of a page, (height, width, 3) uint8, RGB: as a text, or as words
with their boxes."""

_BASE = 0.2  # of a line's height, from its lower edge
_FEW_LETTERS = 100  # on a scanned page: a page number, a stamp, a line of the scanner's program
_NO_LETTERS = frozenset(["Cc", "Cn", "Co", "Cs"])


def word_glyphs(
    words: Iterable[OcrWord],
    shape: Sequence[int],
    placed: Callable[[str, int], str] = lambda text, _: text,
) -> Iterator[Glyph]:
    """Words as characters of a page, for its layout.

    Args:
        words: In the order of the lines.
        shape: Height and width of the image.
        placed: From the letters of a word and its number to letters that know their place.
    """
    height, width = shape[:2]
    lines: list[list[tuple[int, OcrWord]]] = []
    is_new = True
    for number, word in enumerate(words):
        if is_new or lines[-1][-1][1].y0 != word.y0:
            lines.append([])
        lines[-1].append((number, word))
        is_new = word.text.endswith("\n")
    # Lines at one height, as of two columns, are not drawn one after the other: they would be taken
    # for one.
    lines.sort(key=lambda line: line[0][1][1:3])
    for number, word in chain.from_iterable(lines):
        left = word.x0 * width
        right = word.x1 * width
        bottom = (1 - word.y1) * height
        top = (1 - word.y0) * height
        size = (right - left if word.turn % 2 else top - bottom) or 1.0
        rise = _BASE * size
        start = [
            (left, bottom + rise),
            (right - rise, bottom),
            (right, top - rise),
            (left + rise, top),
        ][word.turn]
        text = placed(letters(word.text.strip()), number)
        if text.strip():
            yield Glyph(
                text, *turned(word.turn, (left, bottom, right, top), start), size, word.turn
            )
        if word.text.endswith(" ") and not word.turn:
            yield BLANK


def is_garbled(text: str) -> bool:
    """Whether a fifth of a text layer are no letters: its fonts do not tell which ones they draw.

    Example:
        >>> is_garbled("\ue001\ue002 tea"), is_garbled("green tea")
        (True, False)
    """
    visible = [character for character in text if not character.isspace()]
    wrong = sum(
        character == "\ufffd" or unicodedata.category(character) in _NO_LETTERS
        for character in visible
    )
    return 5 * wrong >= max(1, len(visible))


_UNKNOWN = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010ffff]")


def is_unreadable(text: str) -> bool:
    """Whether a text layer has fewer letters than characters without a meaning, as of private use.

    Example:
        >>> is_unreadable("\ue001\ue002\ue003 a"), is_unreadable("\uf0a8 yes \uf0a8 no")
        (True, False)
    """
    unknown = len(_UNKNOWN.findall(text))
    return unknown > 0 and unknown > sum(map(str.isalnum, text))


def has_few_letters(text: str) -> bool:
    """Whether a text layer is too short for the words of a scanned page."""
    return sum(map(str.isalnum, text)) < _FEW_LETTERS


def _units(text: str) -> float:
    """Width of a text in font sizes, roughly."""
    return sum(
        1.0 if unicodedata.east_asian_width(character) in "WF" else 0.5 for character in text
    )


_PIECE = re.compile(
    r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+"
)


def box_words(text: str, box: Sequence[float], size: Sequence[float]) -> list[OcrWord]:
    r"""Words of a line or a paragraph in its box: an estimate, for services that locate no words.

    Args:
        text: Its text.
        box: Left, top, right and bottom edge.
        size: Width and height of the image in the same unit.

    Example:
        >>> [(word.text, word.x0) for word in box_words("green tea", (0, 0, 90, 20), (90, 100))]
        [('green ', 0.0), ('tea\n', 0.6666666666666666)]
    """
    text = " ".join(text.split())
    left, top, right, bottom = box
    wide = max(right - left, 1e-6)
    high = max(bottom - top, 1e-6)
    units = _units(text) or 1.0
    count = max(1, round((units * high / (1.2 * wide)) ** 0.5))  # of lines
    width = units / count
    words = []
    at = 0.0
    for piece in _PIECE.finditer(text):
        piece_units = _units(piece[0])
        line = min(count - 1, int((at + piece_units / 2) / width))
        start = at - line * width
        edges = (
            left + wide * max(0.0, start) / width,
            left + wide * min(width, start + piece_units) / width,
        )
        upper = top + high * line / count
        blank = {" ": " ", "": "\n"}.get(text[piece.end() : piece.end() + 1], "")
        at += piece_units + 0.5 * (blank == " ")
        words.append(
            OcrWord(
                piece[0] + blank,
                edges[0] / size[0],
                upper / size[1],
                edges[1] / size[0],
                (upper + high / count) / size[1],
            )
        )
    return words


# On this machine

_MOST_PIXELS = 1_600  # of the longer side, where lines are searched
_SURE = 0.9  # mean score of a page that is not upside down
_ENGINE = threading.Lock()
_engines: dict[tuple[str, int], Any] = {}


@known_arguments
class RapidOcr:
    """OCR on this machine's CPU by rapidocr, for English and Chinese. Its wheel has the models;
    nothing is downloaded.

    Each process has one engine, which reads one page at a time.

    Args:
        models: A folder with other models in rapidocr's ONNX format, one ``*det*.onnx`` and one
            ``*rec*.onnx``, such as for other languages. None for those in rapidocr's wheel.
        threads: Threads of the engine.
        max_seconds: Timeout for a page, which is left out then, and noted.

    Raises:
        ConfigError: If an argument is out of its range, or the models are missing.
        MissingDependencyError: If the extra ``ocr`` is not installed.
    """

    def __init__(
        self, models: Path | str | None = None, *, threads: int = 2, max_seconds: float = 120.0
    ) -> None:
        self.threads = validate_integer("threads", threads, 1)
        self.max_seconds = validate_seconds("max_seconds", max_seconds)
        require(
            models is None or isinstance(models, (str, Path)),
            "models",
            models,
            "the path of a folder, or None",
        )
        if (spec := importlib.util.find_spec("rapidocr")) is None:
            raise missing_package("RapidOcr", "rapidocr", "ocr")
        self.models = str(models or Path(str(spec.origin)).parent / "models")
        self.identity = f"rapidocr {' '.join(path.stem for path in self._files())}"

    def __repr__(self) -> str:
        return f"RapidOcr(models={self.models!r})"

    def _files(self) -> list[Path]:
        folder = Path(self.models)
        detection = sorted(folder.glob("*det*.onnx"))
        recognition = sorted(folder.glob("*rec*.onnx"))
        if len(detection) != 1 or len(recognition) != 1:
            raise ConfigError(
                "models must be a folder with one *det*.onnx and one *rec*.onnx; got"
                f" {self.models!r}."
                " None are downloaded: install rapidocr 3.10, whose wheel has them, or fetch"
                " others."
            )
        return detection + recognition

    def __call__(self, image: np.ndarray) -> list[OcrWord]:
        """Recognize the words in an image: (height, width, 3) uint8, RGB."""
        import onnxruntime  # imports slowly, as does the engine

        options = onnxruntime.RunOptions()
        timer = threading.Timer(self.max_seconds, setattr, (options, "terminate", True))
        with _ENGINE:
            engine = self._engine()
            for part in (engine.text_det, engine.text_rec):
                part.session.options = options
            timer.start()
            try:
                return _best_words(engine, image)
            except Exception as exc:
                if options.terminate:
                    raise TimeoutError(
                        f"OCR took longer than {self.max_seconds:g} s; allow more:"
                        " RapidOcr(max_seconds=...)"
                    ) from exc
                raise
            finally:
                timer.cancel()

    def _engine(self) -> Any:
        key = self.models, self.threads
        if key not in _engines:
            _engines.clear()  # one in each process
            from rapidocr import RapidOCR

            detection, recognition = self._files()
            _require_characters(recognition)
            settings = {
                "Global.log_level": "critical",
                "Global.use_cls": False,  # it takes whole lines for upside down
                "Global.max_side_len": 1 << 16,
                "Det.limit_type": "max",
                "Det.limit_side_len": _MOST_PIXELS,
                "Det.model_path": str(detection),
                "Rec.model_path": str(recognition),
                "Rec.rec_batch_num": 1,  # not slower, with half of the memory
                "EngineConfig.onnxruntime.intra_op_num_threads": self.threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
            engine: Any = RapidOCR(params=settings)
            for part in (engine._load_det_model(), engine._load_rec_model()):
                part.session = _Session(part.session.session)
            _engines[key] = engine
        return _engines[key]


class _Session:
    """A model that a timer can stop."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.options = None
        self._input = session.get_inputs()[0].name

    def __call__(self, content: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, {self._input: content}, self.options)[0])


def _require_characters(model: Path) -> None:
    """Refuse a model for which rapidocr would download a list of characters."""
    import onnxruntime

    metadata = onnxruntime.InferenceSession(str(model)).get_modelmeta().custom_metadata_map
    if "character" not in metadata:
        msg = (
            f"The model {model} has no list of characters in its metadata, and none is downloaded."
        )
        raise ConfigError(f"{msg} Use one in rapidocr's ONNX format.")


def _best_words(engine: Any, image: np.ndarray) -> list[OcrWord]:
    """The words of an image; of one that reads badly, also turned upside down."""
    words, score = _read(engine, image)
    if not words or score >= _SURE:
        return words
    turned_words, turned_score = _read(engine, image[::-1, ::-1])
    if turned_score <= score:
        return words
    return [
        OcrWord(word.text, 1 - word.x1, 1 - word.y1, 1 - word.x0, 1 - word.y0, (word.turn + 2) % 4)
        for word in turned_words
    ]


def _read(engine: Any, image: np.ndarray) -> tuple[list[OcrWord], float]:
    """The words of an image, and their mean score."""
    result = engine(np.ascontiguousarray(image[:, :, ::-1]), return_word_box=True)
    if getattr(result, "txts", None) is None or result.boxes is None:
        return [], 0.0
    counts = list(map(len, result.txts))
    total = sum(map(operator.mul, counts, map(float, result.scores)))
    score = total / (sum(counts) or 1)
    return [*_engine_words(result, image.shape), *_upward_words(engine, result, image)], score


def _engine_words(result: Any, shape: Sequence[int]) -> list[OcrWord]:
    """Words with their boxes; where the engine gives none for a line, estimated ones."""
    height, width = shape[:2]
    placed = result.word_results
    if len(placed) != len(result.txts):
        placed = [()] * len(result.txts)
    words = []
    for text, box, score, parts in zip(
        result.txts, result.boxes, result.scores, placed, strict=True
    ):
        left, top, right, bottom = _bounds(box)
        if _is_vertical(text, box):  # the engine reads it downwards
            if score >= _SURE:
                words.append(
                    OcrWord(
                        f"{text}\n", left / width, top / height, right / width, bottom / height, 3
                    )
                )
            continue
        line = _line_words(text, (top, bottom), parts, (width, height))
        is_complete = "".join(word.text for word in line).split() == text.split()
        words += (
            line if is_complete else box_words(text, (left, top, right, bottom), (width, height))
        )
    return words


def _line_words(
    text: str, edges: tuple[float, float], parts: Any, size: tuple[int, int]
) -> list[OcrWord]:
    """The words of a line that the engine locates; [] if one is not in its text.

    Args:
        text: Of the line.
        edges: Its top and bottom.
        parts: The words with their boxes.
        size: Width and height of the image.
    """
    width, height = size
    top, bottom = edges
    words = []
    at = 0
    for part in parts if isinstance(parts, tuple) else ():
        start = text.find(part[0], at) if part[0] else -1
        if start < 0:
            return []
        at = start + len(part[0])
        left, _, right, _ = _bounds(part[2])
        blank = {" ": " ", "": "\n"}.get(text[at : at + 1], "")
        words.append(
            OcrWord(part[0] + blank, left / width, top / height, right / width, bottom / height)
        )
    return words


def _is_vertical(text: str, box: Any) -> bool:
    left, top, right, bottom = _bounds(box)
    return bottom - top >= 1.5 * (right - left) and len(text) > 1


def _upward_words(engine: Any, result: Any, image: np.ndarray) -> Iterator[OcrWord]:
    """Vertical lines that read badly downwards, such as a stamp along the edge, read upwards."""
    height, width = image.shape[:2]
    for text, box, score in zip(result.txts, result.boxes, result.scores, strict=True):
        if score >= _SURE or not _is_vertical(text, box):
            continue
        left, top, right, bottom = map(round, _bounds(box))
        crop = np.ascontiguousarray(np.rot90(image[top:bottom, left:right, ::-1], 3))
        turn = 3
        if crop.size:
            upwards = engine.recognize_txt([crop])
            if upwards.scores[0] > score:
                text = upwards.txts[0]  # noqa: PLW2901  the better one
                turn = 1
        yield OcrWord(f"{text}\n", left / width, top / height, right / width, bottom / height, turn)


def _bounds(box: Any) -> tuple[float, float, float, float]:
    corners = np.asarray(box, float)
    left, top = corners.min(axis=0)
    right, bottom = corners.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


# By content

_MEMORY = 64
_memory: OrderedDict[tuple[str | None, str], Any] = OrderedDict()
_MEMORY_LOCK = threading.Lock()


class CachedOcr:
    """OCR whose results are stored by the content of the image.

    Each file is encrypted with a key that is made of the image, so that nobody reads the words of a
    deleted document who does not have its pages.

    Args:
        ocr: The OCR; its ``identity`` names what affects its results.
        folder: Folder of the results; None keeps those of the last 64 pages in memory.
    """

    def __init__(self, ocr: Any, folder: Path | str | None = None) -> None:
        self.ocr = ocr
        self.folder = None if folder is None else str(folder)
        self.identity = str(ocr.identity)

    def __repr__(self) -> str:
        return repr(self.ocr)

    def __call__(self, image: np.ndarray) -> str | list[OcrWord]:
        """The result of an image: stored, or recognized now."""
        content = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=32).hexdigest()
        shape = str(image.shape)
        key = digest(["key", self.identity, shape, content])
        secret = digest(["secret", self.identity, shape, content])
        with _MEMORY_LOCK:
            result = _memory.get((self.folder, key))
        if result is None:
            result = self._stored(key, secret)
            if result is None:
                result = self.ocr(image)
                self._store(key, secret, result)
            with _MEMORY_LOCK:
                _memory[self.folder, key] = result
                while len(_memory) > _MEMORY:
                    _memory.popitem(last=False)
        return result if isinstance(result, str) else list(result)

    def _stored(self, key: str, secret: str) -> Any:
        if self.folder is None:
            return None
        # missing, or torn by a crash of the machine
        with suppress(OSError, ValueError, TypeError, zlib.error):
            data = _sealed(Path(self.folder, key).read_bytes(), secret)
            result = json.loads(zlib.decompress(data))
            return result if isinstance(result, str) else [OcrWord(*fields) for fields in result]
        return None

    def _store(self, key: str, secret: str, result: Any) -> None:
        if self.folder is None:
            return
        path = Path(self.folder, key)
        draft = path.with_suffix(f".{uuid.uuid4().hex}")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_sealed(zlib.compress(json.dumps(result).encode()), secret))
        draft.replace(path)


def _sealed(data: bytes, secret: str) -> bytes:
    """Encrypt or decrypt."""
    stream = hashlib.shake_256(secret.encode()).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


# Services

_ANSWER_BYTES = 1 << 26
_SHOWN = 200


@known_arguments
class HttpOcr:
    """OCR by a service over HTTP, such as one with a GPU. It gets the images of pages; redirects
    are not followed.

    Args:
        service: Its protocol: ``"docling"`` (docling-serve, v1), ``"mineru"`` (mineru-api,
            ``/file_parse``) or ``"paddleocr"`` (PaddleX basic serving of the pipeline OCR).
        url: Its address: ``"http://host:5001"``.
        key: Its API key; "" for none.
        timeout: Seconds without an answer after which a file fails.

    Raises:
        ConfigError: If an argument is invalid.
    """

    def __init__(self, service: str, url: str, *, key: str = "", timeout: float = 120.0) -> None:
        self.service = validate_choice("service", service, SERVICES)
        is_url = isinstance(url, str) and bool(re.match(r"https?://[^/@\s]+(/[^?#\s]*)?$", url))
        require(
            is_url, "url", url, "an address such as 'http://host:5001', without a user or query"
        )
        # errors of headers show them
        is_key = isinstance(key, str) and key.isascii() and key.isprintable()
        require(
            is_key,
            "key",
            type(key).__name__,
            "a text of printable ASCII characters without a line end",
        )
        self.url = url.rstrip("/")
        self._key = key
        self.timeout = validate_seconds("timeout", timeout)
        self.identity = f"http {service}"

    def __repr__(self) -> str:
        return f"HttpOcr({self.service!r}, {self.url!r})"

    def __call__(self, image: np.ndarray) -> list[OcrWord]:
        """Recognize the words in an image: (height, width, 3) uint8, RGB."""
        try:
            return list(SERVICES[self.service](self._post, write_png(image), image.shape))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
            problem = f"{type(exc).__name__}: {exc}"
            msg = (
                f"The OCR service at {self.url} answered, but not as {self.service} does"
                f" ({problem:.{_SHOWN}})."
            )
            raise LoadError(f"{msg} Check service= and url=.") from exc

    def _post(self, path: str, body: bytes, kind: str, **headers: str) -> Any:
        fields = {"Content-Type": kind, "Accept": "application/json"}
        if self._key:
            fields |= {
                name.replace("_", "-"): value.format(self._key) for name, value in headers.items()
            }
        request = urllib.request.Request(  # noqa: S310  http or https
            self.url + path, body, fields, method="POST"
        )
        where = f"The OCR service at {self.url}"
        try:
            with _OPENER.open(request, timeout=self.timeout) as answer:
                data = answer.read(_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as exc:
            with exc:
                reply = exc.read(4 * _SHOWN).decode("utf-8", "replace").strip()
            reply = reply.replace(self._key, "...") if self._key else reply
            hint = "Check key=." if exc.code in (401, 403) else "Check service= and url=."
            msg = sentence(
                f"{where} answered {exc.code} {exc.reason}: {reply:.{_SHOWN}}".rstrip(": ")
            )
            raise LoadError(f"{msg} {hint}") from None
        except TimeoutError as exc:
            msg = f"{where} did not answer within {self.timeout:g} s."
            raise LoadError(f"{msg} Allow more: HttpOcr(timeout=...).") from exc
        except OSError as exc:
            reason = getattr(exc, "reason", exc)
            if isinstance(reason, TimeoutError):
                raise LoadError(
                    f"{where} did not answer within {self.timeout:g} s. Is it started?"
                ) from exc
            raise LoadError(
                f"{where} cannot be reached ({reason}). Start it, or check url=."
            ) from exc
        if len(data) > _ANSWER_BYTES:
            raise LoadError(
                f"{where} answered with more than {_ANSWER_BYTES >> 20} MiB for one page. Check"
                " url=."
            )
        return json.loads(data)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Redirects are errors: a request carries the user's page and key."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _docling(post: AnyCallable, image: bytes, _: Sequence[int]) -> Iterator[OcrWord]:
    """See https://github.com/docling-project/docling-serve: ``/v1/convert/file``."""
    fields = {
        "to_formats": "json",
        "do_ocr": "true",
        "force_ocr": "true",
        "image_export_mode": "placeholder",
    }
    answer = post("/v1/convert/file", *_multipart(image, fields), X_Api_Key="{}")
    document = answer["document"]["json_content"]
    if document is None:
        raise ValueError(str(answer.get("errors") or answer.get("status")))
    size = next(iter(document["pages"].values()))["size"]
    size = size["width"], size["height"]
    for text in document.get("texts", ()):
        if text.get("prov"):
            yield from box_words(text["text"], _docling_box(text["prov"][0]["bbox"], size[1]), size)
    for table in document.get("tables", ()):
        for cell in table["data"]["table_cells"]:
            if cell.get("bbox"):
                yield from box_words(cell["text"], _docling_box(cell["bbox"], size[1]), size)


def _docling_box(box: JsonMapping, height: float) -> tuple[float, float, float, float]:
    top = box["t"]
    bottom = box["b"]
    if box.get("coord_origin", "BOTTOMLEFT") == "BOTTOMLEFT":
        top = height - top
        bottom = height - bottom
    return box["l"], min(top, bottom), box["r"], max(top, bottom)


def _mineru(post: AnyCallable, image: bytes, _: Sequence[int]) -> Iterator[OcrWord]:
    """See https://github.com/opendatalab/MinerU: ``/file_parse`` of mineru-api."""
    fields = {"parse_method": "ocr", "return_md": "false", "return_middle_json": "true"}
    answer = post("/file_parse", *_multipart(image, fields), Authorization="Bearer {}")
    document = next(iter(answer["results"].values()))["middle_json"]
    document = json.loads(document) if isinstance(document, str) else document
    for page in document["pdf_info"]:
        for span in _spans(page["para_blocks"]):
            text = span.get("content") or html.unescape(
                re.sub("<[^>]*>", " ", span.get("html") or "")
            )
            yield from box_words(text, span["bbox"], page["page_size"])


def _spans(blocks: Iterable[JsonMapping]) -> Iterator[JsonMapping]:
    for block in blocks:
        yield from _spans(block.get("blocks", ()))
        for line in block.get("lines", ()):
            yield from line["spans"]


def _paddleocr(post: AnyCallable, image: bytes, shape: Sequence[int]) -> Iterator[OcrWord]:
    """See https://github.com/PaddlePaddle/PaddleOCR: ``/ocr`` of PaddleX's basic serving."""
    body = {"file": base64.b64encode(image).decode(), "fileType": 1, "visualize": False}
    body |= dict.fromkeys(("useDocOrientationClassify", "useDocUnwarping"), False)
    answer = post("/ocr", json.dumps(body).encode(), "application/json", Authorization="token {}")
    result = answer["result"]["ocrResults"][0]["prunedResult"]
    for text, box in zip(result["rec_texts"], result["rec_boxes"], strict=True):
        yield from box_words(text, box, (shape[1], shape[0]))


SERVICES: Mapping[str, Callable[..., Iterator[OcrWord]]] = {
    "docling": _docling,
    "mineru": _mineru,
    "paddleocr": _paddleocr,
}
"""Adapters of services: from a function that posts, a PNG and its shape to words."""


def _multipart(image: bytes, fields: Mapping[str, str]) -> tuple[bytes, str]:
    """A form with a file, and its content type."""
    mark = uuid.uuid4().hex
    lines = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n'
        for name in fields
    ]
    lines.append(
        f'--{mark}\r\nContent-Disposition: form-data; name="files"; filename="page.png"\r\n'
    )
    head = "".join([*lines, "Content-Type: image/png\r\n\r\n"]).encode()
    return head + image + f"\r\n--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"
