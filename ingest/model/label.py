"""What a boundary is frozen under: an instant of the grid, or the sequence number of a
micro-batch.
"""

from __future__ import annotations

from datetime import UTC, datetime

Label = datetime | int
"""What a boundary is frozen under: an instant of the grid, or, between micro-batches, a
sequence number.
"""


def instant(moment: datetime) -> str:
    """The one text form of an instant: `2026-01-02T03:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """The one text form of a label: an instant, or `batch-000000007`, which sorts as
    the numbers do.
    """
    return instant(label) if isinstance(label, datetime) else f"batch-{label:09d}"


def number_of(label: Label) -> int:
    """The sequence number that a label is.

    Raises:
        TypeError: it is an instant.
    """
    if isinstance(label, datetime):
        msg = f"{instant(label)} is no sequence number"
        raise TypeError(msg)
    return label


def is_later(one: Label, other: Label) -> bool:
    """Whether a label comes after another one of its pipeline.

    An instant and a number are in no order: neither comes after the other.
    """
    if isinstance(one, datetime) or isinstance(other, datetime):
        return isinstance(one, datetime) and isinstance(other, datetime) and one > other
    return one > other


def require_label(name: str, label: Label) -> None:
    """Hold a label against its invariants; `name` is the field it stands in."""
    if isinstance(label, int):
        if label < 0:
            msg = f"{name} must not be negative: {label}"
            raise ValueError(msg)
    elif label.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {label!r}"
        raise ValueError(msg)
