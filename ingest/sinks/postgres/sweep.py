"""Staged tables that nobody can need any more.

To remove one is to give it up: a commit that would move its rows waits for the removal, or the removal for the commit, and then finds it
gone. So every outcome is known, whatever the grace period; that only keeps attempts that are still at work from being given up.
"""

from __future__ import annotations

from datetime import timedelta

import psycopg
from psycopg import sql

from ingest.sinks.postgres.names import staged_at, staged_prefix
from ingest.sinks.postgres.server import Connection, TablePlace, connected

_LEAST = timedelta(hours=1)
_STAGED = """
SELECT c.relname::text, extract(epoch FROM now())::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND starts_with(c.relname::text, %s) AND c.relkind = 'r' ORDER BY 1
"""


def sweep(place: TablePlace, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Remove what was staged for a table longer ago than that, by the server's clock, and is there still; or only look for it.

    Raises:
        ValueError: for a grace period under an hour.
        UnreachableError: the server is out of reach; what is removed then is told by the next sweep's not finding it.
    """
    if older_than < _LEAST:
        msg = f"a grace period of {older_than} would take the rows of runs that are still staging; the least is {_LEAST}"
        raise ValueError(msg)
    grace = int(older_than.total_seconds())
    with connected(place.url) as connection:
        rows = connection.execute(_STAGED, [place.own, staged_prefix(place.name)]).fetchall()
        old = [name for name, now in rows if staged_at(name) <= now - grace]
        return [f"{place.url.place}/{place.own}.{name}" for name in old if dry_run or _removed(connection, place, name)]


def _removed(connection: Connection, place: TablePlace, name: str) -> bool:
    """Remove one; False if a commit holds it just now."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '5s'")
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(place.mine(name)), ())
    except psycopg.errors.LockNotAvailable:
        return False
    return True
