"""Names in a table's log and folder. No two attempts have one."""

from __future__ import annotations

import hashlib
import re
import uuid

PAGES_APP = "windrow:pages"
"""The application whose version is the name of the newest page (`ingest.sinks.pages`)."""

GRAVES = "_windrow/tombstones"
"""Files of keys that windows took out of a table with a primary key, named by their receipts."""

STAGED = "data"
"""Staged Parquet files; the ones that a commit names are the table's data."""

_HEX = 16


def safe(text: str) -> str:
    """Any text as a part of a file name: readable, and never the same for two texts."""
    return (
        re.sub(r"[^A-Za-z0-9-]", "_", text)[:40]
        + "-"
        + hashlib.sha256(text.encode()).hexdigest()[:_HEX]
    )


def staged_path(window_key: str, attempt: str) -> str:
    """A new path under the table, unique to this call; needs no escaping in a URL."""
    folder = window_key.replace(":", "").replace("-", "")
    return f"{STAGED}/{folder}/{safe(attempt)}-{uuid.uuid4().hex}.parquet"
