"""The transactional ids of a Kafka table.

Pure: attempts at the same part of a window have the same id, so that a later one fences
an earlier one.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from windrow.ingest.model.plan import Plan
from windrow.ingest.model.window import Window
from windrow.ingest.sinks.kafka.parts import Part, chains


class TransactionalIds(msgspec.Struct, frozen=True):
    """`prefix`: how all of them begin; `control`: the control topic, by which two
    tables differ; `lanes`: how many sets windows share.
    """

    prefix: str
    control: str
    lanes: int

    def table(self, pipeline: str) -> str:
        """That of receipts: one for the whole table."""
        return self._name(pipeline, "table")

    def part(self, window: Window, part: Part) -> str:
        """That of one transaction of a window's splits."""
        lane = int.from_bytes(sha256(window.key.encode()).digest()[:8], "big") % self.lanes
        return self._name(window.pipeline, f"{lane}.{part[0]}")

    def of_window(self, plan: Plan) -> list[str]:
        """All that runs of a window use, the table's first."""
        parts = [part for chain in chains(plan) for part in chain]
        return [self.table(plan.window.pipeline), *(self.part(plan.window, part) for part in parts)]

    def _name(self, pipeline: str, part: str) -> str:
        return f"{self.prefix}.{pipeline}.{sha256(self.control.encode()).hexdigest()[:8]}.{part}"
