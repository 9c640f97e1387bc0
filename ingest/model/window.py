"""Windows: what was asked."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windrow.ingest.model.label import Label, label_text, require_label


class Window(msgspec.Struct, frozen=True, order=True):
    """What was asked: of one pipeline the time from `start` to `end`, on its grid; or
    the micro-batch between two sequence numbers.
    """

    pipeline: str
    start: Label
    end: Label

    def __post_init__(self) -> None:
        """A window has a length; a micro-batch's is 1."""
        require_label("start", self.start)
        require_label("end", self.end)
        batch = (
            isinstance(self.start, int) and isinstance(self.end, int) and self.end == self.start + 1
        )
        in_time = (
            isinstance(self.start, datetime)
            and isinstance(self.end, datetime)
            and self.start < self.end
        )
        if not batch and not in_time:
            msg = (
                "a window must end after it starts, a micro-batch with the next number:"
                f" {self.start} / {self.end}"
            )
            raise ValueError(msg)

    @property
    def key(self) -> str:
        """The window's text in its column of the table: its start, for the grid gives the end."""
        return label_text(self.start)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From when until when, half-open; None for a micro-batch."""
        return (
            (self.start, self.end)
            if isinstance(self.start, datetime) and isinstance(self.end, datetime)
            else None
        )
