"""The table's lock, and what becomes of a run that holds it and was stopped.

The server ends a session that is idle in a transaction, by itself; one that waits for
more of a COPY it takes for busy, and neither its timeouts nor a cancelled query get
there. So who waits for the lock looks who has it:

    1 A holds the lock, and is stopped in the middle of a COPY.    2 B can't get the
    lock, and sees A's COPY wait for bytes. 3 It sees the same count of bytes for
    `STALLED`, and ends A's session; the server rolls back.    4 B has the lock. 5 A
    wakes, has lost its connection, begins again, and finds B's receipt.

A run that is only slow is ended as well, at worst; it begins again as A does. Nothing
but time depends on who is right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from windrow.ingest.settings.watched import QUIET
from windrow.ingest.sinks.postgres.names import TableName
from windrow.ingest.sinks.postgres.server import Connection, TablePlace, set_lock_timeout

STALLED = 10.0
"""Seconds without a byte after which a COPY that is waited for is given up; as long as
`server.IDLE`.
"""

GLANCE = 2.0
"""Seconds of waiting between two looks at who has the lock."""

LONGEST = 600.0
"""Seconds that the lock is waited for: commits of other windows into the same table may
be large.
"""

_WAITING = """
SELECT p.pid, a.xact_start::text, p.bytes_processed
FROM pg_stat_progress_copy p JOIN pg_stat_activity a ON a.pid = p.pid
WHERE p.datname = current_database() AND a.usename = current_user AND a.wait_event = 'ClientRead'
    AND 2 = (
        SELECT count(DISTINCT l.relation) FROM pg_locks l
        WHERE l.pid = p.pid AND l.granted AND l.relation IN (to_regclass(%s), to_regclass(%s)) AND l.mode = 'RowExclusiveLock'
    )
"""  # noqa: E501
"""Who holds a lock of ours and waits for its client: somebody else's COPY into the
table holds none of windrow's own tables.

What is to be merged goes into a table of the session's own first, which nobody else
sees: so the locks are looked at, not where the COPY goes.
"""

_LOG = logging.getLogger("windrow.postgres")

Waiting = tuple[int, str, int]
"""A session: its process, when its transaction began, how many bytes its COPY has had."""


def lock_row(
    connection: Connection, place: TablePlace, statement: str, values: Sequence[object]
) -> tuple[Any, ...] | None:
    """Run a statement that locks a row of windrow's own, within a transaction; its first row.

    Raises:
        psycopg.errors.LockNotAvailable: another session has held the lock for too long.
    """
    begun = time.monotonic()
    since: dict[Waiting, float] = {}
    told = False
    while True:
        try:
            # a savepoint: what timed out is undone, the transaction goes on
            with connection.transaction():
                set_lock_timeout(connection, f"{round(GLANCE * 1000)}ms")
                row = connection.execute(place.query(statement), values).fetchone()
        except psycopg.errors.LockNotAvailable:
            waited = time.monotonic() - begun
            if waited > LONGEST:
                raise
            if waited > QUIET and not told:
                _LOG.warning(
                    "The table %s is waited for: another session has held its lock for %d s, a"
                    " commit as a rule",
                    place,
                    waited,
                )
                told = True
            since = end_stalled(connection, place, since)
        else:
            set_lock_timeout(connection)
            return row


def end_stalled(
    connection: Connection, place: TablePlace, since: dict[Waiting, float]
) -> dict[Waiting, float]:
    """End those that were seen as they are now for long enough; since when the others are."""
    # else a transaction sees one state of all sessions, the first
    connection.execute("SELECT pg_stat_clear_snapshot()")
    targets = TableName(place.own, "targets").quoted
    seen: list[Waiting] = connection.execute(_WAITING, [place.name.quoted, targets]).fetchall()
    now = time.monotonic()
    for one in seen:
        if now - since.get(one, now) >= STALLED:
            connection.execute("SELECT pg_terminate_backend(%s)", [one[0]])
    return {one: since.get(one, now) for one in seen}
