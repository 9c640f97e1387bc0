"""Imports that the child processes of `tests.warm` need, for all kinds of sinks."""

from __future__ import annotations

from contextlib import suppress

from tests.chaos import reader, worker
from tests.sinks.worlds import SINKS, world_of

__all__ = ["reader", "worker"]

for kind in SINKS:
    with suppress(ImportError):
        world_of(kind)
