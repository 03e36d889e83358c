"""The command line: `run` with all commands of ``lazyrag``."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

import lazyrag.cli.ingest
import lazyrag.cli.maintenance
import lazyrag.cli.query
import lazyrag.cli.service
import lazyrag.cli.worker  # noqa: F401  each adds its commands to `app`
from lazyrag.cli import output
from lazyrag.cli.base import app, complain, message_of
from lazyrag.cli.output import FAILED, INTERRUPTED, OK
from lazyrag.errors import IngestionWarning

_AFTER_INTERRUPT = dict.fromkeys(
    ("index", "sync", "repair"), " What is ingested is stored; lazyrag sync continues from there."
) | {"model": " Complete files are kept; the same command fetches the rest."}
"""What an interrupted command has left, by its first word."""


def run(arguments: Sequence[str]) -> int:
    """Run the command, and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", IngestionWarning)  # reports show what failed
        try:
            return app.main(list(arguments), prog_name="lazyrag", standalone_mode=False) or OK
        except click.ClickException as exc:
            if "--json" in arguments:
                context = getattr(exc, "ctx", None)
                name = getattr(context, "command_path", "").partition(" ")[2] or "lazyrag"
                output.write([output.as_json(name, None, click.UsageError(exc.format_message()))])
            else:
                exc.show()
            return exc.exit_code
        except (click.Abort, KeyboardInterrupt):
            complain(f"Interrupted.{_AFTER_INTERRUPT.get(arguments[0], '') if arguments else ''}")
            return INTERRUPTED
        except OSError as exc:  # of the output: a command reports its own
            if "--debug" in arguments:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered
            if isinstance(exc, BrokenPipeError):  # of `lazyrag search ... | head`
                return OK
            complain(f"Error: The output cannot be written: {message_of(exc)}")
            return FAILED


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    complain(f"Warning: {output.at_command_line(str(message))}")
