"""Embedded engines: exact lexical and dense search over immutable parts, numpy only."""
