"""What the configuration of a set has for several machines, and how such a set is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lazyrag.document import Document, IngestReport, Replica
from lazyrag.document.changes import find_named_files
from lazyrag.document.groups import GroupGraph
from lazyrag.document.load_files import Readers
from lazyrag.document.remote_shards import NoJobs
from lazyrag.document.shards import Shard, ShardedDocument, shard_of
from lazyrag.errors import ConfigError

SHARD = r"^(\d+)/(\d+)$"
_OF_SERVICES = {"shard", "shards", "store", "store_conf", "setup", "embed"}


class RemoteSet(BaseModel):
    """What a set has on other machines."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    url: list[str | list[str]] | None = Field(default=None, min_length=1)
    """Addresses of the services that have the shards of the set, instead of files: this service is a gateway to them.
    A list in the list has the replicas of a shard."""
    partial: bool = False
    """With ``url``: answer without the shards that are down, and name them."""
    follow: str | None = None
    """Address of a service whose set this one copies: it is a replica, which only reads."""
    token: str | list[str] = ""
    """Access token for these services, or a list with one for each shard; ``$NAME`` for the value of an environment
    variable."""
    shard: str | None = Field(default=None, pattern=SHARD)
    """Which part of the documents the set has: ``0/4`` is the first of four shards."""

    @model_validator(mode="after")
    def _check_remote(self) -> RemoteSet:
        given = {name for name in ("url", "follow", "path") if getattr(self, name) is not None}
        if len(given) > 1:
            raise ValueError(f"must have one of {', '.join(sorted(given))}")
        if self.url is not None and self.model_fields_set & _OF_SERVICES:
            raise ValueError("must have no store, embed or setup with url: its services have them")
        if self.shard is not None and not 0 <= int(self.shard.split("/")[0]) < int(self.shard.split("/")[1]):
            raise ValueError("must have a shard from 0/4 to 3/4, if there are four")
        _ = self.secret
        return self

    @property
    def secret(self) -> Any:
        """The token, or one for each shard; None without one."""
        if isinstance(self.token, str):
            return _secret(self.token)
        return list(map(_secret, self.token))

    def connect(self, name: str) -> Document:
        """Open the set at its services, as a gateway."""
        return Document(url=self.url, name=getattr(self, "name", None) or name, token=self.secret, partial=self.partial)

    def open(self, path: Path | None, embed: Any, options: Mapping[str, Any]) -> Document:
        """Open the Document of a shard, a replica, or of neither."""
        made: Document
        if self.shard is None:
            made = (Document if self.follow is None else ServedReplica)(path, embed, **options)
        else:
            owner = object.__new__(ShardedDocument)
            owner._graph, owner._file_readers = GroupGraph(Document._graph), Readers(Document._file_readers)
            kind = ServedShard if self.follow is None else ServedShardReplica
            number, shards = map(int, self.shard.split("/"))
            own = {name: value for name, value in options.items() if name != "shards"}
            made = kind(owner, number, shards, dataset_path=path, embed=embed, **own)
            owner.name = made.name
            owner._join([made], made.reader.indexer.dataset)
        return made


def _secret(token: str) -> str | None:
    if token.startswith("$") and token[1:] not in os.environ:
        raise ValueError(f"must have a token whose environment variable is set; got {token!r}. Set it, or omit token")
    return (os.environ[token[1:]] if token.startswith("$") else token) or None


class ServedShard(Shard):
    """A shard that takes no documents of other shards."""

    def add_files(self, files: Any, *args: Any, **kwargs: Any) -> IngestReport:
        """See `Document.add_files`."""
        inside = self.reader.indexer.dataset.relative_path
        self._check_own(inside(one.path) or one.identity for one in find_named_files(files, "files"))
        return super().add_files(files, *args, **kwargs)

    def add_texts(self, texts: Mapping[str, str], *args: Any, **kwargs: Any) -> IngestReport:
        """See `Document.add_texts`."""
        self._check_own(texts)
        return super().add_texts(texts, *args, **kwargs)

    def _check_own(self, names: Iterable[str]) -> None:
        for name in names:
            if (number := shard_of(name, self._shards)) != self._number:
                msg = f"The document {name!r} belongs to shard {number} of {self._shards}"
                raise ConfigError(f"{msg}, and this is {self._number}. Send it to the service of its shard.")


class ServedReplica(Document):
    """A copy of a set of another service, which only reads."""

    jobs = property(NoJobs)


class ServedShardReplica(Shard):
    """A copy of a shard of another service, which only reads."""

    jobs = ServedReplica.jobs


def follow(docs: Document, name: str, chosen: Any, stop: Event) -> None:
    """Copy what changes at the service that a set follows, until an event is set."""
    replica = Replica(docs, chosen.follow, chosen.name or name, chosen.secret)
    for group in chosen.groups:
        docs.activate_group(group, analysers=chosen.analysers, embed_keys=docs.embed_keys)
    replica.run(stop)
