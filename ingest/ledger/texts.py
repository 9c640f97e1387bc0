"""How a value lies in the ledger: its JSON, a long one compressed.

What is kept of a window grows with its topic-partitions, and says much the same of
each: a thousand of them are a megabyte of JSON, and a tenth of that compressed. A short
value stays readable for who looks into the database.
"""

from __future__ import annotations

import base64
import zlib

LONG = 16 * 1024
"""A text of more characters is compressed."""

_PACKED = "zlib:"
"""How a compressed text begins; JSON never does."""


def packed(text: str) -> str:
    """What is kept of a text."""
    return (
        text
        if len(text) <= LONG
        else _PACKED + base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    )


def unpacked(kept: str) -> str:
    """The text that is kept.

    Raises:
        ValueError: it is damaged.
    """
    if not kept.startswith(_PACKED):
        return kept
    try:
        return zlib.decompress(base64.b64decode(kept.removeprefix(_PACKED), validate=True)).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from None
