"""Writing to OpenSearch: many rows in requests of bounded size, with a look at what became of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.stores.opensearch_client import TRANSIENT, Connection, check_shards, item_error, pause

_MOST_ROWS = 500
_TOLD = "items.*.status,items.*.result,items.*.error"  # of the answer: the rest is three quarters of it
_MOST_CHARACTERS = 4_000_000  # of a request, unless a single row has more; servers take 100 MB


@dataclass(frozen=True, slots=True)
class Action:
    """One row to be written or deleted.

    Args:
        key: The row's key.
        lines: The lines of JSON that say so, each ended.
    """

    key: str
    lines: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of some actions.

    Args:
        gone: How many rows were there and are deleted.
        conflicts: How many have been changed by others since they were looked at, and still stand.
    """

    gone: int = 0
    conflicts: int = 0


def put(key: str, document: str) -> Action:
    """Write a document, a line of JSON, in place of whatever has its key.

    Example:
        >>> put("k", '{"a":1}').lines.splitlines()
        ['{"index":{"_id":"k"}}', '{"a":1}']
    """
    return Action(key, f'{{"index":{{"_id":{json.dumps(key)}}}}}\n{document}\n')


def remove(key: str, seen: dict[str, int] | None = None) -> Action:
    """Delete a row, if it is there; and only as it was seen, if that is given.

    Args:
        key: The row's key.
        seen: ``if_seq_no`` and ``if_primary_term``, which change whenever a row does.
    """
    return Action(key, json.dumps({"delete": {"_id": key, **(seen or {})}}) + "\n")


def write(connection: Connection, collection: str, alias: str, actions: Iterable[Action]) -> Written:
    """Carry out actions, and make them visible to every search.

    Args:
        connection: The cluster.
        collection: The index.
        alias: Its alias for writing: with a name that must be an alias, OpenSearch makes no index by itself.
        actions: Of different keys.

    Raises:
        StoreError: If any of them failed; those of earlier requests, and others of its own, may have been carried out.
    """
    gone = conflicts = 0
    for some in _batches(actions):
        results = _carried_out(connection, collection, alias, some)
        gone += results.count("deleted")
        conflicts += results.count("conflict")
    answer = connection.ask(lambda client: client.indices.refresh(index=collection), collection=collection)
    check_shards(collection, answer)
    return Written(gone, conflicts)


def _batches(actions: Iterable[Action]) -> Iterator[list[Action]]:
    batch: list[Action] = []
    size = 0
    for one in actions:
        if batch and (len(batch) == _MOST_ROWS or size + len(one.lines) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.lines)
    if batch:
        yield batch


def _carried_out(connection: Connection, collection: str, alias: str, actions: Sequence[Action]) -> list[str]:
    """The results of actions in one request; those that a busy server puts off are asked for again."""
    results: list[str] = []
    for tries in range(connection.retries + 1):
        answer = _sent(connection, collection, alias, actions)
        put_off = []
        for action, item in zip(actions, answer, strict=True):
            if item["status"] in TRANSIENT and tries < connection.retries:
                put_off.append(action)
            else:
                results.append(_result(collection, action, item))
        if not put_off:
            break
        actions = put_off
        pause(tries)
    return results


def _sent(connection: Connection, collection: str, alias: str, actions: Sequence[Action]) -> list[dict[str, Any]]:
    body = "".join(action.lines for action in actions)
    params = {"require_alias": "true", "filter_path": _TOLD}
    answer = connection.ask(lambda client: client.bulk(index=alias, body=body, params=params), collection=collection)
    return [next(iter(item.values())) for item in answer["items"]]


def _result(collection: str, action: Action, item: dict[str, Any]) -> str:
    error = item.get("error")
    if error is None:
        return str(item["result"])
    if item["status"] == 409:
        return "conflict"
    raise item_error(collection, action.key, error)
