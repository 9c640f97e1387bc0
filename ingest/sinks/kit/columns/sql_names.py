"""Names in SQL, as SQLite, DuckDB and PostgreSQL take them. Pure."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """A name as an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'
