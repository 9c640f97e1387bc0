"""The decoders for the corpora, made from `decode` sections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.settings.kinds import section_at

HERE = Path(__file__).parent


def decoder_of(
    name: str, model: str, primary_key: tuple[str, ...] = (), folder: Path = HERE, **decode: Any
) -> Decoder:
    """Returns the decoder of a `decode` section, for a table with the given primary key."""
    section = section_at(FORMATS[name]).model_validate(
        {"format": name, "schema": f"models.py:{model}", **decode}
    )
    return make_decoder(section, folder, primary_key)


CUSTOMERS = decoder_of("debezium-json", "Customer", envelope={"op": "op", "at": "source.ts_ms"})
WITH_SCHEMA = decoder_of(
    "debezium-json", "Customer", envelope={"op": "op", "at": "source.ts_ms"}, schema_include=True
)
FORMS = decoder_of("debezium-json", "Written", decimal_format="base64")
INSIDE = decoder_of("debezium-json", "Inside", decimal_format="base64", timestamps="epoch_ms")
STATED = decoder_of("debezium-json", "Inside", schema_include=True)
PRODUCTS = decoder_of(
    "canal-json", "Product", database_include="inventory", table_include="prod.*s"
)
BINLOG = decoder_of("maxwell-json", "Product")
