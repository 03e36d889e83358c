"""Metrics of one web process in Prometheus' text format. Spans of requests are made by FastAPI
itself.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate

from starlette.types import Scope

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the latency histogram."""


_MAX_ROUTES = 12  # in `Metrics.latencies`


class Metrics:
    """Counts requests by method, route and status, and their latencies by route."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._latencies: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request. Unknown paths and methods count as one, so that callers cannot add
        series.
        """
        route = route_of(scope)
        method = scope["method"] if scope["method"] in METHODS else ""
        with self._lock:
            self._requests[method, route, status] += 1
            self._latencies[route][bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[route] += seconds

    def latencies(self) -> list[tuple[str, int, float, float, float]]:
        """The routes that took most time: requests; mean, and bounds of median and 95th percentile,
        in seconds.
        """
        rows = []
        with self._lock:
            slowest = sorted(self._latencies, key=self._seconds.__getitem__, reverse=True)
            for route in slowest[:_MAX_ROUTES]:
                sums = list(accumulate(self._latencies[route]))
                total = sums[-1]
                median, p95 = (
                    (*BUCKETS_S, float("inf"))[bisect_left(sums, part * total)]
                    for part in (0.5, 0.95)
                )
                rows.append((route, total, self._seconds[route] / total, median, p95))
        return rows

    def text(self, gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
        """Return all series. Each names its process: a scrape reaches one of several.

        Args:
            gauges: Names, labels and values of more series.
        """
        families: dict[str, list[str]] = defaultdict(list)

        def add(kind: str, family: str, value: float, suffix: str = "", **labels: object) -> None:
            quoted = [
                f"{name}={json.dumps(str(of), ensure_ascii=False)}" for name, of in labels.items()
            ]
            text = ",".join([*quoted, f'process="{os.getpid()}"'])
            families[f"# TYPE lazyrag_{family} {kind}"].append(
                f"lazyrag_{family}{suffix}{{{text}}} {value}"
            )

        with self._lock:
            for (method, route, status), count in sorted(self._requests.items()):
                add(
                    "counter",
                    "http_requests_total",
                    count,
                    method=method,
                    route=route,
                    status=status,
                )
            for route, counts in sorted(self._latencies.items()):
                for bound, count in zip((*BUCKETS_S, "+Inf"), accumulate(counts), strict=True):
                    add(
                        "histogram", "http_request_seconds", count, "_bucket", route=route, le=bound
                    )
                add("histogram", "http_request_seconds", self._seconds[route], "_sum", route=route)
                add("histogram", "http_request_seconds", sum(counts), "_count", route=route)
        for name, labels, value in gauges:
            add("gauge", name, value, **labels)
        return "".join("\n".join([head, *lines, ""]) for head, lines in families.items())


def route_of(scope: Scope) -> str:
    """The route's path with its parameters' names; "" for paths without a route."""
    return str(getattr(scope.get("route"), "path", ""))
