"""Check claims against the passages that they cite: how many altered ones are flagged, how many
true ones.

    python benchmarks/claims.py [--half a|b|...|g|hb|drawn] [--checker words] [--misses] [--check]

The claims of data/claims*.jsonl (half English, half Chinese; about half true, half altered by hand)
come with one passage each; data/README.md describes the kinds, the halves a and b, and the sets c
to g. A claim is flagged if the verdict is "contradicted" or "not_found". Printed are, for each
language, half and kind, the share flagged, the verdicts, and the median milliseconds per claim. The
row "supported" sums up the true claims. The row "altered" sums up the altered ones except
`same_passage`, which has a bound of its own, and `swap`, which is only reported.

The checker "words" is the baseline: it looks for the claim's words in the passage and ignores what
they say. --misses lists the altered claims that are not flagged and the true ones that are. With
--check the exit status is 1 where a bound is missed: altered flagged >= .90 in English and .85 in
Chinese, supported flagged <= .05 and .10, same_passage flagged >= .4.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from counterfactuals import SETS, draw
from results import Row, save, table
from timing import median_ms, timed

from lazyrag.generation.claims import StatementChecker
from lazyrag.text.analyzers import english_terms

DATA = Path(__file__).with_name("data")
SUPPORTED_KINDS = ("supported_question", "supported_statement")
ALTERED_KINDS = (
    "number",
    "unit",
    "date",
    "name",
    "negation",
    "opposite",
    "addition",
    "counterfactual",
)
HALVES = ("a", "b", "c", "d", "e", "f", "g", "ha", "hb", "drawn")
DRAWN = 100
"""Questions of the half "drawn", for each language."""

KINDS = (*SUPPORTED_KINDS, *ALTERED_KINDS, "swap", "same_passage")
ROWS: Mapping[str, Sequence[str]] = {
    **{kind: (kind,) for kind in KINDS},
    "supported": SUPPORTED_KINDS,
    "altered": ALTERED_KINDS,
}
"""The kinds of each row: one, or several summed up."""

FLAGS = ("contradicted", "not_found")
COLUMNS = ("language", "half", "kind", "claims", "flagged", *FLAGS, "not_checkable", "ms")
LEAST_FLAGGED = {
    ("en", "altered"): 0.9,
    ("zh", "altered"): 0.85,
    ("en", "same_passage"): 0.4,
    ("zh", "same_passage"): 0.4,
}
MOST_FLAGGED = {("en", "supported"): 0.05, ("zh", "supported"): 0.1}
LEAST_SHARE = 0.5
"""The share of a claim's words that the baseline must find."""

Verdict: TypeAlias = Literal["supported", "contradicted", "not_found", "not_checkable"]
Checker: TypeAlias = Callable[[str, Sequence[str]], Verdict]
"""Compares a claim with the passages that it cites."""


@dataclass(frozen=True)
class Claim:
    """A statement with the passage that it cites, as data/README.md describes it."""

    id: str
    language: str
    half: str
    kind: str
    claim: str
    passage: str
    source: str
    wrong: str = ""
    right: str = ""

    @property
    def is_supported(self) -> bool:
        """Whether the passage supports the claim."""
        return self.kind in SUPPORTED_KINDS


@dataclass(frozen=True)
class Result:
    """A checker's verdict on a claim, and the seconds that it took."""

    claim: Claim
    verdict: Verdict
    seconds: float

    @property
    def is_flagged(self) -> bool:
        """Whether a reader is warned of the claim."""
        return self.verdict in FLAGS


def read_claims() -> list[Claim]:
    """All claims, in the order of the files."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("claims*.jsonl"))]
    lines = [line for text in texts for line in text.split("\n") if line]
    return [Claim(**json.loads(line)) for line in lines]


def draw_claims() -> list[Claim]:
    """The half "drawn": true answers with the passage that states them, and with an altered one."""
    claims: list[Claim] = []
    for item in (item for language in SETS for item in draw(language, DRAWN)):
        number = len(claims) // 2 + 1
        true = Claim(
            f"drawn-{number:03}",
            item.language,
            "drawn",
            "supported_question",
            item.statement,
            item.passage,
            item.title,
        )
        altered = replace(
            true,
            id=f"{true.id}-altered",
            kind="counterfactual",
            passage=item.altered,
            wrong=item.answer,
            right=item.other,
        )
        claims += [true, altered]
    return claims


def check_words(claim: str, passages: Sequence[str]) -> Verdict:
    """Look for the claim's words in the passages; of Chinese text, characters and their pairs."""
    terms = set(english_terms(claim))
    if not terms:
        return "not_checkable"
    passage_terms = set(english_terms("\n".join(passages)))
    share = len(terms & passage_terms) / len(terms)
    return "supported" if share >= LEAST_SHARE else "not_found"


def check_rules(claim: str, passages: Sequence[str]) -> Verdict:
    """Compare the claim with the passages by lazyrag's rules, which prepare them each time."""
    return StatementChecker(passages).check(claim, range(1, len(passages) + 1)).verdict


CHECKERS: Mapping[str, Checker] = {"words": check_words, "rules": check_rules}


def run(checker: Checker, claims: Sequence[Claim]) -> list[Result]:
    """Check each claim. The first is checked once before the clock starts."""
    checker(claims[0].claim, [claims[0].passage])
    verdicts: list[Verdict] = []
    check = timed(lambda claim: verdicts.append(checker(claim.claim, [claim.passage])))
    seconds = check(claims)
    return list(map(Result, claims, verdicts, seconds))


def rows_of(results: Sequence[Result]) -> list[Row]:
    """The rows of the table, for each language and half those of `ROWS`."""
    rows: list[Row] = []
    for language in ("en", "zh"):
        for half in sorted({result.claim.half for result in results}):
            part = [
                result
                for result in results
                if (result.claim.language, result.claim.half) == (language, half)
            ]
            kinds = {result.claim.kind for result in part}
            names = [name for name in ROWS if not kinds.isdisjoint(ROWS[name])]
            rows += [summary(part, language, half, name) for name in names]
    return rows


def summary(results: Iterable[Result], language: str, half: str, name: str) -> Row:
    """One row: the verdicts on the claims of its kinds."""
    part = [result for result in results if result.claim.kind in ROWS[name]]
    verdicts = Counter(result.verdict for result in part)
    return {
        "language": language,
        "half": half,
        "kind": name,
        "claims": len(part),
        "flagged": sum(result.is_flagged for result in part) / len(part),
        **{verdict: verdicts[verdict] for verdict in (*FLAGS, "not_checkable")},
        "ms": median_ms([result.seconds for result in part]),
    }


def missed_bounds(rows: Iterable[Row]) -> list[str]:
    """The bounds that the rows miss, a line each."""
    lines = []
    for row in rows:
        key = row["language"], row["kind"]
        least, most = LEAST_FLAGGED.get(key, 0.0), MOST_FLAGGED.get(key, 1.0)
        if row["flagged"] < least:
            lines.append(f"{key} half {row['half']}: {row['flagged']:.2f} flagged, below {least}")
        if row["flagged"] > most:
            lines.append(f"{key} half {row['half']}: {row['flagged']:.2f} flagged, above {most}")
    return lines


def describe_miss(result: Result) -> str:
    """The lines that --misses prints for a wrong verdict."""
    claim = result.claim
    line = f"{claim.id} {claim.kind}: {result.verdict}\n  {claim.claim}"
    if claim.wrong:
        line += f"\n  wrong: {claim.wrong}"
    if claim.right:
        line += f"\n  right: {claim.right}"
    return line


def main() -> int:
    """Check the claims, print a table, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--half", choices=HALVES, help="all but b, d and hb: for development")
    parser.add_argument("--checker", choices=list(CHECKERS), default=list(CHECKERS)[-1])
    parser.add_argument("--misses", action="store_true", help="list the wrong verdicts")
    parser.add_argument("--check", action="store_true", help="fail where a bound is missed")
    options = parser.parse_args()
    claims = read_claims()
    if all(path.exists() for path in SETS.values()):
        claims += draw_claims()
    claims = [claim for claim in claims if options.half in {None, claim.half}]
    results = run(CHECKERS[options.checker], claims)
    rows = rows_of(results)
    print(f"checker {options.checker}\n{table(rows, COLUMNS)}")
    save(f"claims-{options.checker}", rows, checker=options.checker)
    if options.misses:
        misses = [result for result in results if result.is_flagged == result.claim.is_supported]
        print(*map(describe_miss, misses), sep="\n")
    if not options.check:
        return 0
    missed = missed_bounds(rows)
    print(*missed, sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
