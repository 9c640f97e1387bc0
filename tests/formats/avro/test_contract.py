"""Avro fulfils the contract of every format, with the compiled pass and the strict decoder."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.avro.corpus import message, place
from tests.formats.avro.models import FLAT, TEXT
from tests.formats.avro.wire import items, text, varint
from windrow.ingest.formats.avro.decoder import AvroEncoding
from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent


class TestFlat(DecoderContract):
    """A model with a number and a text."""

    GOOD: ClassVar = [
        varint(1) + varint(1) + text("a"),
        varint(-5) + varint(1) + text("größer"),
        varint(1 << 60) + varint(1) + text(""),
    ]
    BAD: ClassVar = [
        varint(1) + varint(0) + b"hunter2",
        varint(1) + varint(1) + text(b"hunter2\xff"),
        b"hunter2",
        b"\xffhunter2",
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(
            ModelReference("models.py:Flat", HERE), AvroEncoding(GivenSchema(FLAT, HERE))
        )


class TestNested(DecoderContract):
    """A model with all types. The schema is in a file."""

    GOOD: ClassVar = [
        message(),
        message(tags=items(text("a"), text("b"))),
        message(place=place(b"x"), stock=items(text("k") + varint(1))),
    ]
    BAD: ClassVar = [
        message() + b"hunter2",
        message(name=varint(1) + text(b"\xffhunter2")),
        message(kind=varint(9), tags=items(text("hunter2"))),
        message(stock=items(text("hunter2") + varint(1), text("hunter2") + varint(2))),
        message(number=varint(0), tags=items(text("hunter2"))),
    ]

    @pytest.fixture
    def decoder(self, tmp_path: Path) -> RowDecoder:
        (tmp_path / "order.avsc").write_text(TEXT)
        (tmp_path / "models.py").write_text((HERE / "models.py").read_text())
        return RowDecoder(
            ModelReference("models.py:Order", tmp_path),
            AvroEncoding(GivenSchema("order.avsc", tmp_path)),
            on_null="drop",
        )
