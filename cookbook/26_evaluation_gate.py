"""An evaluation gate in CI: golden questions, a threshold, an exit status, and a comparison with
the last good run.

    lazyrag eval golden.json --output report.json            in CI: exit status 1 if a threshold is
    not reached lazyrag eval golden.json --against last-good.json        what has changed, and
    whether that is certain

This script does both with the questions of the demo, and shows that the gate closes when somebody
breaks the retrieval.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUESTIONS = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
GOOD = {"method": "full_text_search", "group": "CoarseChunk", "topk": 5}
BROKEN = {**GOOD, "group": "FineChunk"}  # "small chunks make short prompts, and these are cheaper"


def golden(retriever):
    """A golden file: each question with its answer, and the file that contains it."""
    return {
        "documents": str(HERE / "corpus"),
        "retriever": retriever,
        "questions": [
            {
                "question": one["question"],
                "references": [one["answer"]],
                "spans": [{"path": one["file"]}],
            }
            for one in QUESTIONS
        ],
        "thresholds": {"answer@5": 0.9, "span_MRR": 0.8},
    }


def evaluate(*arguments):
    """Run `lazyrag eval` as a CI job does; return its exit status and what it prints."""
    command = [sys.executable, "-m", "lazyrag", "eval", *map(str, arguments)]
    done = subprocess.run(
        command,
        text=True,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout


with tempfile.TemporaryDirectory() as temporary:
    file, last_good, report = (
        Path(temporary, name) for name in ("golden.json", "last-good.json", "report.json")
    )

    # 1. The gate as it is: keep the report of a good run, for instance as an artifact of the main
    # branch.
    file.write_text(json.dumps(golden(GOOD), ensure_ascii=False), encoding="utf-8")
    good, table = evaluate(file, "--output", last_good)
    print(f"{table}exit status {good}\n")

    # 2. A change that looks harmless.
    file.write_text(json.dumps(golden(BROKEN), ensure_ascii=False), encoding="utf-8")
    broken, table = evaluate(file, "--output", report, "--against", last_good)
    print(f"{table}exit status {broken}\n")

    # 3. A mistake in the file is neither: exit status 2, with the line.
    file.write_text(json.dumps({**golden(GOOD), "thresholds": {"answr@5": 0.9}}), encoding="utf-8")
    mistaken, message = evaluate(file)
    print(f"{message}exit status {mistaken}")
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (last_good, report))

print(f"\nIn the reports: {', '.join(before)}")
assert (good, broken, mistaken) == (0, 1, 2)
assert before != after
