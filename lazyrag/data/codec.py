"""The JSON form of a node."""

from __future__ import annotations

from lazyrag.data.segment import Location, Segment
from lazyrag.types import JsonMapping, JsonObject


def encode_node(segment: Segment) -> JsonObject:
    """Return a node as JSON, without the number of its build."""
    node = {
        "places" if name == "locations" else name: value
        for name, value in segment._asdict().items()
    }
    del node["build"]
    return {
        **node,
        "metadata": dict(segment.metadata),
        "fields": dict(segment.fields),
        "places": list(map(list, segment.locations)),
    }


def decode_node(node: JsonMapping, build: int) -> Segment:
    """Return the node of `encode_node`, with the number of its build."""
    span = None if node["span"] is None else tuple(node["span"])
    locations = tuple(map(Location._make, node["places"]))
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in node["fields"].items()
    }
    values = {name: value for name, value in node.items() if name != "places"}
    return Segment(
        **{**values, "build": build, "fields": fields, "span": span, "locations": locations}
    )
