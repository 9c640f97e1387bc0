"""Delta tables with a primary key, as `world.py` has those without: its broken twins
append, and are none of these.
"""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from tests.sinks.delta.world import pieces, sink_at
from tests.sinks.keyed_logs import Keyed
from tests.sinks.with_dead_letters import DeltaKeyedBoth

__all__ = ["DeltaKeyed", "pieces", "sink_at"]


class DeltaKeyed(Keyed):
    """See `Keyed`; `uri` is the table's folder."""

    def made(self) -> DeltaKeyedBoth:
        return DeltaKeyedBoth(self.uri, self.rows, self.key, evolve="widen")

    def read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.uri).to_pyarrow_table().to_pylist()
        return found
