"""The folder ``.lazyrag``: a store, and what ``lazyrag index`` was given."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, DatasetPathError, StoreError
from lazyrag.loaders.directory import STORE_FOLDER
from lazyrag.models.defaults import base_url, make_embedder, read_defaults
from lazyrag.types import JsonObject, PathLike
from lazyrag.validation import folder_path, known_keywords, require, validate_boolean, without_none

if TYPE_CHECKING:
    from lazyrag.data.fields import DocField
    from lazyrag.document import Document, FileSelection


_CONFIG = "config.json"
_FORMAT = 1
_EMBED = (
    "a string: a folder, the id of a fetched model, 'openai:NAME' or ''; for a function of your own"
    " use Document(folder, embed, store_conf=...)"
)


@dataclass(frozen=True, slots=True)
class Project:
    """An indexed folder.

    Args:
        store: The folder with the store: ``.lazyrag``.
        folder: The folder with the files.
        group: The node group to search.
        embed: The embedding model: a folder or a name, or ``"openai:NAME"`` at an endpoint; "" for
            none.
        url: The endpoint of an ``"openai:NAME"``; "" in the settings of earlier releases.
        ocr: ``"rapidocr"`` if scanned pages and images are read by OCR; else "".
        fields: ``"labels"`` once `lazyrag serve` has declared the field, which tokens with labels
            need; else "".
    """

    store: Path
    folder: Path
    group: str = "MediumChunk"
    embed: str = ""
    url: str = ""
    fields: str = ""
    ocr: str = ""

    @property
    def store_conf(self) -> JsonObject:
        """The `store_conf` of its Document."""
        return {"segment_store": {"type": "map", "kwargs": {"uri": str(self.store / "store.db")}}}

    @property
    def exists(self) -> bool:
        """Whether it has an index."""
        return (self.store / "store.db").exists()

    def with_options(self, **options: Any) -> Project:
        """The project with other settings; None leaves one as it is. A new model comes from
        OPENAI_BASE_URL.
        """
        if options.get("embed") is not None:
            options["url"] = base_url() if options["embed"].startswith("openai:") else ""
        return replace(self, **without_none(options))

    def open(
        self,
        *,
        write: bool = False,
        with_files: bool | None = None,
        embeds: bool = True,
        loading: str | None = None,
        files: FileSelection | None = None,
        **chosen: Any,
    ) -> Document:
        """Open the Document, read-only by default.

        Args:
            write: Open it for writing; makes the folder of the store.
            with_files: Open it with its files, to compare or sync them. Default: ``write``.
            embeds: Load the embedding model.
            loading: See `lazyrag.ingest.load_files.parse_loading`.
            files: Which files are read, see `choose_files`.
            chosen: Argument ``launcher`` of the Document.

        Raises:
            StoreError: If there is nothing to read yet, or the folder of the store cannot be made.
            ConfigError: If the embedding model is not on this machine, or its endpoint is not that
                of the environment.
        """
        from lazyrag.document import Document
        from lazyrag.ingest.load_files import parse_loading

        embed = self._load_embedder() if self.embed and embeds else None
        with_files = write if with_files is None else with_files
        self._check_folders(write=write, with_files=with_files)
        if write and not (self.store / ".gitignore").exists():
            self._write(".gitignore", "*\n")
        chosen |= parse_loading(loading) if with_files else {}
        docs = Document(
            self.folder if with_files else None,
            embed,
            store_conf=self.store_conf,
            doc_fields=label_fields() if self.fields else None,
            read_only=not write,
            files=self.choose_files(files) if with_files else files,
            **chosen,
        )
        return self.with_readers(docs, required=write)

    def choose_files(self, files: FileSelection | None) -> FileSelection | None:
        """Leave out what ``.gitignore`` files name, for a new index of a folder in a git work tree,
        unless ``files`` sets ``use_gitignore``.
        """
        from lazyrag.document import FileSelection

        if self.exists:
            return files
        files = FileSelection() if files is None else files
        require(isinstance(files, FileSelection), "files", files, "a FileSelection or None")
        folder = self.folder.absolute()
        is_in_git = any((parent / ".git").exists() for parent in (folder, *folder.parents))
        if files.use_gitignore is not None or not is_in_git:
            return files
        return replace(files, use_gitignore=True)

    def _load_embedder(self) -> Any:
        if self.url and self.url != base_url():
            raise ConfigError(
                f"The index was made with {self.embed} at {self.url}, but the endpoint is now"
                f" {base_url()}. Set OPENAI_BASE_URL={self.url}, or move the index: lazyrag index"
                f" {self.folder} --embed {self.embed}, in Python lazyrag.open(folder, embed)"
            )
        return make_embedder(self.embed)

    def _check_folders(self, *, write: bool, with_files: bool) -> None:
        if with_files and not self.folder.is_dir():
            raise DatasetPathError(
                f"The indexed folder {self.folder} does not exist. If it was moved: lazyrag index"
                f" FOLDER --store {self.store}"
            )
        if not write and not self.exists:
            raise StoreError(
                f"{self.folder} has no index yet, or its first run was interrupted. Run: lazyrag"
                " index, or in Python lazyrag.open(folder)"
            )

    def with_readers(self, docs: Document, *, required: bool = True) -> Document:
        """A Document that also reads scans, if the project does.

        Args:
            docs: The Document.
            required: Raise if the OCR is not installed; else marks of words in scans are not
                available.
        """
        if self.ocr and (required or importlib.util.find_spec("rapidocr")):
            from lazyrag.loaders.scans import add_ocr

            add_ocr(docs, cache=self.store / "ocr")
        return docs

    def save(self) -> None:
        """Write the settings.

        Raises:
            StoreError: If they cannot be written.
        """
        settings = {
            name: value for name, value in asdict(self).items() if name not in ("store", "folder")
        }
        stored = {"format": _FORMAT, "folder": os.path.relpath(self.folder, self.store), **settings}
        self._write(_CONFIG, json.dumps(stored, ensure_ascii=False, indent=1) + "\n")

    def _write(self, name: str, text: str) -> None:
        draft = self.store / f"{name}.new"
        try:
            self.store.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.store / name)
        except OSError as exc:
            with suppress(OSError):
                draft.unlink()
            msg = (
                f"{self.store} cannot be written ({exc.strerror}). Free disk space or make it"
                " writable,"
            )
            raise StoreError(f"{msg} or pass another folder: --store PATH") from exc


@known_keywords
def open(  # noqa: A001  as lazyrag.open
    folder: PathLike = ".",
    embed: Any = None,
    *,
    read_only: bool = False,
    files: FileSelection | None = None,
    ocr: bool | None = None,
) -> Document:
    """Open the index of a folder, which ``lazyrag index`` makes as well: in ``.lazyrag`` inside.

    Missing, it is made. The command line and Python use the same one, with the same settings. As
    with ``Document(folder)``, the first query loads what is new; `Document.sync` loads what changed
    since. `Document.ask` uses the chat model of ``lazyrag config``.

    Args:
        folder: The folder with the files.
        embed: The embedding model, stored for the next time: a folder, the id of a fetched model,
            or ``"openai:NAME"`` at OPENAI_BASE_URL; "" for none. None: as stored, in a new index
            that of ``lazyrag config``. For a function of your own use
            ``Document(folder, embed, store_conf=...)``.
        read_only: Write nothing; fails where there is no index.
        files: Which files are read; None: as stored, and a new index of a folder in a git work tree
            leaves out what its ``.gitignore`` files name (``use_gitignore=False`` reads it).
        ocr: Whether scanned pages and pictures are read by text recognition. None: as stored.

    Raises:
        DatasetPathError: If there is no such folder.
        ConfigError: If the model is not on this machine, or the index is another user's.
        StoreError: If ``read_only`` finds no index, or it cannot be written.

    Example::

        import lazyrag

        docs = lazyrag.open("notes")
        for hit in docs.search("When does the tea arrive?"):
            print(hit.path, hit.location, hit.text)
    """
    from lazyrag.document.document import use_default_chat_model

    path = folder_path(folder, "For the current folder pass '.'.")
    require(embed is None or isinstance(embed, str), "embed", embed, _EMBED)
    if not path.is_dir():
        raise DatasetPathError(f"folder must be a folder that exists; got {os.fspath(folder)!r}.")
    project = new_project(path).with_options(embed=embed)
    if ocr is not None:
        reads_scans = validate_boolean("ocr", ocr)
        project = project.with_options(ocr="rapidocr" if reads_scans else "")
    docs = project.open(write=not read_only, files=files)
    use_default_chat_model(docs)
    if not read_only:
        project.save()
    return docs


def find_project(store: Path | None = None) -> Project:
    """The project of the current folder: the nearest ``.lazyrag`` in it or above it.

    Args:
        store: The folder with the store instead, or a folder that has one.

    Raises:
        ConfigError: If there is none, or it belongs to another user.
    """
    if store is not None:
        place = _store_folder(store)
        if not (place / _CONFIG).is_file():
            raise ConfigError(f"{store} has no index. Make one: lazyrag index PATH --store {store}")
        return _read(place)
    first = Path.cwd()
    for folder in (first, *first.parents):
        if (folder / STORE_FOLDER / _CONFIG).is_file():
            return _read(folder / STORE_FOLDER)
    problem = f"There is no index in {first}, nor in a folder above it."
    below = sorted(first.glob(f"*/{STORE_FOLDER}/{_CONFIG}"))
    if below:
        name = below[0].parents[1].name
        raise ConfigError(f"{problem} The folder {name} has one: add --store {name}")
    raise ConfigError(f"{problem} Make one: lazyrag index PATH")


def new_project(path: Path, store: Path | None = None) -> Project:
    """The project of a folder to index: with its earlier settings, if it has some; a new one has
    the user's default embedding model.

    Raises:
        DatasetPathError: If the folder does not exist, or is a file.
        ConfigError: If its store belongs to another user, or has the index of another folder.
    """
    folder = path.expanduser().absolute()
    if folder.is_file():
        msg = (
            f"PATH must be a folder; got the file {path}. Index its folder: lazyrag index"
            f" {path.parent} --include "
        )
        raise DatasetPathError(f"{msg}/{path.name}")
    if not folder.is_dir():
        hint = ""
        if set("*?[") & set(str(path)):
            parts = path.parts
            at = next(number for number, part in enumerate(parts) if set("*?[") & set(part))
            base = Path(*parts[:at])
            pattern = "/".join(parts[at:])
            hint = f" A glob is not a folder: lazyrag index {base} --include {pattern!r}"
        raise DatasetPathError(f"There is no folder {path}.{hint}")
    place = folder / STORE_FOLDER if store is None else _store_folder(store)
    if (place / _CONFIG).is_file():
        project = _read(place)
        if project.folder.exists() and not project.folder.samefile(folder):
            msg = (
                f"{place} has the index of {project.folder}; got the folder {folder}. One store is"
                " for one folder: "
            )
            raise ConfigError(f"{msg}pass another one with --store, or delete {place}.")
        return replace(project, folder=folder)
    return Project(place, folder).with_options(embed=read_defaults().get("embed"))


def _store_folder(store: Path) -> Path:
    """The folder of a store that is named by itself, or by the folder that has it."""
    folder = store.expanduser().absolute()
    inner = folder / STORE_FOLDER
    return inner if (inner / _CONFIG).is_file() else folder


def _read(store: Path) -> Project:
    """Read the settings of a store.

    Raises:
        ConfigError: If the store belongs to another user, or its settings are damaged or of a newer
            release.
    """
    path = store / _CONFIG
    _require_owner(store)
    _require_owner(path)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read ({exc.strerror}). Make it readable for you."
        ) from exc
    except ValueError:
        stored = None
    if not isinstance(stored, Mapping):
        stored = {}
    number = stored.get("format")
    if isinstance(number, int) and number > _FORMAT:
        raise ConfigError(
            f"{path} has format {number}, written by a newer release; this one reads up to format"
            f" {_FORMAT}. Install the newer release."
        )
    settings: JsonObject = {"url": "", "fields": "", "ocr": "", **stored}
    names = {field.name for field in fields(Project)} - {"store"}
    values: JsonObject = {name: settings.get(name) for name in names}
    if number != _FORMAT or not all(isinstance(value, str) for value in values.values()):
        raise ConfigError(f"{path} is damaged. Delete it, and index the folder again.")
    folder = os.path.normpath(store / values.pop("folder"))
    return Project(store, Path(folder), **values)


def _require_owner(path: Path) -> None:
    """Refuse a file or folder of another user: nothing in it can be trusted."""
    owner = path.stat().st_uid
    if hasattr(os, "geteuid") and owner != os.geteuid():
        raise ConfigError(
            f"{path} belongs to another user (uid {owner}, you are {os.geteuid()}): what is in it"
            " is not trusted. Index the folder into a store of your own: lazyrag index PATH"
            " --store STORE"
        )


def label_fields() -> dict[str, DocField]:
    """The fields of a document's labels, by which tokens are restricted, and of its attributes in
    OpenAI's API.
    """
    from lazyrag.data.fields import DataType, DocField

    return dict.fromkeys(("labels", "attributes"), DocField(DataType.ARRAY, DataType.VARCHAR))
