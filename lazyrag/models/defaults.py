"""The user's default models, endpoint and key, which ``lazyrag config`` stores; models by name."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError
from lazyrag.validation import validate_mapping

DEFAULTS = ("chat", "embed", "key", "url")
"""What can be stored: a chat model, an embedding model, an endpoint and its key."""
_OPENAI = "https://api.openai.com/v1"
_LOCAL = {"Ollama": 11434, "LM Studio": 1234}  # their usual ports
_VARIABLE = "APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME"
_PROBE_S = 0.25
_PROBE_BYTES = 64_000


def defaults_file() -> Path:
    """The file with the defaults, in the user's configuration folder.

    Raises:
        ConfigError: If the user has no home folder.
    """
    root = os.environ.get(_VARIABLE) or "~/.config"
    try:
        return Path(root).expanduser() / "lazyrag" / "config.json"
    except RuntimeError as exc:
        raise ConfigError(f"The home folder of this user is unknown. Set {_VARIABLE}.") from exc


def read_defaults() -> dict[str, str]:
    """The stored defaults by name; none where this user cannot reach the file.

    Raises:
        ConfigError: If the file is damaged.
    """
    try:
        path = defaults_file()
    except ConfigError:
        return {}
    try:
        stored = validate_mapping("its content", json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # as with the home folder of another user
    except (OSError, ValueError, RecursionError) as exc:
        raise ConfigError(
            f"{path} cannot be read ({exc}). Make it readable, or delete it and set its values"
            " again: lazyrag config set"
        ) from exc
    return {name: str(stored[name]) for name in DEFAULTS if stored.get(name)}


def write_default(name: str, text: str) -> bool:
    """Store a default, readable for the user alone.

    Args:
        name: One of `DEFAULTS`.
        text: Its value; "" removes it.

    Returns:
        Whether this removed the key: it is for the endpoint that it was set for, and no other.

    Raises:
        ConfigError: If the value or the file is not usable.
    """
    before = read_defaults()
    stored = {**before, name: _checked(name, text.strip())}
    drops_key = "key" in before and _endpoint_of(stored) != _endpoint_of(before)
    if drops_key:
        del stored["key"]
    path = defaults_file()
    draft = path.with_name("config.json.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            path.read_bytes()  # values that cannot be read would be lost
        draft.unlink(missing_ok=True)  # the mode of an existing file would stay
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_text(json.dumps(stored, indent=1), encoding="utf-8")
        draft.replace(path)
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be written ({exc.strerror}). Make it and its folder writable, or set"
            f" {_VARIABLE} to another folder."
        ) from exc
    return drops_key


def _endpoint_of(stored: Mapping[str, str]) -> str:
    return _without_slash(stored.get("url") or _OPENAI)


def _without_slash(url: str) -> str:
    return url.strip().rstrip("/")


def _checked(name: str, text: str) -> str:
    """A value as it is stored: a folder as an absolute path."""
    if name == "url" and text:
        from lazyrag.models.openai.client import checked_url

        return checked_url(text)
    if name == "key" and not (text.isascii() and text.isprintable()):
        raise ConfigError(
            "key must be ASCII characters on one line; its value is not shown. Copy it again, and"
            " run: lazyrag config set key"
        )
    if name == "embed" and text == "openai:":
        raise ConfigError(
            'embed lacks the name of the model after "openai:". Run: lazyrag config set embed'
            " openai:NAME"
        )
    if name == "embed" and text and not text.startswith("openai:"):
        from lazyrag.models.onnx.hub import find_model

        find_model(text)  # raises if it is not on this machine
        return str(Path(text).absolute()) if Path(text).is_dir() else text
    return text


def base_url() -> str:
    """The OpenAI-compatible endpoint of the environment, else that of the defaults."""
    return _without_slash(os.environ.get("OPENAI_BASE_URL") or _endpoint_of(read_defaults()))


def api_key(url: str) -> str | None:
    """The key for an endpoint; None where the environment's LAZYRAG_API_KEY is to be taken.

    The key of the defaults is for their endpoint alone: no other server may read it.
    """
    key = os.environ.get("OPENAI_API_KEY")
    if key or os.environ.get("LAZYRAG_API_KEY"):
        return key or None
    stored = read_defaults()
    return stored.get("key") if _endpoint_of(stored) == _without_slash(url) else None


def make_embedder(model: str | os.PathLike[str]) -> Any:
    """The embedding model of a name: a folder, the id of a fetched model, or ``"openai:NAME"``.

    Raises:
        ConfigError: If it is not on this machine.
        MissingDependencyError: If it needs a package that is not installed.
    """
    kind, _, name = os.fspath(model).partition(":")
    if kind == "openai" and name:
        from lazyrag.models.openai.models import HttpEmbedder

        url = base_url()
        return HttpEmbedder(url, name, api_key=api_key(url))
    from lazyrag.models.onnx.models import OnnxEmbedder

    return OnnxEmbedder(model)


def make_chat_model(name: str | None = None) -> Any:
    """The chat model of a name at the default endpoint.

    Args:
        name: None for that of LAZYRAG_MODEL, else of the defaults; "" for none.

    Raises:
        MissingDependencyError: If the extra ``openai`` is not installed.
    """
    if name is None:
        name = os.environ.get("LAZYRAG_MODEL", read_defaults().get("chat"))
    if not name:
        return None
    from lazyrag.models.openai.models import HttpChatModel

    url = base_url()
    return HttpChatModel(url, name, api_key=api_key(url))


def load_embedders(embed: Any) -> Any:
    """An ``embed`` of a Document with the models that it names, alone or by embed key."""
    if isinstance(embed, Mapping):
        return {key: load_embedders(model) for key, model in embed.items()}
    return make_embedder(embed) if isinstance(embed, (str, os.PathLike)) else embed


def find_local_models() -> Iterator[tuple[str, str, str]]:
    """Yield the program, endpoint and first model of servers that answer on this machine.

    They are only named: nothing uses one that the user did not choose.
    """
    for program, port in _LOCAL.items():
        try:
            name = str(_list_models(port)["data"][0]["id"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue  # nothing, or another program, is there
        yield program, f"http://127.0.0.1:{port}/v1", name


def _list_models(port: int) -> Any:
    """What a server on this machine says of its models. It may be any program: its answer has a
    limit of time in all, and of size.
    """
    deadline = time.monotonic() + _PROBE_S
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=_PROBE_S) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        while len(answer) < _PROBE_BYTES and (rest_s := deadline - time.monotonic()) > 0:
            connection.settimeout(rest_s)
            piece = connection.recv(_PROBE_BYTES)
            if not piece:
                break
            answer += piece
    return json.loads(answer.partition(b"\r\n\r\n")[2])
