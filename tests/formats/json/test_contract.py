"""JSON fulfils the contract of every format, with the compiled pass and the strict decoder."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent


class TestScalars(DecoderContract):
    """A model without lists and maps."""

    GOOD: ClassVar = [
        b'{"id":1}',
        b'{"id":2,"name":"x","more":[{}]}',
        b' {"id": 3, "amount": 1.5}',
        b'{"id":4,"name":"\\u00fc"}',
        b'{"id":5,"at":"2026-01-05T09:00:00.1234567Z"}',
    ]
    BAD: ClassVar = [
        b'{"id":"hunter2"}',
        b'{"hunter2":1}',
        b"hunter2",
        b'{"id":1,"id":"hunter2"}',
        b'{"id":1,"hunter2":',
        b'\xff{"id":"hunter2"}',
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(ModelReference("models.py:Scalars", HERE), JsonEncoding())


class TestNested(TestScalars):
    """A model with lists and maps."""

    GOOD: ClassVar = [
        b'{"id":1,"tags":["a"],"stock":{"x":1}}',
        b'{"id":2}',
        b'{"id":3,"tags":[],"stock":{}}',
    ]
    BAD: ClassVar = [
        b'{"id":1,"tags":[["hunter2"]]}',
        b'{"id":"hunter2"}',
        b'{"id":1,"stock":"hunter2"}',
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(ModelReference("models.py:Nested", HERE), JsonEncoding(), on_null="drop")


class TestConnect(DecoderContract):
    """Dates as days and decimals as bytes, at any depth."""

    GOOD: ClassVar = [
        b'{"id":1,"price":"MDk=","lines":[{"price":"MDk=","days":[18262,null]}]}',
        b'{"id":2,"price":{"scale":2,"value":"MDk="}}',
        b'{"id":3,"rates":{"a":"/w=="}}',
        b'{"id":4,"rates":[{"key":"a","value":2.5}]}',
    ]
    BAD: ClassVar = [
        b'{"id":1,"lines":[{"days":["hunter2"]}]}',
        b'{"id":1,"lines":[{"price":"hunter2"}]}',
        b'{"id":1,"rates":{"hunter2":"2.50"}}',
        b'{"id":1,"price":{"scale":5,"value":"MDk="},"more":"hunter2"}',
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(
            ModelReference("models.py:Connect", HERE),
            JsonEncoding(reading=Reading(dates="epoch_days", decimals="base64")),
        )
