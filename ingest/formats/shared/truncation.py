"""What becomes of timestamps that are finer than a column's."""

from __future__ import annotations

from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Finer


class Truncation:
    """By what the spec says. `done`: whether a timestamp of the message was truncated."""

    def __init__(self, finer: Finer = "truncate") -> None:
        self.done = False
        self._finer = finer

    def needed(self, path: str) -> None:
        """For a timestamp that is finer than a microsecond.

        Raises:
            RefusedValueError: the spec wants none of them.
        """
        if self._finer == "dead":
            raise RefusedValueError(
                "out_of_range", "Expected a timestamp of whole microseconds", path
            )
        self.done = True
