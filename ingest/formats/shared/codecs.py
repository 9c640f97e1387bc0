"""Codecs around values and fields, opened within bounds."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.errors import format_count
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.message_fields import Codec

FREE, SHARE, MOST = 1 << 15, 32, 8 << 20
"""Bounds in bytes of a value that is opened.

It may have `FREE` bytes plus `SHARE` bytes for each byte that it had at first, but at most `MOST`,
or its own size. The bounds are for all codecs of a value together.

So the opened values of a batch fit into an Arrow array of texts, which holds 2 GB: a batch has
32,768 messages and 16 MB at most, which become 1.6 GB.
"""


class _TooLargeError(ValueError):
    """An opened value has more bytes than its bound."""


def open_codecs(value: bytes, codecs: Sequence[Codec], path: str = "") -> bytes:
    """Returns the bytes inside a value.

    Args:
        value: the value.
        codecs: the codecs, the outermost first.
        path: the path of the value in its message, for the refusal.

    Raises:
        RefusedValueError: the value isn't in one of the codecs, or has too many bytes.
    """
    limit = min(FREE + SHARE * len(value), max(MOST, len(value)))
    for codec in codecs:
        try:
            value = _OPEN[codec](value, limit)
        except _TooLargeError:
            raise RefusedValueError(
                "too_large",
                f"Expected at most {format_count(limit, 'byte')} in {codec}",
                path,
            ) from None
        except (ValueError, zlib.error, OSError):
            reason = f"not_{codec.replace('-', '_')}"
            raise RefusedValueError(reason, f"Expected {codec}", path) from None
    return value


def _from_zlib(window_bits: int) -> Callable[[bytes, int], bytes]:
    def decompress(value: bytes, limit: int) -> bytes:
        stream = zlib.decompressobj(window_bits)
        opened = stream.decompress(value, limit + 1)
        if len(opened) > limit:
            raise _TooLargeError
        if not stream.eof or stream.unused_data:
            raise ValueError
        return opened

    return decompress


def _from_zstd(value: bytes, limit: int) -> bytes:
    if not value:
        raise ValueError
    opened: bytes = pa.input_stream(pa.py_buffer(value), compression="zstd").read(limit + 1)
    if len(opened) > limit:
        raise _TooLargeError
    return opened


_OPEN: Mapping[Codec, Callable[[bytes, int], bytes]] = {
    "gzip": _from_zlib(16 + zlib.MAX_WBITS),
    "deflate": _from_zlib(zlib.MAX_WBITS),
    "deflate-raw": _from_zlib(-zlib.MAX_WBITS),
    "zstd": _from_zstd,
    "base64": lambda value, _limit: binascii.a2b_base64(value, strict_mode=True),
    "json": lambda value, _limit: msgspec.json.decode(value, type=str).encode(),
}
