"""Windows: the unit that is planned, committed and replaced."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windrow.ingest.model.label import Label, label_text, require_label


class Window(msgspec.Struct, frozen=True, order=True):
    """The messages of one pipeline between two labels.

    The labels are two instants of the grid, or the two consecutive sequence numbers of
    a micro-batch. Which offsets lie between them, the boundaries under these labels
    say.
    """

    pipeline: str
    start: Label
    end: Label

    def __post_init__(self) -> None:
        """Checks that the window has a length, and a micro-batch the length 1."""
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
        """The window's value in the window column: its start; the grid gives the end."""
        return label_text(self.start)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Start and end in time, half-open; None for a micro-batch."""
        return (
            (self.start, self.end)
            if isinstance(self.start, datetime) and isinstance(self.end, datetime)
            else None
        )
