"""The command that runs a worker of an ingestion."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lazyrag.cli import output
from lazyrag.cli.base import app, complain, message_of
from lazyrag.cli.output import Output
from lazyrag.errors import StoreConnectionError
from lazyrag.registry import LazyTarget

_POLL_S = 1.0


@app.command()
@click.argument("target", metavar="[MODULE:FUNCTION]", required=False)
@click.option("--store", metavar="URL", help="Without a function: the PostgreSQL database.")
@click.option("--name", metavar="NAME", help="Without a function: name of the Document.")
@click.option("--embed", metavar="MODEL", help="Without a function: see lazyrag index --embed.")
@click.option("--until-empty", is_flag=True, help="End when nothing is queued.")
def worker(
    target: str | None, store: str | None, name: str | None, embed: str | None, until_empty: bool
) -> Output:
    """Ingest what another program queues in PostgreSQL.

    It goes on until Ctrl-C or SIGTERM. MODULE:FUNCTION returns the Document, as in that program.
    With --store instead, the Document has the built-in node groups and readers. See
    docs/scale.md.
    """
    from lazyrag.document import Document
    from lazyrag.launchers.workers import open_worker

    if (target is None) == (store is None) or (target and (name or embed)):
        msg = "worker takes MODULE:FUNCTION alone, or --store URL with --name and --embed."
        raise click.UsageError(msg)
    docs = (
        Document(embed=embed or None, store_conf=store, name=name)
        if target is None
        else _imported(target)()
    )
    opened = open_worker(docs)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    count = 0
    is_reached = True
    output.write([] if until_empty else ["Waiting for work. Ctrl-C ends it."])
    while not stopping.is_set():
        has_worked = False
        try:
            has_worked = opened.step()
            is_reached = True
        except StoreConnectionError as exc:  # the server may be restarted
            if until_empty:
                raise
            if is_reached:
                complain(f"Error: {message_of(exc)} The worker waits for it.")
            is_reached = False
        count += has_worked
        if until_empty and not has_worked:
            break
        if not has_worked:
            stopping.wait(_POLL_S)
    return Output({"entries": count}, [f"Entries ingested: {count}."])


def _imported(target: str) -> Callable[[], Any]:
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Callable[[], Any] = LazyTarget(target).load("worker", target)
    except (ImportError, AttributeError, ValueError) as exc:
        msg = f"MODULE:FUNCTION must name an importable function; got {target!r} ({exc})."
        raise click.UsageError(msg) from exc
    return function
