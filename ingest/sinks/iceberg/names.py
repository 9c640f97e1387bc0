"""Identities and the names of files. All injective for arbitrary pipeline ids, windows and attempts."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Literal

import msgspec

from windrow.ingest.model.window import Window

NoteKind = Literal["dead", "publishing", "published"]

OWN = "_windrow"
"""Receipts and pages lie here, below the table: Spark's removal of orphan files enters no folder whose name begins with an underscore."""

RECEIPTS = f"{OWN}/receipts"
PAGES = f"{OWN}/pages"

STAGED = "data/windrow"
"""Staged Parquet files; the ones that a snapshot names are the table's data."""

_DIGITS = 32


def digest(content: bytes) -> str:
    """128 bits of a file's SHA-256: by these a commit names receipts and pages."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def note(kind: NoteKind, window: Window, attempt: str) -> str:
    """What is noted of an attempt's dead letters. JSON, so that no choice of names makes two identities one."""
    return msgspec.json.encode([kind, window.key, window.pipeline, attempt]).decode()


def window_of(name: str, kind: NoteKind) -> tuple[str, str] | None:
    """The window's key and the attempt of a note; None if it is of another kind."""
    said, key, _, attempt = msgspec.json.decode(name, type=tuple[str, str, str, str])
    return (key, attempt) if said == kind else None


def receipt_path(key: str, generation: int, named: str) -> str:
    """Where the receipt of a window lies, whose content has this digest."""
    return f"{RECEIPTS}/{key.replace(':', '_')}.{generation}.{named}.json"


def page_path(named: str) -> str:
    """Where the page lies whose content has this digest."""
    return f"{PAGES}/{named}.json"


def staged_path(window_key: str, attempt: str) -> str:
    """A new path under the table, unique to this call; needs no escaping in a URL."""
    readable = re.sub(r"[^A-Za-z0-9-]", "_", attempt)[:40]
    folder = window_key.replace(":", "").replace("-", "")
    return f"{STAGED}/{folder}/{readable}-{uuid.uuid4().hex}.parquet"
