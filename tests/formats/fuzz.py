"""Broken messages for the compiled passes.

`python -m tests.formats.fuzz MODULE SEED COUNT` decodes COUNT broken messages by the compiled pass
of a module, and prints a digest of all that the pass made of them. Where numba checks bounds
(`NUMBA_BOUNDSCHECK=1`), a wrong index raises IndexError.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence

import pyarrow as pa

from tests.formats.avro.schemas import Writer
from tests.formats.avro.schemas import random_schema as random_avro
from tests.formats.csv import test_ways as csv_lines
from tests.formats.json import schemas as json_documents
from tests.formats.protobuf.schemas import message as protobuf_message
from tests.formats.protobuf.schemas import random_schema as random_protobuf
from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.csv.decoder import CsvPass
from windrow.ingest.formats.json.decoder import JsonPass
from windrow.ingest.formats.protobuf.decoder import ProtobufPass
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.onepass import OnePass

WHOLE, BROKEN = 25, 500
"""Messages of a schema: whole ones, and broken ones that are made of these."""

EXTREMES = (
    b"\xff" * 9 + b"\x01",  # the most negative number of 64 bits
    b"\xfe" + b"\xff" * 8 + b"\x01",  # the largest one
    b"\x80" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x0f",  # the same of 32 bits
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",  # a number without an end
    b"\x01",
    b"\x7f",
    b"\0",
    b"-9223372036854775808",
    b"9" * 20,
    b"1e-999999999",
    b"\\ud83d",
    b'"',
    b"{",
    b"[",
)
"""Octets that stand for lengths, counts and numbers at the ends of what they can be."""


def json_pass(dice: random.Random) -> tuple[OnePass, list[bytes]]:
    columns = json_documents.columns_of(dice, dice.choice((1, 3, 8, 30)))
    reading = Reading(
        unknown=dice.choice(("ignore", "keep", "dead")),
        lenient=dice.random() < 0.3,
        is_only_column=dice.random() < 0.3,
    )
    whole = [json_documents.document(dice, columns) for _ in range(WHOLE)]
    kept_columns = columns.with_rest() if reading.unknown == "keep" else columns
    return JsonPass(kept_columns, reading), whole


def avro_pass(dice: random.Random) -> tuple[OnePass, list[bytes]]:
    schema = random_avro(dice, dice.choice((3, 8, 20)))
    writer = Writer(dice, schema, odd=0.05)
    parsed = parse_schema(json.dumps(schema.avro), "a test")
    return AvroPass(parsed, schema.columns), [writer.message() for _ in range(WHOLE)]


def protobuf_pass(dice: random.Random) -> tuple[OnePass, list[bytes]]:
    schema = random_protobuf(dice)
    whole = [protobuf_message(dice, schema.kind, odd=0.05) for _ in range(WHOLE)]
    return ProtobufPass(schema.kind, schema.columns), whole


def csv_pass(dice: random.Random) -> tuple[OnePass, list[bytes]]:
    dialect = dice.choice(csv_lines.DIALECTS)
    lines = [csv_lines.line(dice, dialect, EXACT.timestamps) or b"" for _ in range(WHOLE)]
    return CsvPass(csv_lines.COLUMNS, dialect, EXACT), lines


PASSES: dict[str, Callable[[random.Random], tuple[OnePass, list[bytes]]] | str] = {
    "formats.avro.scan": avro_pass,
    "formats.csv.scan": csv_pass,
    "formats.json.scan": json_pass,
    "formats.protobuf.scan": protobuf_pass,
    "formats.shared.entries": "each format's pass hands its entries to it",
    "schema.hashes": "reads Arrow's arrays, whose lengths no message says",
    "sinks.kafka.passes": "reads Arrow's arrays, whose lengths no message says",
    "sinks.kit.columns.text_concat_pass": "reads Arrow's arrays, whose lengths no message says",
    "source.reader.passes": "reads librdkafka's structures, whose lengths librdkafka has checked",
}
"""The compiled passes: what makes one of a random schema, with whole messages; or why no broken
message reaches it."""


def broken(dice: random.Random, whole: Sequence[bytes]) -> bytes:
    """Returns a message with up to three faults."""
    message = dice.choice(whole)
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        begin, kind = dice.randint(0, len(message)), dice.randrange(7)
        end = min(len(message), begin + dice.choice((0, 1, 2, 4, 8)))
        if kind == 0 and begin < len(message):
            bit = bytes([message[begin] ^ 1 << dice.randrange(8)])
            message = message[:begin] + bit + message[begin + 1 :]
        elif kind == 1:
            message = message[:begin]
        elif kind == 2:
            other = dice.choice(whole)
            message = message[:begin] + other[dice.randint(0, len(other)) :]
        elif kind == 3:
            message = message[:begin] + message[begin:end] * dice.choice((2, 9, 70)) + message[end:]
        elif kind == 4:
            message = message[:begin] + dice.randbytes(dice.randint(1, 9)) + message[end:]
        else:
            message = message[:begin] + dice.choice(EXTREMES) + message[end:]
    return message


def verdicts(onepass: OnePass, messages: Sequence[bytes]) -> list[str | None]:
    """Returns each message's row, as text; None for a message that the pass leaves."""
    taken = onepass.decode(pa.array(messages, pa.binary()))
    for column in taken.columns:
        column.validate(full=True)
    rows = zip(*(column.to_pylist() for column in taken.columns), strict=True)
    return [repr(next(rows)) if is_taken else None for is_taken in taken.mask.tolist()]


def main(module: str, seed: str, count: str) -> None:
    """Decodes broken messages of many schemas; a message has one verdict among any others."""
    dice, make, digest = random.Random(f"{module} {seed}"), PASSES[module], hashlib.sha256()
    assert callable(make)
    rows = 0
    for _ in range(0, int(count), BROKEN):
        onepass, whole = make(dice)
        messages = [broken(dice, whole) for _ in range(BROKEN)]
        together = verdicts(onepass, messages)
        assert verdicts(onepass, messages[::-1])[::-1] == together, "a neighbour was read"
        for i in range(0, BROKEN, 10):  # no byte is behind it, where bounds are checked
            assert verdicts(onepass, [messages[i]]) == [together[i]]
        rows += sum(row is not None for row in together)
        digest.update(repr(together).encode())
    print(json.dumps({"digest": digest.hexdigest(), "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
