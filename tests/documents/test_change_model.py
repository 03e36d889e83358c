"""Another model for an embed key: built beside the old one, compared, switched at once, switched
back.
"""

from __future__ import annotations

import json
import threading

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.evaluation import change_model
from lazyrag.server.jobs import Jobs, Worker

TEXTS = {name: f"{name} is a drink." for name in ("tea", "coffee", "water", "milk", "cocoa")}


def old(text):
    """Confuses coffee with tea."""
    return [float("tea" in text or "coffee" in text), 1.0 - float("tea" in text), 0.5]


def new(text):
    """Knows each drink; another dimension, so that a mixture would be an error."""
    return [0.1 + float(name in text) for name in TEXTS]


class Counted:
    """An embed callable that counts its texts and may wait."""

    probe = False

    def __init__(self, function):
        self.function, self.texts, self.begun, self.gate = (
            function,
            [],
            threading.Event(),
            threading.Event(),
        )
        self.gate.set()
        self.identity = function.__name__

    def __call__(self, text):
        """Embed a text, once the gate is open."""
        self.texts.append(text)
        self.begun.set()
        self.gate.wait(60)
        return self.function(text)


def conf(tmp_path):
    return {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "store.db"}}}


def opened(tmp_path, candidate=new, **kwargs):
    docs = Document(
        embed={"default": old, "new": candidate}, store_conf=conf(tmp_path), workers=1, **kwargs
    )
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def ready(tmp_path, candidate=new):
    docs = opened(tmp_path, candidate)
    docs.add_texts(TEXTS)
    docs.activate_group("line", embed_keys=["default"])
    return docs


def found(docs):
    return Retriever(docs, "line", embed_keys=["default"], topk=1)


def ranked(retriever):
    return tuple((one.path, one.score) for one in retriever("milk"))


@pytest.fixture
def questions(tmp_path):
    """A golden file with a question for each text."""
    path = tmp_path / "golden.json"
    golden = {
        "store_conf": {},
        "questions": [
            {"question": f"What is {name}?", "texts": [text]} for name, text in TEXTS.items()
        ],
        "thresholds": {"span_recall@1": 0.5},
        "retriever": {"topk": 1, "group": "line"},
    }
    path.write_text(json.dumps(golden), encoding="utf-8")
    return path


def test_a_better_model_takes_over_and_can_be_undone(tmp_path, questions):
    """Retrievers that exist already, in every program, follow at their next query."""
    with ready(tmp_path) as docs, opened(tmp_path, read_only=True) as reader:
        here, there = found(docs), found(reader)
        before = here("milk")[0].path, here("milk")[0].embedding.shape
        job = Jobs(docs).submit(
            "change_model",
            {"embed_key": "default", "candidate": "new", "questions": str(questions)},
        )
        done = Worker(docs).run_one()
        assert (done.id, done.state, done.error) == (job.id, "SUCCESS", None)
        assert done.result["is_switched"] is True
        [measure] = done.result["measures"].values()
        assert measure["new"] == 1.0 > measure["old"]
        assert measure["wins"] - measure["losses"] == round(measure["difference"] * len(TEXTS))
        assert 0 < measure["p"] <= 1
        for retriever in (here, there):
            hits = [retriever(name)[0] for name in TEXTS]
            assert [one.path for one in hits] == list(TEXTS)
            assert {one.embeddings["default"].shape for one in hits} == {(len(TEXTS),)}
        change_model(docs, "default", "default")
        assert (here("milk")[0].path, here("milk")[0].embeddings["default"].shape) == before
        assert there("milk")[0].embeddings["default"].shape == (3,)


def test_a_switch_lasts_and_new_documents_follow_it(tmp_path):
    """In the next program too; both models are up to date, so that an undo finds new documents."""
    with ready(tmp_path) as docs:
        assert change_model(docs, "default", "new").is_switched
    with opened(tmp_path) as docs:
        docs.add_texts({"tea and milk": "tea and milk, please"})
        assert found(docs)("milk tea")[0].path == "tea and milk"
        assert docs.maintenance.verify() == ()
        change_model(docs, "default", "default")
        hits = Retriever(docs, "line", embed_keys=["default"], topk=9)("milk tea")
        assert len(hits) == len(TEXTS) + 1
        assert {one.embeddings["default"].shape for one in hits} == {(3,)}


@pytest.mark.slow
def test_a_worse_model_is_not_switched_to(tmp_path, questions):
    """Unless that is wanted; the report says how much worse it is."""
    with ready(tmp_path) as docs:
        change_model(docs, "default", "new")
        docs.activate_group("line", embed_keys=["new"])
    worse = lambda text: [1.0, float(len(text))]  # noqa: E731
    with Document(
        embed={"default": new, "new": worse}, store_conf=conf(tmp_path), name="other"
    ) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.add_texts(TEXTS)
        docs.activate_group("line", embed_keys=["default"])
        compared = change_model(docs, "default", "new", questions=questions)
        assert not compared.is_switched
        assert compared.measures["span_recall@1"]["difference"] < 0
        assert found(docs)("milk")[0].path == "milk"
        assert change_model(docs, "default", "new", questions=questions, switch=True).is_switched
        assert found(docs)("milk")[0].embeddings["default"].shape == (2,)


def test_a_budget_is_kept(tmp_path):
    """Nothing is embedded beyond it; cached texts cost nothing."""
    candidate = Counted(new)
    with ready(tmp_path, candidate) as docs:
        with pytest.raises(ConfigError, match="token_budget is 3"):
            change_model(docs, "default", "new", token_budget=3)
        assert candidate.texts == []
        change = change_model(docs, "default", "new", token_budget=1_000)
        assert 0 < change.tokens < 1_000
        assert len(candidate.texts) == len(TEXTS)
        assert change_model(docs, "default", "new", token_budget=0).tokens == 0


def test_the_old_model_serves_meanwhile_and_other_jobs_go_first(tmp_path, monkeypatch):
    """A long change of a model stops for them at a safe point, and goes on where it stopped."""
    monkeypatch.setattr("lazyrag.server.jobs._TURN_S", 0.0)
    monkeypatch.setattr("lazyrag.server.jobs._LOOK_S", 0.02)
    candidate = Counted(new)
    candidate.gate.clear()
    with ready(tmp_path, candidate) as docs, opened(tmp_path, candidate, read_only=True) as reader:
        change = Jobs(docs).submit("change_model", {"embed_key": "default", "candidate": "new"})
        stop = threading.Event()
        thread = threading.Thread(target=Worker(docs).run, args=[stop])
        thread.start()
        candidate.begun.wait(60)
        assert found(reader)("milk")
        addition = Jobs(reader).submit("add_texts", {"texts": {"juice": "juice is a drink."}})
        threading.Event().wait(0.6)
        candidate.gate.set()
        assert Jobs(reader).wait(addition.id, timeout_s=60).state == "SUCCESS"
        done = Jobs(reader).wait(change.id, timeout_s=60)
        stop.set()
        thread.join()
        assert (done.state, done.attempts) == ("SUCCESS", 1)
        assert Jobs(reader).get(addition.id).updated < done.updated
        assert sorted(candidate.texts) == sorted({*candidate.texts})
        assert len([one for one in candidate.texts if one.endswith("drink.")]) == len(TEXTS) + 1
        assert Retriever(reader, "line", embed_keys=["default"], topk=9)("milk")[0].path == "milk"


@pytest.mark.slow
def test_queries_during_switches_never_mix_two_models(tmp_path):
    """Each has the hits and scores of one of them, before and after a switch; a mixture has others,
    or raises.
    """
    with ready(tmp_path) as docs, opened(tmp_path, read_only=True) as reader:
        change_model(docs, "default", "new", switch=False)
        stop, seen, errors = threading.Event(), set(), []
        expected = {
            ranked(Retriever(docs, "line", embed_keys=[key], topk=5)) for key in ("default", "new")
        }

        def query(one):
            retriever = Retriever(one, "line", embed_keys=["default"], topk=5)
            try:
                while not stop.is_set():
                    seen.add(ranked(retriever))
            except Exception as exc:  # noqa: BLE001  shown below
                errors.append(exc)

        threads = [threading.Thread(target=query, args=[one]) for one in (docs, reader)]
        for thread in threads:
            thread.start()
        for _ in range(15):
            change_model(docs, "default", "new")
            change_model(docs, "default", "default")
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert seen == expected


def test_arguments_are_checked(tmp_path):
    """Unknown keys, groups without vectors, and a candidate that another one serves."""
    with ready(tmp_path) as docs:
        with pytest.raises(ConfigError, match="nwe"):
            change_model(docs, "default", "nwe")
        with pytest.raises(ConfigError, match="embedded"):
            change_model(docs, "default", "new", group="FineChunk")
        with pytest.raises(ConfigError, match="embedded"):
            change_model(docs, "new", "new")
        change_model(docs, "default", "new")
        with pytest.raises(ConfigError, match="switched"):
            change_model(docs, "new", "default")
        with pytest.raises(ConfigError, match="candidate"):
            Jobs(docs).submit("change_model", {"embed_key": "default"})
