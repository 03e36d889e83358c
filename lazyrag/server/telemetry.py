"""Metrics of one web process in Prometheus' text format, and a span for each request."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lazyrag.pipeline.tracing import span

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the latency histogram."""


class Metrics:
    """Counts requests by method, route and status, and their latencies by route."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._latencies: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count a request. Paths without a route count as one, so that callers cannot add series."""
        route = route_of(scope)
        with self._lock:
            self._requests[scope["method"], route, status] += 1
            self._latencies[route][bisect_left(BUCKETS_S, seconds)] += 1
            self._seconds[route] += seconds

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all series.

        Args:
            gauges: More values by series: ``'lazyrag_documents{set="notes"}'``.
        """
        lines = ["# TYPE lazyrag_http_requests_total counter"]
        with self._lock:
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"lazyrag_http_requests_total{{{labels}}} {count}")
            lines.append("# TYPE lazyrag_http_request_seconds histogram")
            for route, counts in sorted(self._latencies.items()):
                reached = 0
                for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                    reached += count
                    lines.append(f'lazyrag_http_request_seconds_bucket{{route="{route}",le="{bound}"}} {reached}')
                lines.append(f'lazyrag_http_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
                lines.append(f'lazyrag_http_request_seconds_count{{route="{route}"}} {reached}')
        seen: set[str] = set()
        for series, value in gauges.items():
            name = series.partition("{")[0]
            lines += [] if name in seen else [f"# TYPE {name} gauge"]
            seen.add(name)
            lines.append(f"{series} {value:g}")
        return "\n".join(lines) + "\n"


def route_of(scope: Mapping[str, Any]) -> str:
    """The route's path with its parameters' names; "" for paths without a route."""
    return str(getattr(scope.get("route"), "path", ""))


@contextmanager
def request_span(scope: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Put a span around a request, a child of the caller's that ``traceparent`` names.

    Yields a mapping for more attributes. The path is not recorded: it names documents.
    """
    with _context_of(scope), span(f"HTTP {scope['method']}", kind="server") as tracing:
        attributes: dict[str, Any] = {"http.request.method": scope["method"]}
        try:
            yield attributes
        finally:
            tracing.set({**attributes, "http.route": route_of(scope) or None})


@contextmanager
def _context_of(scope: Mapping[str, Any]) -> Iterator[None]:
    try:
        from opentelemetry import context, propagate
    except ModuleNotFoundError:
        yield
        return
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)
