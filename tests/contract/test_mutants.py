"""The shipped suites notice every fault that `mutants.py` has seeded into a store."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract import mutants

ROOT = Path(__file__).parents[2]
BY_FILTER = "test_delete_by_filter_takes_exactly_the_rows_that_meet_it"
RANKED_BY_FILTER = "test_search_ranks_exactly_the_rows_that_meet_a_filter"
KILLERS = {
    "TestSegmentsNotForgotten": BY_FILTER,
    "TestSegmentsOrAsAnd": BY_FILTER,
    "TestSegmentsBackslashesUnescaped": BY_FILTER,
    "TestSegmentsQuotesLost": BY_FILTER,
    "TestSegmentsGreaterForAtLeast": BY_FILTER,
    "TestSegmentsAnyAsAll": BY_FILTER,
    "TestSegmentsMissingLikeSql": BY_FILTER,
    "TestSegmentsWildcardsInTexts": BY_FILTER,
    "TestSegmentsMergedMetadata": "test_upsert_replaces_whole_rows",
    "TestSegmentsFirstOfAKey": "test_of_rows_with_one_key_in_an_upsert_the_last_counts",
    "TestSegmentsLostBatch": "test_what_is_upserted_is_read_back_equal",
    "TestSegmentsKeyWithoutBuild": "test_builds_of_one_uid_are_different_rows",
    "TestSegmentsContentAsText": "test_what_is_upserted_is_read_back_equal",
    "TestSegmentsNoPlaces": "test_a_root_keeps_its_places",
    "TestSegmentsStoreOrder": "test_get_answers_in_the_order_asked_and_leaves_out_unknown_keys",
    "TestSegmentsSkippedBoundary": "test_scan_pages_cover_all_rows_once",
    "TestSegmentsRepeatedBoundary": "test_scan_pages_cover_all_rows_once",
    "TestSegmentsCountedUnknownKeys": "test_delete_by_keys_returns_how_many_went",
    "TestSegmentsDeletedAreCounted": "test_delete_by_keys_returns_how_many_went",
    "TestSegmentsNoKeysAreAll": "test_an_empty_list_of_keys_deletes_nothing",
    "TestSegmentsKeptOnDrop": "test_a_dropped_collection_is_gone",
    "TestSegmentsAnySchema": "test_create_with_another_schema_is_refused",
    "TestVectorsNotForgotten": RANKED_BY_FILTER,
    "TestVectorsOrAsAnd": RANKED_BY_FILTER,
    "TestVectorsBackslashesUnescaped": RANKED_BY_FILTER,
    "TestVectorsFilterIgnored": RANKED_BY_FILTER,
    "TestVectorsOneTooMany": "test_search_returns_the_true_nearest",
    "TestVectorsTiesAsTheyCome": "test_ties_are_complete_and_ordered_by_key",
    "TestVectorsTiesCutOff": "test_ties_are_complete_and_ordered_by_key",
    "TestVectorsCosineWithoutLength": "test_search_returns_the_true_nearest",
    "TestVectorsZeroNotFound": "test_more_than_there_are_is_fine",
    "TestVectorsDistances": "test_search_returns_the_true_nearest",
    "TestVectorsFilteredAfterwards": "test_a_narrow_filter_does_not_shorten_the_result",
    "TestVectorsHalfPrecision": "test_what_is_upserted_is_read_back_equal",
    "TestVectorsOldFields": "test_upsert_replaces_whole_rows",
    "TestVectorsWrittenBeforeRefused": "test_a_wrong_dimension_is_refused_and_nothing_is_written",
    "TestVectorsAnyMetric": "test_create_with_another_schema_is_refused",
    "TestVectorsDeletedVectorsAreCounted": "test_delete_by_keys_returns_how_many_went",
    "TestVectorsDeletedAreFound": "test_delete_by_keys_returns_how_many_went",
    "TestVectorsWrittenOrder": "test_scan_pages_cover_all_rows_once_in_key_order",
    "TestVectorsSharedByAllRows": "test_what_is_declared_is_kept",
}
"""The test that notices each of the faults; most of them are noticed by others, too."""


@pytest.fixture(scope="module")
def told(request) -> str:
    """What pytest says of the killers' tests, each over its fault; only of those that this run has
    chosen.
    """
    here = [
        item
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    suites = [item.callspec.params["suite"] for item in here]
    nodes = [f"tests/contract/mutants.py::{suite}::{KILLERS[suite]}" for suite in suites]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        *nodes,
    ]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.sample(60)
@pytest.mark.parametrize("suite", KILLERS)
def test_a_fault_is_noticed(told, suite):
    """The test that says so fails over the store with the fault."""
    killers = re.findall(rf"^FAILED \S+::{suite}::(\w+)", told, re.MULTILINE)
    assert KILLERS[suite] in killers, told[-3000:]


def test_every_fault_is_looked_at():
    """No fault is without a test that notices it, and both kinds of stores have at least ten."""
    assert {name for name in vars(mutants) if name.startswith("Test")} == {*KILLERS}
    assert min(len(mutants.SEGMENT_FAULTS), len(mutants.VECTOR_FAULTS)) >= 10
