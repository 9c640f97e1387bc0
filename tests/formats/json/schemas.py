"""Random models and JSON documents for them, whole and broken, from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pyarrow as pa

from tests.formats.json.documents import INSERTED, LITERALS
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import EPOCH_UNITS, TIMESTAMP

NAMES = (
    "id",
    "name",
    "amount",
    "a",
    "b",
    "ab",
    "created_at",
    "customer_address_line",
    "größe",
    "o'd\"d /~é.[0]",
    "back\\slash",
    "😀",
    "A b",
    "$ref",
    "名前",
    "x" * 70,
    "eight888",
    "seventeen_letters",
)
SCALARS = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.date32(),
    TIMESTAMP,
    pa.decimal128(10, 2),
    pa.decimal128(18, 0),
    pa.decimal128(19, 4),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.decimal128(5, 5),
)
ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
"""A list of entries, which may be written as an object."""
TEXTS = (
    "",
    "a",
    "customer-12345",
    "seven77",
    "eight888",
    "nine99999",
    "leave at the door, ring twice",
    "é",
    "größer",
    "日本語の文字列",
    "😀😀",
    'tab\tquote"\\/',
    "line\nline\r\b\f",
    "\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff",
    "x" * 7 + "é",
    "x" * 15 + '"',
    "null",
    "{[:,]}",
    "\x00",
    "z" * 300,
)


def columns_of(r: random.Random, max_columns: int = 8) -> Columns:
    """Returns random columns of any types, some of them nested. Most are nullable."""
    names = r.sample(
        [*NAMES, *(f"field_{i}" for i in range(max_columns))], r.randint(1, max_columns)
    )
    return Columns(tuple(_column(r, name) for name in names))


def _column(r: random.Random, name: str) -> Column:
    kind = _type(r, 0)
    epoch = r.choice((None, "s", "ms", "us", "ns")) if kind == TIMESTAMP else None
    return Column(name, kind, nullable=r.random() < 0.8, epoch=epoch)


def _type(r: random.Random, depth: int) -> pa.DataType:
    if depth == 3 or r.random() < 0.6:
        return r.choice(SCALARS)
    nested = r.randrange(3)
    if nested == 0:
        return pa.list_(_type(r, depth + 1))
    if nested == 1:
        return pa.map_(pa.string(), _type(r, depth + 1))
    return pa.struct(
        [pa.field(name, _type(r, depth + 1)) for name in r.sample(NAMES, r.randint(1, 4))]
    )


def document(r: random.Random, columns: Columns, odd: float = 0.02) -> bytes:
    """Returns a document for the columns.

    Args:
        r: the source of randomness.
        columns: the columns.
        odd: the share of values that are of a random kind.
    """
    style = _Style(r, odd)
    fields = {
        c.name: style.value(c.type, c.epoch)
        for c in columns.columns
        if not c.nullable or r.random() < 0.8
    }
    return style.document(fields)


def mutate(r: random.Random, document: bytes) -> bytes:
    """Returns the document with one to three small changes of its bytes.

    A change may also add bytes before or after the document.
    """
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        document = r.choice(MUTATIONS)(r, document)
    return document


def _random_position(r: random.Random, document: bytes) -> int:
    return r.randrange(len(document) + 1)


def _insert(r: random.Random, document: bytes) -> bytes:
    position = _random_position(r, document)
    return (
        document[:position]
        + r.choice(
            (*INSERTED, b"{", b"[", b"-", b"e5", b".", b"0", b"\\u12", b"\\ud83d", b'","', b'":1,"')
        )
        + document[position:]
    )


def _swap(r: random.Random, document: bytes) -> bytes:
    position, end = sorted((_random_position(r, document), _random_position(r, document)))
    return (
        document[:position]
        + document[end : end + 1]
        + document[position + 1 : end]
        + document[position : position + 1]
        + document[end + 1 :]
    )


def _any_byte(r: random.Random, document: bytes) -> bytes:
    position = _random_position(r, document)
    return document[:position] + bytes([r.randrange(256)]) + document[position + 1 :]


def _with_literal(r: random.Random, document: bytes) -> bytes:
    """Returns the document with a random literal in place of the text after some colon."""
    parts = document.split(b":")
    position = r.randrange(len(parts))
    return b":".join([*parts[:position], r.choice(LITERALS).encode(), *parts[position + 1 :]])


def _repeat(r: random.Random, document: bytes) -> bytes:
    """Returns the document with a part repeated, for example a key or a bracket."""
    position, end = sorted((_random_position(r, document), _random_position(r, document)))
    return document[:end] + document[position:end] + document[end:]


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _insert,
    _insert,
    _swap,
    _any_byte,
    _with_literal,
    _repeat,
    lambda r, d: d[: _random_position(r, d)],
    lambda r, d: d[: (position := _random_position(r, d))] + d[position + 1 :],
    lambda r, d: d + r.choice((b" ", b"\n", b"\x00", b"{}", b" x", b",", b"}", d)),
    lambda r, d: r.choice((b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"[", b"\n")) + d,
    lambda r, d: (
        b'{"deep":' + b"[" * (n := r.randint(90, 105)) + b"]" * n + b"," + d.lstrip(b" \n{")
    ),
)


class _Style:
    """The style of one producer: spaces, escapes and the order of fields."""

    def __init__(self, r: random.Random, odd: float) -> None:
        self._r = r
        self._odd = odd
        self._ascii = r.random() < 0.5
        self._colon, self._comma, self._edge = r.choice(
            ((":", ",", ""), (": ", ", ", ""), (" :\t", "\r\n,", " \n"))
        )
        self._extra = r.random() < 0.3

    def document(self, fields: dict[str, str]) -> bytes:
        text = self._object(fields)
        return (self._edge + text + self._edge).encode("utf-8", "surrogatepass")

    def value(self, kind: pa.DataType, epoch: str | None = None) -> str:
        r = self._r
        if r.random() < self._odd:
            return r.choice(LITERALS)
        if r.random() < 0.03:
            return "null"
        if pa.types.is_struct(kind):
            return self._object({f.name: self.value(f.type) for f in kind if r.random() < 0.8})
        if pa.types.is_map(kind):
            return self._object(
                {
                    r.choice((*TEXTS, *NAMES)): self.value(kind.item_type)
                    for _ in range(r.randrange(4))
                },
                extra=False,
            )
        if pa.types.is_list(kind):
            return (
                "["
                + self._comma.join(
                    self.value(kind.value_type) for _ in range(r.choice((0, 1, 2, 3, 9)))
                )
                + "]"
            )
        return self._scalar(kind, epoch)

    def _object(self, fields: dict[str, str], *, extra: bool = True) -> str:
        r = self._r
        if extra and self._extra and r.random() < 0.5:
            fields = {
                **fields,
                f"unknown_{r.randrange(3)}": r.choice(
                    ('{"a":{"b":[1,{"c":null}],"é":"x\\u00fc"}}', "1.5e300", '"t"', "[[],{}]")
                ),
            }
        items = list(fields.items())
        if r.random() < 0.3:
            r.shuffle(items)
        return (
            "{"
            + self._edge
            + self._comma.join(self._text(k) + self._colon + v for k, v in items)
            + self._edge
            + "}"
        )

    def _text(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self._ascii)

    def _scalar(self, kind: pa.DataType, epoch: str | None) -> str:
        r = self._r
        if pa.types.is_integer(kind):
            half = 1 << kind.bit_width - 1
            return str(
                r.choice((0, -1, half - 1, -half, r.randrange(-half, half), r.randrange(-100, 100)))
            )
        if pa.types.is_floating(kind):
            return self._float(kind.bit_width)
        if pa.types.is_decimal(kind):
            return self._decimal(kind.precision, kind.scale)
        if kind == TIMESTAMP and epoch is not None:
            power = EPOCH_UNITS["s"] - EPOCH_UNITS[epoch]
            return str(
                r.randrange(
                    *(-(9**10), 9**10) if epoch == "ns" else (-62_135_596_800, 253_402_300_800)
                )
                * 10**power
            )
        day = f"{r.choice((1, 4, 1583, 1900, 1970, 1999, 2000, 2024, 9999)):04}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"  # noqa: E501
        texts: dict[pa.DataType, Callable[[], str]] = {
            pa.bool_(): lambda: r.choice(("true", "false")),
            pa.string(): lambda: self._text(
                "".join(r.choice(TEXTS) for _ in range(r.choice((0, 1, 1, 2))))
            ),
            pa.date32(): lambda: f'"{day}"',
            TIMESTAMP: lambda: f'"{day}{r.choice("Tt")}{self._clock()}"',
        }
        return texts[kind]()

    def _clock(self) -> str:
        r = self._r
        fraction = r.choice(("", "", ".5", ".123", ".123456", ".1234560", ".000001", ".123456789"))
        zone = r.choice(
            (
                "Z",
                "z",
                "+00:00",
                "+0130",
                "-05",
                "-23:59",
                f"+{r.randrange(24):02}:{r.randrange(60):02}",
            )
        )
        return f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}{fraction}{zone}"

    def _float(self, bits: int) -> str:
        r = self._r
        digits = r.randrange(1, 20)
        exponent = r.randint(-340, 310) if bits == 64 else r.randint(-60, 40)
        return r.choice(
            (
                repr(r.random()),
                repr(r.uniform(-1e6, 1e6)),
                repr(r.uniform(-1, 1) * 10 ** r.randint(-30, 30)),
                f"{r.random() * 1000:.2f}",
                str(r.randrange(-(1 << 24), 1 << 24)),
                f"{r.randrange(10**digits)}e{exponent}",
                f"-{r.randrange(10**9)}.{r.randrange(10**digits)}E+{r.randint(0, 20)}",
                "0.0",
                "-0.0",
                "-0",
                "5e-324",
                "2.2250738585072014e-308",
                f"{1 << r.randint(50, 64)}.{'0' * r.randrange(1, 25)}",
                f"{(1 << 53) + 2 * r.randrange(1 << 40) + 1}.0",
                "0.1",
                "1e23",
                "9007199254740993.0",
            )
        )

    def _decimal(self, precision: int, scale: int) -> str:
        r = self._r
        integer_digits = str(r.randrange(10 ** r.randint(0, precision - scale)))
        fraction = "".join(r.choice("0123456789") for _ in range(r.randint(0, scale)))
        text = (
            r.choice(("", "-"))
            + integer_digits
            + (f".{fraction}" if fraction else "")
            + ("0" if fraction and r.random() < 0.2 else "")
        )
        return r.choice((text, f'"{text}"'))
