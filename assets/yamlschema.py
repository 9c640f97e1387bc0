"""Converts pydantic's JSON schema of a spec for editors and `dg check yaml`.

pydantic's schema describes parsed values: an ISO duration, an integer for a size. A spec
may have `5m`, `16MiB`, `none`, and templates anywhere. No schema can express conflicts
between settings; `dg check defs` finds those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.ingest.model.grid import BATCH, NAMED

Node = dict[str, Any]

TEMPLATE: Node = {"type": "string", "pattern": r"\{\{|\{name\}"}
"""The schema of a template, or of a text with a topic's name: its value isn't known."""

_DURATION = r"^([0-9]+|([0-9]+(ms|[smhd]))+)$"
_SIZE = r"^[0-9]+ ?(KiB|MiB|GiB)?$"
_COUNT = r"^([0-9]+|none)$"
_NUMBER = r"^[0-9]*\.?[0-9]+$"
_TEXTS = {
    "id": r"^[a-zA-Z0-9._-]{1,100}$",
    "grid": rf"^({'|'.join([*NAMED, BATCH])}|[-0-9*,/]+( [-0-9*,/]+){{4}})$",
    "schema": r"^[^:]+:[^:]+$",
    "bootstrap_servers": r":[0-9]{1,5}\s*(,|$)",
}
"""Patterns of settings that pydantic checks by functions."""

_ABOUT = ("default", "description", "title")


def as_written(schema: Mapping[str, Any]) -> Node:
    """Returns the schema with every notation of each setting."""
    converted: Node = dict(schema)
    if "properties" in schema:
        converted["properties"] = {
            name: _with_template(name, node) for name, node in schema["properties"].items()
        }
    if "$defs" in schema:
        converted["$defs"] = {name: as_written(node) for name, node in schema["$defs"].items()}
    if "allOf" in schema:  # a section of several kinds
        converted["allOf"] = [
            {**case, "then": as_written(case["then"])} for case in schema["allOf"]
        ]
    return converted


def _with_template(name: str, node: Node) -> Node:
    """Accepts a template, or else the setting, so that errors are about the setting alone."""
    about = {key: value for key, value in node.items() if key in _ABOUT}
    rest = {key: value for key, value in node.items() if key not in _ABOUT}
    return {**about, "if": TEMPLATE, "else": _null(name, rest)}


def _null(name: str, node: Node) -> Node:
    """Accepts null, or else the setting, if it has one type. Several types stay alternatives."""
    if "properties" in node:  # a section with several kinds: its anyOf aren't types
        return as_written(node)
    kinds = [_kind(name, kind) for kind in node.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {"if": {"type": "null"}, "else": kinds[0]}
    return {**node, "anyOf": [*kinds, {"type": "null"}]} if kinds else _kind(name, node)


def _kind(name: str, node: Node) -> Node:
    if "properties" in node:  # a section of several kinds
        return as_written(node)
    if "allOf" in node.get("items", {}):  # a list of them
        return {**node, "items": as_written(node["items"])}
    if node.get("format") == "duration":
        return {"type": ["string", "integer"], "minimum": 0, "pattern": _DURATION}
    if node.get("format") == "date-time":
        return {"type": "string"}
    if node.get("type") in ("integer", "number"):  # it may be a list
        pattern = (
            _NUMBER if node["type"] == "number" else _SIZE if name.endswith("_bytes") else _COUNT
        )
        bounds = {
            "minimum": node.get("ge", node.get("minimum", 0)),
            **({"maximum": node["maximum"]} if "maximum" in node else {}),
        }
        return {"type": [node["type"], "string"], "pattern": pattern, **bounds}
    if name in _TEXTS and "string" in node.get("type", ()):  # one type, or a list of them
        return {**node, "pattern": _TEXTS[name]}
    return as_written(node) if "allOf" in node else node
