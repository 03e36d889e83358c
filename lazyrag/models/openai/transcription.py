"""Transcripts of audio and video by an HTTP endpoint: `HttpTranscriber`."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any, Unpack

from lazyrag.errors import LoadError
from lazyrag.models import concurrency
from lazyrag.models.embedding import shown
from lazyrag.models.openai.client import Endpoint, EndpointError, EndpointOptions
from lazyrag.models.openai.models import _HttpModel
from lazyrag.validation import sendable, validate_integer, validate_text

_PATH = "/audio/transcriptions"
_TIMEOUT_S = 600.0  # servers are silent until all is transcribed
_FORMAT_REJECTED = {400, 415, 422}


@sendable
class HttpTranscriber(_HttpModel):
    """A media reader for audio and video: a speech model behind an endpoint with OpenAI's
    ``/audio/transcriptions``.

    The file is sent as it is, in one request; the pieces of the transcript keep their times, which
    become locations. A model that knows no times is called again for the text alone, and then its
    text has no locations.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to share.
        model: Name of the model on the server.
        language: ISO 639-1 code of the speech, such as ``"zh"``; "" lets the model detect it.
        max_bytes: Maximum size of a file. OpenAI accepts 25 MB; servers of your own usually more.
        api_key: See `Endpoint`, as for further keywords. Only with a URL.
        endpoint: Of these, ``timeout_s`` is 600 by default, as servers are silent until the whole
            file is transcribed.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.

    Example, with a server that runs on this machine::

        transcribe = HttpTranscriber("http://localhost:8000/v1", "whisper-1")
        register_media_reader("audio", transcribe)
        register_media_reader("video", transcribe)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        language: str = "",
        max_bytes: int = 25_000_000,
        api_key: str | None = None,
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        if not isinstance(base_url, Endpoint):
            endpoint.setdefault("timeout_s", _TIMEOUT_S)
        super().__init__("speech", base_url, model, api_key, endpoint)
        self.language = validate_text("language", language) if language != "" else ""
        self.max_bytes = validate_integer("max_bytes", max_bytes, 1)
        self._knows_times = True

    def __call__(self, path: Path) -> str | list[tuple[float, float, str]]:
        """Transcribe a file: its pieces (start, end, text), or a text without times.

        Raises:
            LoadError: If the file is too large, the server fails, or its answer cannot be used.
        """
        path = Path(path)
        size = path.stat().st_size
        if size > self.max_bytes:
            msg = f"The file has {size:,} bytes; max_bytes={self.max_bytes:,} is exceeded."
            raise LoadError(
                f"{msg} Cut it, compress it, or raise HttpTranscriber(max_bytes=...) if the server"
                " may."
            )
        try:
            return _pieces(concurrency.run(self._transcribe(path.name, path.read_bytes())))
        except EndpointError as exc:
            raise LoadError(self._message(exc)) from exc

    async def _transcribe(self, name: str, data: bytes) -> Any:
        fields = {"model": self.model}
        if self.language:
            fields["language"] = self.language
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        # servers know formats by suffix; names may be private
        file = (f"file{Path(name).suffix.lower()}", data, kind)
        if self._knows_times:
            times = {"response_format": "verbose_json", "timestamp_granularities[]": "segment"}
            try:
                return await self.endpoint.post_file(_PATH, fields | times, file)
            except EndpointError as exc:
                if exc.status not in _FORMAT_REJECTED:
                    raise
                rejected = exc
        try:
            answer = await self.endpoint.post_file(
                _PATH, fields | {"response_format": "json"}, file
            )
        except EndpointError as exc:
            if self._knows_times and exc.status in _FORMAT_REJECTED:
                raise rejected from None
            raise exc from None
        self._knows_times = False
        return answer


def _pieces(answer: Any) -> str | list[tuple[float, float, str]]:
    """The pieces of an answer; its text, if it has no times.

    Raises:
        EndpointError: If it has neither.
    """
    fields = answer if isinstance(answer, dict) else {}
    if segments := fields.get("segments"):
        try:
            pieces = [
                (float(segment["start"]), float(segment["end"]), str(segment["text"]))
                for segment in segments
            ]
        except (KeyError, TypeError, ValueError) as exc:
            msg = "the segments of the answer must be [{'start', 'end', 'text'}, ...]"
            raise EndpointError(f"{msg}; got {shown(segments)}.") from exc
        if all(0 <= start <= end < float("inf") for start, end, _ in pieces):
            return pieces
        raise EndpointError(
            f"the times of the answer must be 0 <= start <= end; got {shown(segments)}."
        )
    if not isinstance(text := fields.get("text"), str):
        raise EndpointError(f"the answer must be {{'text', 'segments'}}; got {shown(answer)}.")
    return text
