"""Delta tables with a primary key, as `world.py` has those without: its broken twins append, and are none of these."""

from __future__ import annotations

from tests.sinks.delta.world import pieces, sink_at

__all__ = ["pieces", "sink_at"]
