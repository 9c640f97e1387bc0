"""A connection that waits for no answer without limit.

A statement may take hours, so silence alone says nothing; and a server that is stopped is as silent as one that is at work: its kernel
still takes bytes and answers keepalives, so libpq's own timeouts don't end. So who has waited for a while asks whether the server still
answers anybody new. One that doesn't, twice in a row, is given up: the connection is lost, and what that means is its user's to say.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import conninfo, pq
from psycopg.abc import RV, PQGen

QUIET = 15.0
"""Seconds without a byte after which the server is asked."""

ANSWER = 10
"""Whole seconds that it may take to answer."""

UNANSWERED = 2
"""Questions in a row without an answer after which it is given up."""

LONGEST = 86_400.0
"""Seconds without a byte after which a session is given up, whatever the server says: its own process may be stopped alone."""


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """See above. Whatever waits on it may raise OperationalError, and leaves it closed."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """See `psycopg.Connection.wait`, which all that waits for the server goes through; it wakes up ten times a second."""
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        heard = asked = time.monotonic()
        unanswered = 0
        try:
            state = next(gen)
            while True:
                ready = yield state
                now = time.monotonic()
                if ready:
                    heard = asked = now
                    unanswered = 0
                elif now - asked > QUIET:
                    unanswered = 0 if self._answers() else unanswered + 1
                    asked = time.monotonic()
                if unanswered == UNANSWERED or now - heard > LONGEST:
                    self.pgconn.finish()  # else its end would be waited for, too
                    raise psycopg.OperationalError(f"it hasn't answered for {now - heard:.0f} s")
                state = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def _answers(self) -> bool:
        """Whether the server says anything to somebody who comes new, be it that he may not come in."""
        mine = {option.keyword.decode(): option.val.decode() for option in self.pgconn.info if option.val is not None}
        asked = conninfo.make_conninfo("", **{**mine, "connect_timeout": str(ANSWER)})
        return pq.PGconn.ping(asked.encode()) != pq.Ping.NO_RESPONSE
