"""The command lazyrag eval: its exit statuses, its table and its JSON."""

from __future__ import annotations

import json

import pytest

from lazyrag.cli.commands import run as lazyrag


@pytest.fixture
def golden(tmp_path):
    """A function that writes a golden file with a threshold, and returns its path."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "tea.txt").write_text("Steep green tea at 80 degrees.", encoding="utf-8")
    (tmp_path / "texts" / "绿茶.txt").write_text("水温八十度。", encoding="utf-8")

    def write(threshold: object, reference: str = "80 degrees"):
        path = tmp_path / "golden.json"
        questions = [
            {"question": "How hot is green tea?", "references": [reference]},
            {"question": "水温多高？", "references": ["八十度"]},
        ]
        content = {
            "documents": "texts",
            "questions": questions,
            "thresholds": {"answer@1": threshold},
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def run(capsys):
    """A function that runs the command with arguments, and returns its exit status, its output and
    its errors.
    """

    def command(*arguments: object):
        status = lazyrag([str(one) for one in arguments])
        return status, *capsys.readouterr()

    return command


def test_what_passes_ends_with_0(golden, run):
    """The table names the measure, its mean, the threshold and the number of questions."""
    status, output, errors = run("eval", golden(1.0))
    assert (status, errors) == (0, "")
    [row] = [line for line in output.splitlines() if "answer@1" in line]
    assert row.split() == ["answer@1", "1.0000", "1", "2", "passed"]


def test_what_is_below_a_threshold_ends_with_1_and_names_the_questions(golden, run):
    """The mean of both, and the question that missed, with its line and its value; the other one
    not.
    """
    status, output, errors = run("eval", golden(0.8, reference="90 degrees"))
    assert (status, errors) == (1, "")
    assert "0.5000" in output
    assert "line 1: How hot is green tea? (answer@1 0.00)" in output
    assert "水温" not in output


@pytest.mark.parametrize(
    "arguments",
    [("eval", "none.json"), ("eval",), ("evaluate", "x.json"), ("eval", "x.json", "--no")],
)
def test_bad_input_ends_with_2(arguments, run):
    """A file that is not there, none, an unknown command, an unknown option: said on the standard
    error, all of it.
    """
    status, output, errors = run(*arguments)
    assert (status, output) == (2, "")
    assert errors
    assert "Traceback" not in errors


def test_a_mistake_in_the_file_ends_with_2_and_its_line(golden, run):
    """One line on the standard error: file, line, what to do."""
    status, output, errors = run("eval", golden("high"))
    assert (status, output) == (2, "")
    assert (
        "golden.json, line 1: answer@1 must be a number above 0 and at most 1; got 'high'."
        in errors
    )


def test_json_goes_to_the_output_and_to_a_file(golden, tmp_path, run):
    """--json prints nothing but the report; --output writes the same; the exit status is that of
    the judgement.
    """
    path = tmp_path / "report.json"
    status, output, errors = run(
        "eval", golden(0.8, reference="90 degrees"), "--json", "--output", path
    )
    assert (status, errors) == (1, "")
    content = json.loads(output)
    assert content == json.loads(path.read_text(encoding="utf-8"))
    assert content["ok"]
    assert content["result"]["passed"] is False
    assert content["result"]["questions"][1]["found"][0]["source"] == "绿茶.txt"


def test_a_report_that_cannot_be_written_is_bad_input(golden, tmp_path, run):
    """A folder that is not there: status 2, since nobody would read the report."""
    status, output, _ = run("eval", golden(1.0), "--output", tmp_path / "none" / "report.json")
    assert (status, output) == (2, "")


def test_the_help_says_what_the_statuses_mean(run):
    """The command's own help, and that of eval."""
    assert "eval" in run("--help")[1]
    assert "exit status" in " ".join(run("eval", "--help")[1].split())


def test_two_runs_are_compared_in_a_sentence(golden, tmp_path, run):
    """With p and counts; the JSON has the numbers. A file that is no report is bad input, before
    anything runs.
    """
    path = tmp_path / "before.json"
    assert run("eval", golden(0.5, reference="90 degrees"), "--output", path)[0] == 0
    status, output, errors = run("eval", golden(0.5), "--against", path)
    assert (status, errors) == (0, "")
    sentence = (
        "The new one is better by 0.5000, which is not certain (p = 1; 1 better, 0 worse, 1 equal)."
    )
    assert f"answer@1: {sentence}" in output
    found = json.loads(run("eval", golden(0.5), "--against", path, "--json")[1])["result"][
        "against"
    ]["answer@1"]
    assert (found["difference"], found["wins"], found["sentence"]) == (0.5, 1, sentence)
    changed = tmp_path / "changed.json"
    changed.write_text(
        path.read_text(encoding="utf-8").replace('"answer@1": 0.0', '"answer@1": "none"'),
        encoding="utf-8",
    )
    status, _, errors = run("eval", golden(0.5), "--against", changed)
    assert (status, "must be a finite number; got 'none'" in errors) == (2, True)
    status, _, errors = run("eval", golden(0.5), "--against", tmp_path / "golden.json")
    assert (
        status,
        "golden.json' is no report. Pass a file that lazyrag eval --output wrote." in errors,
    ) == (2, True)
    status, _, errors = run("eval", golden(0.5), "--against", tmp_path / "none.json")
    assert (status, "none.json' cannot be read (No such file or directory)." in errors) == (2, True)


def test_a_comparison_names_the_questions_that_are_worse(golden, tmp_path, run):
    """With both values and the line; those that are equal or better are not named."""
    path = tmp_path / "before.json"
    assert run("eval", golden(1.0), "--output", path)[0] == 0
    status, output, errors = run("eval", golden(0.5, reference="90 degrees"), "--against", path)
    assert (status, errors) == (0, "")
    assert "worse: line 1: How hot is green tea? (1.00 before, 0.00 now)" in output
    assert "水温" not in output
    run("eval", golden(0.5, reference="90 degrees"), "--output", path)
    assert "worse:" not in run("eval", golden(1.0), "--against", path)[1]


def test_a_method_that_needs_a_model_asks_for_one(golden, run):
    """The message names the file's entry, not an argument of Python."""
    path = golden(0.5)
    content = json.loads(path.read_text(encoding="utf-8")) | {
        "retriever": {"method": "hybrid_search"}
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    status, output, errors = run("eval", path)
    assert (status, output) == (2, "")
    assert (
        "golden.json: The method 'hybrid_search' needs a model. Add 'embedder' and the folder"
        in " ".join(errors.split())
    )
