"""Why a message is refused, or what it loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.ingest.ports.decoder import SCHEMA, VALUE

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Finer

_OF_THE_SCHEMA = frozenset(
    {
        "wrong_type",
        "wrong_format",
        "out_of_range",
        "missing",
        "unknown_field",
        "field_count",
        "other_record",
    }
)


class RefusedValueError(ValueError):
    """A short reason to count by, and what was expected where.

    Never a value: a path holds names of the schema and positions only.
    """

    def __init__(self, reason: str, what: str, path: str = "$") -> None:
        super().__init__(reason, what, path)
        self.reason = reason
        self.detail = f"{what} - at {path}" if path else what

    @property
    def stage(self) -> str:
        """What refuses it: the schema, where a value that is of its format doesn't fit
        the columns.
        """
        return SCHEMA if self.reason in _OF_THE_SCHEMA else VALUE


class Truncation:
    """What becomes of timestamps that are finer than a column's, by what the spec says.

    `done`: whether a timestamp of the message was truncated.
    """

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
