"""Names in SQL, for SQLite, DuckDB and PostgreSQL. Pure."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """Quotes a name as an SQL identifier. The name may have any characters."""
    return '"' + name.replace('"', '""') + '"'
