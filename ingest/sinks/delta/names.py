"""Identities: application ids in the Delta log, file names, fingerprints. All injective for arbitrary pipeline ids and attempts."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Literal

import msgspec

from windrow.ingest.model.window import Window

AppKind = Literal["window", "receipt", "version", "commits", "dead", "publishing", "published", "swept", "ranges"]

RECEIPTS = "_windrow/receipts"
"""Receipt files, in the table's own directory: Delta's vacuum never enters a directory whose name begins with an underscore."""

RANGES = "_windrow/ranges"
"""Files of committed ranges, worked out from receipts."""

GRAVES = "_windrow/graves"
"""Files of keys that windows took out of a table with a primary key, named by their receipts."""

STAGED = "data"
"""Staged Parquet files; the ones that a commit names are the table's data."""

_HEX = 16
_RECEIPT = re.compile(r"(?P<key>[^.]+(?:\.\d+Z)?)\.(?P<generation>\d+)\.(?P<pipeline>[A-Za-z0-9_-]+)\.(?P<print>[0-9a-f]{16})\.json")


def app_id(kind: AppKind, *parts: str) -> str:
    """A Delta application id. JSON, so that no choice of names makes two identities one."""
    return "windrow:" + msgspec.json.encode([kind, *parts]).decode()


def window_app(key: str, pipeline: str) -> str:
    """Of a window (its key) and pipeline, whose version is generation + 1.

    The generation is never in the id: two stale writers would both commit.
    """
    return app_id("window", key, pipeline)


def receipts_among(apps: Mapping[str, int], pipeline: str) -> dict[str, int]:
    """Of all application versions: each committed window's key, and the fingerprint of its receipt."""
    begin, end = 'windrow:["receipt",', f",{msgspec.json.encode(pipeline).decode()}]"
    found = ((app[len(begin) : -len(end)], version) for app, version in apps.items() if app.startswith(begin) and app.endswith(end))
    # A window's key has nothing in it that JSON would escape: what has, is of no window, or has another part in the middle.
    return {key[1:-1]: version for key, version in found if key.count('"') == 2 and "\\" not in key}


def receipt_app(key: str, pipeline: str) -> str:
    """Whose version is the fingerprint of the receipt file."""
    return app_id("receipt", key, pipeline)


def version_app(key: str, pipeline: str) -> str:
    """Whose version is the Delta version of the window's commit: known also after the log was cleaned up."""
    return app_id("version", key, pipeline)


COMMITS_APP = app_id("commits")
"""One for the whole table, counting windrow's commits: any two of them conflict, whatever their windows."""


SWEPT_APP = app_id("swept")
"""One for the whole table, whose version is an instant in epoch milliseconds: staged files last written until then were given up."""


RANGES_APP = app_id("ranges")
"""One for the whole table, whose version is the fingerprint of the newest file of ranges."""


def dead_app(window: Window, attempt: str) -> str:
    """Of one attempt's dead letters, in their own table."""
    return app_id("dead", window.key, window.pipeline, attempt)


def publishing_app(window: Window, attempt: str) -> str:
    """Of one attempt's dead letters, whose version is when their publication began, in epoch milliseconds."""
    return app_id("publishing", window.key, window.pipeline, attempt)


def published_app(window: Window, attempt: str) -> str:
    """The same; there once they are published."""
    return app_id("published", window.key, window.pipeline, attempt)


def fingerprint(content: bytes) -> int:
    """63 bits of a file's SHA-256: as much as an application version holds."""
    return _shorten(hashlib.sha256(content).hexdigest()[:_HEX])


def _shorten(digits: str) -> int:
    return int(digits, 16) >> 1


def safe(text: str) -> str:
    """Any text as a part of a file name: readable, and never the same for two texts."""
    return re.sub(r"[^A-Za-z0-9-]", "_", text)[:40] + "-" + hashlib.sha256(text.encode()).hexdigest()[:_HEX]


class ReceiptName(msgspec.Struct, frozen=True):
    """What the name of a receipt file says."""

    name: str
    key: str
    pipeline: str
    fingerprint: int


def receipt_name(window: Window, generation: int, content: bytes) -> str:
    """Window, generation, pipeline and content, as a file name."""
    digits = hashlib.sha256(content).hexdigest()[:_HEX]
    return f"{name_prefix(window.key)}{generation}.{safe(window.pipeline)}.{digits}.json"


def name_prefix(key: str) -> str:
    """How the names of a window's receipts begin, and those of no other window."""
    return f"{key.replace(':', '_')}."


def fingerprint_in(name: str) -> int | None:
    """The fingerprint in the name of a receipt file; None if it has none."""
    try:
        return _shorten(name[-_HEX - 5 : -5]) if name.endswith(".json") else None
    except ValueError:
        return None


def ranges_name(content: int) -> str:
    """A file of ranges, by the fingerprint of its content."""
    return f"{content:016x}.ranges"


def parse_receipt_name(name: str) -> ReceiptName | None:
    """What a name says; None if it is not a receipt's."""
    found = _RECEIPT.fullmatch(name)
    if found is None:
        return None
    return ReceiptName(name, found["key"].replace("_", ":"), found["pipeline"], _shorten(found["print"]))


def staged_path(window_key: str, attempt: str) -> str:
    """A new path under the table, unique to this call; needs no escaping in a URL."""
    folder = window_key.replace(":", "").replace("-", "")
    return f"{STAGED}/{folder}/{safe(attempt)}-{uuid.uuid4().hex}.parquet"
