"""`Document(url=...)`: retrievers over HTTP give the recorded hits, scores and order."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

from lazyrag import Document
from lazyrag.server.app import create_app
from lazyrag.server.service import Service
from tests.behaviour import answers, goldens
from tests.behaviour.library import Library, open_library, register
from tests.behaviour.retrievers import CASES, RESTRICTED
from tests.behaviour.store_kinds import STORES
from tests.behaviour.test_explanations import QUICK as EXPLAINED


@contextmanager
def served(sets, state):
    """The address of a running service."""
    app = create_app(Service(sets, state))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The sample Documents of the goldens, behind a service."""
    folder = tmp_path_factory.mktemp("remote")
    with ExitStack() as stack:
        store = STORES["memory"]
        lib = open_library(stack, folder, store.conf_of)
        sets = {"docs": lib.docs, "notes": lib.notes, "sparse": lib.sparse}
        url = stack.enter_context(served(sets, folder))
        opened = {name: stack.enter_context(Document(url=url, name=name)) for name in sets}
        yield Library(opened["docs"], opened["notes"], opened["sparse"])


@pytest.fixture(autouse=True)
def _registered(_isolated):
    """The samples' similarities are there in every test."""
    register()


@pytest.mark.parametrize("name", CASES)
def test_hits_are_those_of_the_goldens(remote, name):
    """The same ids, scores and order under every filter."""
    case = CASES[name]
    for label in answers.filters_of(case):
        answers.check_hits(remote, name, label, ())


@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted(remote, name):
    """The client's scope."""
    answers.check_restricted(remote, name, "authors", ())


@pytest.mark.parametrize("name", EXPLAINED)
def test_explanations(remote, name):
    """Stages, contributions, and why nodes are missing."""
    goldens.check("explanations", answers.explanation_rows(remote, [name]))
