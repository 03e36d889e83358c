"""A plan is what the sync then does: in random folders, after random changes, with any packages
missing.
"""

from __future__ import annotations

import itertools

import pytest

from tests.interpreter import ROOT, python
from tests.random_folders import differences

# What reading files needs beyond the standard library, by the format that goes without it.
PACKAGES = ("yaml", "openpyxl", "xlrd", "olefile", "docx")
SUBSETS = [
    some for count in range(len(PACKAGES) + 1) for some in itertools.combinations(PACKAGES, count)
]


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_what_the_sync_does(seed):
    """All of it: what is added, skipped and why, failed and why, moved, dated, withheld, unchanged;
    four times.
    """
    assert differences(seed) == []


def test_a_plan_is_what_the_sync_does_without_packages():
    """Where every package is missing, too."""
    done = python(str(ROOT / "tests" / "random_folders.py"), "4", "2", *PACKAGES)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", range(len(SUBSETS)), ids=["+".join(some) or "none" for some in SUBSETS]
)
def test_every_subset_of_missing_packages(number):
    """Three hundred folders, some for each subset of the packages."""
    done = python(
        str(ROOT / "tests" / "random_folders.py"), str(100 + 10 * number), "10", *SUBSETS[number]
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
