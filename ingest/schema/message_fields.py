"""Where a field is in a message, and in which form."""

from __future__ import annotations

from typing import Literal

Codec = Literal["gzip", "deflate", "deflate-raw", "zstd", "base64", "json"]
"""Codec around a value or a field.

`deflate` is a stream of zlib (RFC 1950), `deflate-raw` one without its header (RFC 1951), and
`json` a JSON string around a whole value, or a JSON text in a field.
"""

DocumentForm = Literal["array", "lines"]
"""How a value holds several documents."""

FieldPath = tuple[str, ...]
"""Names of nested fields, the outermost first."""
