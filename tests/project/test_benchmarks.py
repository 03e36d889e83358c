"""The runner of benchmarks/: who is asked when, engines in processes, tables from files. Nothing is
timed here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lazyrag.text.analyzers import term_function
from tests.interpreter import ROOT
from tests.shared import shared

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def _as_scripts(monkeypatch: pytest.MonkeyPatch):
    """The scripts import one another by their bare names; they are gone again after each test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module ``toys`` that engine processes can import."""
    source = """
class Adder:
    def versions(self):
        print("to standard error")
        return {"toys": "1"}
    def load(self, start):
        self.total = start
        return self.total
    def add(self, number):
        self.total += number
        return self.total
    def fail(self, number):
        raise ValueError(f"no {number}")
class Needy:
    def __init__(self):
        import a_package_that_nobody_has
class Mortal(Adder):
    def add(self, number):
        raise SystemExit(3)
"""
    (tmp_path / "toys.py").write_text(source, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_every_candidate_answers_every_query_in_every_round():
    """Seconds come in the order of the queries, one for each query and round; blocks take turns."""
    from timing import take_turns

    asked = []

    def candidate(name):
        def answer(jobs):
            asked.append((name, len(jobs)))
            return [float(job) for job in jobs]

        return answer

    queries = [{"a": number, "b": 100 + number} for number in range(5)]
    seconds = take_turns({"a": candidate("a"), "b": candidate("b")}, queries, rounds=2, block=2)
    assert seconds == {
        "a": [0.0, 1.0, 2.0, 3.0, 4.0] * 2,
        "b": [100.0, 101.0, 102.0, 103.0, 104.0] * 2,
    }
    assert [length for _, length in asked] == [2, 2, 2, 2, 1, 1] * 2
    assert all({asked[at][0], asked[at + 1][0]} == {"a", "b"} for at in range(0, len(asked), 2))


def test_functions_are_timed_in_turns():
    """`interleaved` calls each function once to warm up, then once for each query and round."""
    from timing import interleaved

    calls: list[int] = []
    seconds = interleaved({"one": calls.append}, [{"one": 1}, {"one": 2}], rounds=3)
    assert calls == [1, *[1, 2] * 3]
    assert len(seconds["one"]) == 6
    assert min(seconds["one"]) >= 0


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.5, 2000.0), (0.75, 3000.0), (0.76, 4000.0), (1.0, 4000.0), (0.01, 1000.0)],
)
def test_a_quantile_is_a_time_that_was_seen(share: float, expected: float):
    """The smallest time within which at least that share of the queries stays."""
    from timing import quantile_ms

    assert quantile_ms([4.0, 1.0, 3.0, 2.0], share) == expected


def test_two_commits_take_turns():
    """Sides are measured in the order A B B A; the ratio is that of the medians, below 1 where the
    second is faster.
    """
    from types import SimpleNamespace

    from compare_commits import side_by_side

    order = []

    def measure(engine, turn):
        order.append((engine.name, turn))
        return [engine.seconds, engine.seconds, 10.0 * turn]

    before, now = (
        SimpleNamespace(name="before", seconds=0.002),
        SimpleNamespace(name="now", seconds=0.001),
    )
    row = side_by_side(before, now, measure, rounds=2)
    assert [name for name, _ in order] == ["before", "now", "now", "before"] * 2
    assert [turn for name, turn in order if name == "now"] == [0, 1, 2, 3]
    assert (row["before_ms"], row["now_ms"], row["ratio"]) == (2.0, 1.0, 0.5)


@pytest.mark.usefixtures("engines")
def test_an_engine_imports_the_package_of_a_checkout(tmp_path, monkeypatch):
    """With root= an engine has that checkout's lazyrag, before whatever is installed."""
    from engine import Engine

    (tmp_path / "lazyrag").mkdir()
    (tmp_path / "lazyrag" / "__init__.py").write_text(
        "__version__ = 'of another commit'", encoding="utf-8"
    )
    source = "import lazyrag\nclass Which:\n    def versions(self):\n        return {'lazyrag': lazyrag.__version__}\n"
    (tmp_path / "which.py").write_text(source, encoding="utf-8")
    with Engine("which", "Which", root=tmp_path) as engine:
        assert engine.versions == {"lazyrag": "of another commit"}


@pytest.mark.usefixtures("engines")
def test_an_engine_answers_from_its_process():
    """Calls keep the engine's state; what it prints does not disturb the answers."""
    from engine import Engine

    with Engine("toys", "Adder") as engine:
        assert engine.versions == {"toys": "1"}
        assert engine.call("load", start=10) == 10
        times = engine.times("add", [1, 2, 3])
        assert (len(times), min(times) >= 0) == (3, True)
        assert engine.call("add", number=0) == 17, (
            "the first job is done once more beforehand, to warm up"
        )


@pytest.mark.usefixtures("engines")
def test_an_error_in_an_engine_is_told():
    """Its traceback is the message, and the engine goes on."""
    from engine import Engine, EngineError

    with Engine("toys", "Adder") as engine:
        with pytest.raises(EngineError, match="ValueError: no 3"):
            engine.times("fail", [3])
        assert engine.call("load", start=1) == 1


@pytest.mark.usefixtures("engines")
def test_an_engine_that_ends_is_told():
    """With its exit status, whenever it is asked again; nothing waits for it."""
    from engine import Engine, EngineError

    with Engine("toys", "Mortal") as engine:
        for _ in range(2):
            with pytest.raises(EngineError, match="status 3"):
                engine.call("add", number=1)


@pytest.mark.usefixtures("engines")
def test_engines_without_their_packages_are_left_out(capsys: pytest.CaptureFixture[str]):
    """The others are there, and the reason is printed and returned."""
    from contextlib import ExitStack

    from engine import open_engines

    with ExitStack() as stack:
        there, left_out = open_engines(
            stack, "toys", {"adder": ("Adder", None), "needy": ("Needy", "nowhere")}
        )
        assert list(there) == ["adder"]
    assert list(left_out) == ["needy"]
    assert "a_package_that_nobody_has" in left_out["needy"]
    assert "needy is left out" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_terms_of_nodes_are_those_of_their_texts(language: str, tmp_path: Path):
    """Also beyond the size of the texts, where nodes overlap and say that they are resampled;
    engines read the same.
    """
    shared("data", "retrieval")
    from corpus import make_corpus, make_queries
    from engines.lexical import read_terms

    corpus = make_corpus(language, 5_000)
    assert len(corpus) == 5_000 > corpus.real_nodes
    assert corpus.label() == f"resampled from {corpus.real_nodes:,}"
    terms = read_terms(str(corpus.save(tmp_path / "terms.npz")))
    for row in range(0, 5_000, 501):
        assert sorted(terms[row]) == sorted(term_function(language)(corpus.text(row)))
    assert len({*make_queries(corpus, 20)}) > 10


def test_results_are_written_and_found_by_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file names machine, command and time; files of a benchmark are found whatever follows the
    hyphen.
    """
    import results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results.machine, "READ_MB", 1)
    results.save("toy-2", [{"nodes": 2}], note="n")
    results.save("toy-1", [{"nodes": 1}])
    results.save("toys", [{"nodes": 3}])
    found = results.load("toy", tmp_path)
    assert [run["rows"] for run in found] == [[{"nodes": 1}], [{"nodes": 2}]]
    assert (found[1]["note"], found[1]["benchmark"]) == ("n", "toy")
    assert found[0]["machine"]["cores"] >= 1
    assert found[0]["machine"]["read_gb_per_s"]["1 thread"] > 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (0.012345, "0.0123"),
        (1.0, "1"),
        (99.94, "99.9"),
        (12345.6, "12,346"),
        (1234, "1,234"),
        ("a", "a"),
    ],
)
def test_figures_have_three_digits(value: object, shown: str):
    """Or more before the point."""
    from results import figure

    assert figure(value) == shown


def test_tables_are_filled_in_between_their_marks():
    """What stands around the marks stays, a second time changes nothing, and a page without the
    mark is refused.
    """
    from report import filled, markdown

    page = "before\n<!-- toy -->\nold\n<!-- end -->\nafter\n<!-- other -->\n<!-- end -->\n"
    table = markdown(["engine", "ms"], [["ours", 0.5], ["theirs", None]])
    assert table == "| engine | ms |\n| --- | ---: |\n| ours | 0.5 |\n| theirs |  |"
    once = filled(page, {"toy": table})
    assert once == page.replace("old", f"\n{table}\n")
    assert filled(once, {"toy": table}) == once
    with pytest.raises(ValueError, match="0 places for 'third'"):
        filled(page, {"third": table})


def test_the_pages_have_a_place_for_every_table():
    """The pages and report.py know the same benchmarks."""
    from report import DOCS, PAGES, filled

    for name, tables in PAGES.items():
        page = filled((DOCS / name).read_text(encoding="utf-8"), dict.fromkeys(tables, "table"))
        assert page.count("table\n\n<!-- end -->") == len(tables)


def test_what_was_asked_for_stands_beside_what_was_reached():
    """Shares over the vector are those of the saved rows; what was not measured has no line."""
    from report import CHAIN, quality, targets

    def row(system, first, fifth):
        return {"set": "cranfield", "system": system, "questions": 2, "nDCG@10": first, "recall@5": fifth} | {
            "difference": 0.1, "low": 0.0, "high": 0.2, "p": 0.0004
        }  # fmt: skip

    machine = {
        "cpu": "x",
        "cores": 2,
        "memory_gb": 8,
        "python": "3",
        "numpy": "2",
        "sqlite": "3",
        "load": 0,
        "commit": "c",
    }
    run = {
        "rows": [row("vector", 0.4, 0.5), row(CHAIN, 0.44, 0.6)],
        "texts": 3,
        "command": "python",
        "time": "2026-01-01T00:00:00",
        "machine": {**machine, "read_gb_per_s": {"1 thread": 1, "2 threads": 2}},
    }
    told = targets([run])
    assert "| Cranfield, nDCG@10 | .425 (weighted; + MaxSim) | 0.4400 |" in told
    assert "| the same of the chain | +15 % | +20.0% |" in told
    assert "XQuAD" not in told
    assert f"| {CHAIN} | 0.4400 | 0.6000 | +0.1000 | +0.0000 to +0.2000 | < .001 |" in quality(
        [run]
    )


def test_exponents_are_the_slopes_of_logarithms():
    """A figure that grows with the square of the nodes has 2; one row has none."""
    from growth import exponent

    rows = [{"nodes": nodes, "s": 3.0 * nodes**2} for nodes in (10, 100, 1000)]
    assert exponent(rows, "s") == pytest.approx(2.0)
    assert exponent(rows[:1], "s") is None


def test_peers_are_pinned():
    """Each package that we compare with stands with one version, so that a run can be repeated."""
    from install_peers import HERE, NAMES, requirements

    pinned = [one for name in NAMES for one in requirements(HERE / f"{name}.txt")]
    assert len(pinned) > 10
    assert [one for one in pinned if one.count("==") != 1] == []


@pytest.mark.slow
def test_the_corpus_at_scale_is_the_same_everywhere():
    """Documents of 100 lines; a block does not depend on those before it."""
    import scale

    [texts] = scale.documents(10_000, 20_000)
    assert len(texts) == 100
    assert {len(text.split("\n")) for text in texts.values()} == {100}
    assert list(scale.documents(0, 20_000))[1] == texts
    assert all(3 <= len(query.split()) <= 6 for query in scale.queries())
