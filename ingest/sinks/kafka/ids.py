"""Transactional ids of a Kafka table.

All attempts at the same part of a window have the same id, so that a later attempt
fences an earlier one.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from windrow.ingest.model.plan import Plan
from windrow.ingest.model.window import Window
from windrow.ingest.sinks.kafka.parts import Part, chains


class TransactionalIds(msgspec.Struct, frozen=True):
    """Makes the transactional ids of one table.

    Attributes:
        prefix: how all ids begin.
        control: the name of the control topic, which no other table has.
        lanes: number of id sets; a window uses one of them, chosen by its key.
    """

    prefix: str
    control: str
    lanes: int

    def table(self, pipeline: str) -> str:
        """Returns the id for receipts: one for the whole table."""
        return self._name(pipeline, "table")

    def part(self, window: Window, part: Part) -> str:
        """Returns the id for one part of a window."""
        lane = int.from_bytes(sha256(window.key.encode()).digest()[:8], "big") % self.lanes
        return self._name(window.pipeline, f"{lane}.{part[0]}")

    def of_window(self, plan: Plan) -> list[str]:
        """Returns all ids that runs of a window use, the table's first."""
        parts = [part for chain in chains(plan) for part in chain]
        return [self.table(plan.window.pipeline), *(self.part(plan.window, part) for part in parts)]

    def _name(self, pipeline: str, end: str) -> str:
        return f"{self.prefix}.{pipeline}.{sha256(self.control.encode()).hexdigest()[:8]}.{end}"
