"""Why a message is refused."""

from __future__ import annotations


class RefusedValueError(ValueError):
    """A short reason to count by, and what was expected where. Never a value: a path holds names of the schema and positions only."""

    def __init__(self, reason: str, what: str, path: str = "$") -> None:
        super().__init__(reason, what, path)
        self.reason = reason
        self.detail = f"{what} - at {path}" if path else what
