"""A connection to PostgreSQL that doesn't wait for an answer for ever.

1. A statement may take hours, so silence alone proves nothing. A stopped server is as
   silent as a busy one: its kernel still takes bytes and answers keepalives, so libpq's
   own timeouts don't fire. So is a proxy that lost the server's answer.
2. After `QUIET` seconds of silence a second connection asks `pg_stat_activity` what the
   session does.
3. The session is given up, as a lost connection, after `UNANSWERED` questions in a row
   to which nobody answers, or by which the session waits for its client, or is gone.
4. If it waits for a lock, a warning names the holder.
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
"""Seconds of silence after which the server is asked."""

ANSWER = 10
"""Seconds that the server has to answer; libpq takes whole ones."""

UNANSWERED = 3
"""Questions in a row without a sign of work, after which the session is given up.

That takes up to a minute if nobody accepts the second connection, up to two if it is
accepted slowly and stays silent.
"""

LONGEST = 86_400.0
"""Seconds of silence after which a session is given up, whatever the server answers.

The session's own process may be stopped.
"""

_DOES = """
SELECT a.wait_event_type, a.wait_event, b.pid, b.usename::text, b.application_name
FROM pg_stat_activity a
LEFT JOIN pg_stat_activity b ON b.pid = (pg_blocking_pids(a.pid))[1]
WHERE a.pid = %s
"""
_FOR_ITS_CLIENT = {"ClientRead", "ClientWrite"}
_LOG = logging.getLogger("windrow.postgres")


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements may raise OperationalError, which leaves it closed.

    `session`: the process id of the server's backend, if a pooler hides it; None: the
    one that the connection names. `said`: True once a wait was announced.
    """

    session: int | None = None
    said: bool = False

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """Overrides `psycopg.Connection.wait`, by which psycopg waits for the server.

        It wakes up ten times a second.
        """
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        heard = asked = time.monotonic()
        unanswered, warned = 0, False
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
                    if lock is not None and not warned:
                        _LOG.warning("The server %s is waited for: %s", self.info.host, lock)
                        warned = True
                    asked = time.monotonic()
                if unanswered == UNANSWERED or now - heard > LONGEST:
                    self.pgconn.finish()  # else its end would be waited for, too
                    raise psycopg.OperationalError(f"it hasn't answered for {now - heard:.0f} s")
                state = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def _ask(self) -> tuple[bool, str | None]:
        """Asks a second connection whether an answer may still come.

        Also returns the holder of the lock that the session waits for, if any.
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
        except psycopg.Error:  # too many connections, say: it answers, so it may be at work
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
    """A connection that waits at most `ANSWER` seconds."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        return super().wait(gen, *args, **{**options, "timeout": ANSWER})
