"""The cost of schema ids: the same orders in Avro without ids, with one id, and with eight.

The last cases have them in the envelope that Debezium recorded for another table: as inserts, and
as updates that have the former row, too.

python -m tests.bench.schemas [--messages 1000000] [--runs 6]

It has one core. A run decodes batches of 32,768 messages, as a task does. The result is the
best run, and the median of its CPU seconds divided by those of one schema's id in the same round.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from tests.bench.formats import AVRO, BATCH, as_avro
from tests.bench.orders import values
from tests.formats.avro import wire
from tests.formats.cdc.recorded import RECORDINGS
from tests.formats.confluent.registries import FixedRegistry, avro, framed
from windrow.ingest.formats.avro.decoder import AvroEncoding
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Subjects
from windrow.ingest.formats.confluent.payloads import AvroPayloads
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.kinds import section_at

HERE = Path(__file__).parent
MODEL = "orders_schema.py:Order"
SEVERAL = 8


def batches(messages: list[bytes], count: int) -> list[pa.RecordBatch]:
    """Returns this number of messages in batches, as a reader gives them.

    The values are repeated.
    """
    value_column = pa.array((messages * (BATCH // len(messages) + 1))[:BATCH], pa.binary())
    plain = {"topic": "orders", "partition": 0, "offset": 0, "timestamp_type": "CreateTime"}
    columns = [
        (
            value_column
            if field.name == "value"
            else (
                pa.array([[]] * BATCH, field.type)
                if field.name == "headers"
                else pa.array([plain.get(field.name)] * BATCH, field.type)
            )
        )
        for field in MESSAGES
    ]
    return [pa.RecordBatch.from_arrays(columns, schema=MESSAGES)] * (count // BATCH)


def as_events(orders: list[bytes]) -> tuple[str, list[bytes], list[bytes]]:
    """Returns the schema of Debezium's envelope around orders, and these as inserts and updates."""
    recording = RECORDINGS["adaptive"]
    recorded = next(
        json.loads(schema.text)
        for schema in recording.registry.schemas
        if '"before"' in schema.text
    )
    images = {"before": ["null", {**json.loads(AVRO), "name": "Value"}], "after": ["null", "Value"]}
    fields = [
        {"name": field["name"], "type": images.get(field["name"], field["type"])}
        for field in recorded["fields"]
    ]
    around = {"type": "record", "name": "Around", "fields": fields[2:]}
    document = next(event.document for event in recording.events if event.document)
    tails = []
    for op in "cu":
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(around), {**document, "op": op})
        tails.append(out.getvalue())
    envelope = json.dumps({"type": "record", "name": "Envelope", "fields": fields})
    no_row, row = wire.varint(0), wire.varint(1)
    inserts = [no_row + row + order + tails[0] for order in orders]
    return envelope, inserts, [row + order + row + order + tails[1] for order in orders]


def once(decode: Decode, work: list[pa.RecordBatch]) -> float:
    """Returns the CPU seconds of a run."""
    began = time.process_time()
    for batch in work:
        assert len(decode(batch).dead_index) == 0
    return time.process_time() - began


def main() -> None:
    """Measures all three cases and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    orders = [as_avro(json.loads(order)) for order in values()]
    envelope, inserts, updates = as_events(orders)
    registry = FixedRegistry((*avro(*[AVRO] * SEVERAL, envelope),))
    named = ConfluentDecoder(
        ModelReference(MODEL, HERE), AvroPayloads(), Subjects(), registry=registry
    ).open()
    one_schema = "behind the id of one schema"
    sides = {
        "Avro": (
            RowDecoder(ModelReference(MODEL, HERE), AvroEncoding(GivenSchema(AVRO, HERE))).open(),
            orders,
        ),
        one_schema: (named, [framed(1, order) for order in orders]),
        f"behind those of {SEVERAL} in turn": (
            named,
            [framed(1 + i % SEVERAL, order) for i, order in enumerate(orders)],
        ),
    }
    name, id_ = "debezium-avro-confluent", SEVERAL + 1
    section = section_at(FORMATS[name]).model_validate(
        {"format": name, "schema": MODEL, "table_include": ".*"}
    )
    events: Any = make_decoder(section, HERE)
    decode_events = events.asking(registry).open()
    for kind, messages in (("inserts", inserts), ("updates", updates)):
        sides[f"as {kind} of Debezium"] = (
            decode_events,
            [framed(id_, event) for event in messages],
        )
    work = {name: batches(messages, options.messages) for name, (_, messages) in sides.items()}
    # In turns: the C library gives memory back between two batches at random, and this affects
    # all later runs.
    rounds = [
        {name: once(decode, work[name]) for name, (decode, _) in sides.items()}
        for _ in range(options.runs)
    ]
    for name, record_batches in work.items():
        fastest = min(round_seconds[name] for round_seconds in rounds)
        times = statistics.median(seconds[name] / seconds[one_schema] for seconds in rounds)
        rate = len(record_batches) * BATCH / fastest / 1e6
        print(f"{name:30}{rate:8.2f} M messages/s, CPU times {times:.2f}")


if __name__ == "__main__":
    main()
