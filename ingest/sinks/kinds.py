"""The kinds of sinks that there are: one line each. What stands behind a line is loaded when a spec names the kind."""

from __future__ import annotations

from typing import Annotated, Any

from ingest.config.kinds import OfItsKind, kind_at
from ingest.sinks.kind import SinkKind, SinkSection

KINDS = {
    "delta": "ingest.sinks.delta.kind:DELTA",
}

SinkOfItsKind = Annotated[SinkSection, OfItsKind("kind", "delta", KINDS)]
"""A spec's `sink` section."""


def sink_kind(name: str) -> SinkKind[Any]:
    """Load a kind and nothing of the others. `name` is one of `KINDS`."""
    kind: SinkKind[Any] = kind_at(KINDS[name])
    return kind
