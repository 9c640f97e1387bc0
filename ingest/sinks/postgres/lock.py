"""Waits for a table's lock, and ends the session of a stopped run that holds it.

The server itself ends a session that is idle in a transaction. But a session that waits for more
bytes of a COPY counts as busy: no timeout of the server ends it, and no cancelled query. So the
run that waits for the lock watches the one that holds it:

    1 A holds the lock, and is stopped in the middle of a COPY.
    2 B can't get the lock, and sees that A's COPY waits for bytes.
    3 B sees the same count of bytes for `STALLED`, and ends A's session. The server rolls back.
    4 B has the lock.
    5 A wakes, has lost its connection, begins again, and finds B's receipt.

At worst a run that is only slow is ended, and begins again as A does. A wrong guess costs time,
and never a row.
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
"""Seconds without a byte after which the session of a COPY is ended; as long as `server.IDLE`."""

GLANCE = 2.0
"""Seconds of waiting for the lock between two looks at the session that holds it."""

LONGEST = 600.0
"""The most seconds that the lock is waited for: commits of other windows may be large."""

_WAITING = """
SELECT p.pid, a.xact_start::text, p.bytes_processed
FROM pg_stat_progress_copy p JOIN pg_stat_activity a ON a.pid = p.pid
WHERE p.datname = current_database() AND a.usename = current_user AND a.wait_event = 'ClientRead'
    AND 2 = (
        SELECT count(DISTINCT l.relation) FROM pg_locks l
        WHERE l.pid = p.pid AND l.granted AND l.mode = 'RowExclusiveLock'
            AND l.relation IN (to_regclass(%s), to_regclass(%s))
    )
"""
"""The sessions with locks on the table and on `targets` whose COPY waits for its client.

The locks tell that it is a commit of windrow's: a COPY of somebody else has no lock on `targets`,
and a merge copies into a temporary table, which other sessions can't see.
"""

_LOG = logging.getLogger("windrow.postgres")

Waiting = tuple[int, str, int]
"""A session: its process id, the begin of its transaction, the bytes that its COPY has got."""


def lock_row(
    connection: Connection, place: TablePlace, statement: str, values: Sequence[object]
) -> tuple[Any, ...] | None:
    """Runs a statement that locks a row of windrow's own tables; returns its first row.

    Args:
        connection: in a transaction.
        place: the table's.
        statement: with the names of tables as `TablePlace.query` fills them in.
        values: of its placeholders.

    Raises:
        psycopg.errors.LockNotAvailable: another session has held the lock for too long.
    """
    begun = time.monotonic()
    since: dict[Waiting, float] = {}
    said = False
    while True:
        try:
            # a savepoint, by which the transaction goes on after a timeout
            with connection.transaction():
                set_lock_timeout(connection, f"{round(GLANCE * 1000)}ms")
                row = connection.execute(place.query(statement), values).fetchone()
        except psycopg.errors.LockNotAvailable:
            waited = time.monotonic() - begun
            if waited > LONGEST:
                raise
            if waited > QUIET and not said:
                _LOG.warning(
                    "The table %s is waited for: another session, usually a commit, has held its"
                    " lock for %d s",
                    place,
                    waited,
                )
                said = True
            since = end_stalled(connection, place, since)
        else:
            set_lock_timeout(connection)
            return row


def end_stalled(
    connection: Connection, place: TablePlace, since: dict[Waiting, float]
) -> dict[Waiting, float]:
    """Ends the sessions that haven't moved for `STALLED`.

    Args:
        connection: in the transaction that waits.
        place: the table's.
        since: the sessions that the last look saw, and when each was first seen in that state.

    Returns:
        The same for this look.
    """
    # else the transaction would see the sessions as its first look saw them
    connection.execute("SELECT pg_stat_clear_snapshot()")
    targets = TableName(place.own, "targets").quoted
    seen: list[Waiting] = connection.execute(_WAITING, [place.name.quoted, targets]).fetchall()
    now = time.monotonic()
    for one in seen:
        if now - since.get(one, now) >= STALLED:
            connection.execute("SELECT pg_terminate_backend(%s)", [one[0]])
    return {one: since.get(one, now) for one in seen}
