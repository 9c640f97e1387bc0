"""Under which names a registry has schemas: Confluent's naming strategies.

Reading and writing go by the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["topic", "record", "topic_record"]


@dataclass(frozen=True)
class Subjects:
    """Under which subjects a registry has the schemas of a topic's messages; `part`:
    `key` or `value`.

    `records`: full names of records.
    """

    strategy: Strategy = "topic"
    records: tuple[str, ...] = ()
    part: Literal["key", "value"] = "value"

    def of(self, topic: str) -> tuple[str, ...]:
        """Those of a topic."""
        if self.strategy == "topic":
            return (f"{topic}-{self.part}",)
        return tuple(
            name if self.strategy == "record" else f"{topic}-{name}" for name in self.records
        )

    @property
    def header(self) -> str:
        """The header that may hold the frame."""
        return f"__{self.part}_schema_id"
