"""A connection to a PostgreSQL server that waits for no answer without limit.

A statement may take hours, so silence alone says nothing; and a server that is stopped
is as silent as one that is at work: its kernel still takes bytes and answers
keepalives, so libpq's own timeouts don't end. A proxy that has lost the server's answer
is as silent, too. So who has waited for a while asks on a new connection what his
session does. It is given up, as the connection is lost, where three times in a row
nobody answers, or the session waits for its client, or is gone; what that means is its
user's to say. Where it waits for a lock, it is said who holds it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import conninfo, pq
from psycopg.abc import RV, PQGen

from windrow.ingest import waiting

QUIET = 5.0
"""Seconds without a byte after which the server is asked."""

ANSWER = 10
"""Whole seconds that it may take to answer."""

UNANSWERED = 3
"""Questions in a row by which nobody is at work on an answer, after which the session is given up.

Within a minute, where nobody takes the question's connection; within two, where one is
taken slowly and nothing is said on it.
"""

LONGEST = 86_400.0
"""Seconds without a byte after which a session is given up, whatever the server says:
its own process may be stopped alone.
"""

_DOES = """
SELECT a.wait_event_type, a.wait_event, b.pid, b.usename::text, b.application_name
FROM pg_stat_activity a LEFT JOIN pg_stat_activity b ON b.pid = (pg_blocking_pids(a.pid))[1] WHERE a.pid = %s
"""  # noqa: E501
_FOR_ITS_CLIENT = {"ClientRead", "ClientWrite"}
_LOG = logging.getLogger("windrow.postgres")


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """See above. Whatever waits on it may raise OperationalError, and leaves it closed.

    `session`: the process that serves it, if that has been asked; a pooler says another
    one when it is connected to. `said`: that it is waited for, once for all of its
    statements.
    """

    session: int | None = None
    said: bool = False

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """See `psycopg.Connection.wait`, which all that waits for the server goes
        through; it wakes up ten times a second.
        """
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        heard = asked = time.monotonic()
        unanswered, told = 0, False
        try:
            state = next(gen)
            while True:
                ready = yield state
                now = time.monotonic()
                if ready:
                    heard = asked = now
                    unanswered = 0
                elif now - heard > waiting.SECONDS and not self.said:
                    waiting.say(f"the server {self.info.host}, which is at work or held up")
                    self.said = True
                elif now - asked > QUIET:
                    at_work, lock = self._ask()
                    unanswered = 0 if at_work else unanswered + 1
                    if lock is not None and not told:
                        _LOG.warning("The server %s is waited for: %s", self.info.host, lock)
                        told = True
                    asked = time.monotonic()
                if unanswered == UNANSWERED or now - heard > LONGEST:
                    self.pgconn.finish()  # else its end would be waited for, too
                    raise psycopg.OperationalError(f"it hasn't answered for {now - heard:.0f} s")
                state = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def _ask(self) -> tuple[bool, str | None]:
        """Whether an answer may still come, as far as anybody new is told; and who
        holds the lock that it waits for.
        """
        mine = {
            option.keyword.decode(): option.val.decode()
            for option in self.pgconn.info
            if option.val is not None
        }
        asked = conninfo.make_conninfo("", **{**mine, "connect_timeout": str(ANSWER)})
        try:
            with _Question.connect(asked, autocommit=True) as question:
                row = question.execute(_DOES, [self.session or self.info.backend_pid]).fetchone()
        except psycopg.errors.ConnectionTimeout:
            return False, None
        except psycopg.Error:  # it takes no more connections, say: as long as it answers, nothing is known of the session  # noqa: E501
            return pq.PGconn.ping(asked.encode()) != pq.Ping.NO_RESPONSE, None
        if row is None or row[1] in _FOR_ITS_CLIENT:
            return False, None
        holder = (
            "another session"
            if row[2] is None
            else f"session {row[2]} of user {row[3]} ({row[4] or 'it says no name'})"
        )
        return True, f"{holder} holds a lock" if row[0] == "Lock" else None


class _Question(psycopg.Connection[tuple[Any, ...]]):
    """Waits no longer than a server may take to answer."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        return super().wait(gen, *args, **{**options, "timeout": ANSWER})
