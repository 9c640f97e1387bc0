"""What a recipe for Avro builds: the compiled pass first, then the strict way for what
it didn't take.
"""

from __future__ import annotations

from windrow.ingest.formats.avro.onepass import AvroPass
from windrow.ingest.formats.avro.schema import AvroSchema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns


def avro_batch_decoder(schema: AvroSchema, columns: Columns) -> BatchDecoder:
    """The machine for some columns."""
    found, defaults = columns.as_written(schema.fields)
    return BatchDecoder(
        columns.arrow_schema, AvroPass(schema, found), StrictAvro(schema, found), defaults
    )
