"""What the children of `tests.warm` need of all kinds of sinks."""

from __future__ import annotations

from contextlib import suppress

from tests.chaos import reader, worker
from tests.chaos.sinks import SINKS

__all__ = ["reader", "worker"]

for kind in SINKS.values():
    with suppress(ImportError):
        kind.world  # loads it  # noqa: B018
