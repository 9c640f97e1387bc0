"""A clock that is ahead, for the modules of the sinks.

A sweep then takes files that were just staged for old ones. Their times on disk stay as they
are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, tzinfo
from unittest import mock


@contextmanager
def clock_ahead(ahead: timedelta) -> Iterator[None]:
    """Sets the clock of every loaded module of the sinks ahead inside the block."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + ahead

    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if (
                name.startswith("windrow.ingest.sinks.")
                and vars(module).get("datetime") is datetime
            ):
                patches.enter_context(mock.patch.object(module, "datetime", Ahead))
        yield
