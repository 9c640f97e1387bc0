"""A clock of the sinks that is ahead: to a sweep, what has just been staged is old, and
no file is touched for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, tzinfo
from unittest import mock


@contextmanager
def clock_ahead(ahead: timedelta) -> Iterator[None]:
    """Every module of the sinks that is loaded reads this clock."""

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
