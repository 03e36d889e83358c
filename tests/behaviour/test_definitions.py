"""Fingerprints of definitions, and the nodes that the built-in transforms make, are the recorded
ones.

A store of an earlier release is built anew where one of these differs: it may differ in a release
that says so.
"""

from __future__ import annotations

from tests.behaviour import goldens
from tests.behaviour.definitions import definition_rows


def test_definitions(tmp_path):
    """Every built-in transform, functions and lambdas, classes and objects."""
    goldens.check("definitions", definition_rows(tmp_path))
