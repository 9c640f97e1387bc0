"""Why a message is refused."""

from __future__ import annotations

from windrow.ingest.ports.decoder import SCHEMA, VALUE

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
