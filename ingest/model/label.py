"""What a boundary is frozen under: an instant of the grid, or the sequence number of a micro-batch."""

from __future__ import annotations

from datetime import UTC, datetime

Label = datetime | int
"""What a boundary is frozen under: an instant of the grid, or, between micro-batches, a sequence number."""


def instant(moment: datetime) -> str:
    """The one text form of an instant: `2026-01-02T03:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """The one text form of a label: an instant, or `batch-000000007`, which sorts as the numbers do."""
    return instant(label) if isinstance(label, datetime) else f"batch-{label:09d}"


def require_label(name: str, label: Label) -> None:
    """Hold a label against its invariants; `name` is the field it stands in."""
    if isinstance(label, int):
        if label < 0:
            msg = f"{name} must not be negative: {label}"
            raise ValueError(msg)
    elif label.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {label!r}"
        raise ValueError(msg)
