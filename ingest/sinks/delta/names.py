"""Identities: application ids in the Delta log, file names, fingerprints. All injective for arbitrary pipeline ids and attempts."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Literal

import msgspec

from ingest.model.window import Window

AppKind = Literal["window", "receipt", "version", "commits", "dead", "swept"]

RECEIPTS = "_windrow/receipts"
"""Receipt files, in the table's own directory: Delta's vacuum never enters a directory whose name begins with an underscore."""

STAGED = "data"
"""Staged Parquet files; the ones that a commit names are the table's data."""

_HEX = 16
_RECEIPT = re.compile(r"(?P<key>[^.]+(?:\.\d+Z)?)\.(?P<generation>\d+)\.(?P<pipeline>[A-Za-z0-9_-]+)\.(?P<print>[0-9a-f]{16})\.json")


def app_id(kind: AppKind, *parts: str) -> str:
    """A Delta application id. JSON, so that no choice of names makes two identities one."""
    return "windrow:" + msgspec.json.encode([kind, *parts]).decode()


def parse_app_id(app: str) -> list[str] | None:
    """The kind and the parts of an application id; None if it is not windrow's."""
    try:
        return msgspec.json.decode(app.removeprefix("windrow:"), type=list[str]) if app.startswith("windrow:") else None
    except msgspec.DecodeError:
        return None


def window_app(key: str, pipeline: str) -> str:
    """Of a window (its key) and pipeline, whose version is generation + 1.

    The generation is never in the id: two stale writers would both commit.
    """
    return app_id("window", key, pipeline)


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


def dead_app(window: Window, attempt: str) -> str:
    """Of one attempt's dead letters, in their own table."""
    return app_id("dead", window.key, window.pipeline, attempt)


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
    return f"{window.key.replace(':', '_')}.{generation}.{safe(window.pipeline)}.{digits}.json"


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
