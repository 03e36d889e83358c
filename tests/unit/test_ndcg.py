"""The measure by which tests/live compares stores."""

from __future__ import annotations

import pytest

from tests.live.quality import ndcg

NOTHING_RIGHT = [f"x{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("found", "grades", "expected"),
    [
        (["a", "x", "b"], {"a": 1, "b": 1}, 0.9197207891481876),
        (["x", "a", "b", "c"], {"a": 1, "b": 3, "c": 2}, 0.6283853745012301),
        ([*NOTHING_RIGHT, "a"], {"a": 1}, 0.0),
        (["a"], dict.fromkeys("abcdefghijklm", 1), 0.22009176629808017),
        (["b", "a"], {"b": 3, "a": 1}, 1.0),
        ([], {"a": 1}, 0.0),
    ],
)
def test_it_is_what_ir_measures_says(found, grades, expected):
    """nDCG@10 by ir_measures 0.4.3, which was asked once."""
    assert ndcg(found, grades) == pytest.approx(expected, abs=1e-12)
