"""Arguments of ``lazyrag worker``; what it does is in tests/live/test_postgres_workers.py."""

from __future__ import annotations

import pytest

from lazyrag.cli.commands import run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "MODULE:FUNCTION alone, or --store"),
        (["teas:open_docs", "--store", "postgresql://host/db"], "MODULE:FUNCTION alone"),
        (["teas:open_docs", "--name", "teas"], "MODULE:FUNCTION alone"),
        (["no_such_module:open_docs"], "importable function; got 'no_such_module:open_docs'"),
        (["lazyrag:no_such_function"], "importable function"),
    ],
)
def test_what_is_no_document_is_refused(arguments, expected, capsys):
    """With the way out, and the status of wrong arguments."""
    assert run(["worker", *arguments]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_document_that_is_not_in_postgresql_has_no_queue(capsys):
    """A Document in memory."""
    assert run(["worker", "lazyrag:Document"]) == 1
    assert "PostgreSQL" in capsys.readouterr().err
