"""A Document's report, for all of it or for what may be seen of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lazyrag.data.segment import LAZY_ROOT_NAME, Segment
from lazyrag.document.builder import Builder
from lazyrag.document.report import IngestReport


def report_of(builder: Builder, sees: Callable[[Segment], bool] | None = None) -> IngestReport | None:
    """What became of every file; None before the first sync.

    Args:
        builder: Of the Document.
        sees: Whether a root node may be seen. Then files count only whose root node is there and may be.
    """
    report = builder.report
    if report is None:
        return None
    failed = sorted(builder.failures, key=lambda failure: (failure.path, failure.stage))
    if sees is None:
        return replace(report, failed=tuple(failed))
    tree = builder.ledger.tree
    root = tree.groups.get(LAZY_ROOT_NAME)
    own = [] if root is None else builder.nodes.of_builds(root.collection, list(tree.builds(root)))
    seen = {segment.path for segments in own for segment in segments if sees(segment)}
    return IngestReport(
        added=tuple(one for one in report.added if one in seen),
        updated=tuple(one for one in report.updated if one in seen),
        unchanged=tuple(one for one in report.unchanged if one in seen),
        moved=tuple(pair for pair in report.moved if pair[1] in seen),
        failed=tuple(one for one in failed if one.path in seen and one.path not in builder.failures.misnamed),
    )
