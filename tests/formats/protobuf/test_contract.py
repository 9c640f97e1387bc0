"""Protobuf fulfils the contract of every format, with a .proto file and with a descriptor set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.protobuf.corpus import BAD, GOOD, stock
from tests.formats.protobuf.wire import number, tag, text, varint
from windrow.ingest.formats.protobuf.decoder import ProtobufEncoding
from windrow.ingest.formats.protobuf.descriptors import TypesFile, descriptor_set
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent
GOOD_ONES = [payload for payload, _ in GOOD.values()]
assert BAD


class TestFlat(DecoderContract):
    """A model with a number and a text that isn't nullable."""

    GOOD: ClassVar = [
        number(1, 1) + text(2, "a"),
        text(2, "größer"),
        number(1, -1) + text(2, "") + number(9, 9),
    ]
    BAD: ClassVar = [
        number(1, 1) + text(3, "hunter2"),
        b"hunter2",
        text(2, b"hunter2\xff"),
        tag(2, 2) + varint(50) + b"hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(
            ModelReference("models.py:Flat", HERE),
            ProtobufEncoding(TypesFile(HERE, "things.proto"), "shop.Flat"),
        )

    @pytest.mark.some(1)
    def test_monsters_cost_themselves_only(self, decoder: Any) -> None:
        """Megabytes of concatenated messages are one message."""
        monsters = [
            b"\x00" * (4 << 20),
            b"[" * (4 << 20),
            self.GOOD[0] * ((1 << 20) // len(self.GOOD[0]) + 1),
        ]
        decoded = self.decode_values(decoder, [self.GOOD[0], *monsters, self.GOOD[0]])
        assert decoded.row_index.to_pylist() == [0, 3, 4]


class TestNested(DecoderContract):
    """A model with all types. The message type is in a descriptor set."""

    GOOD: ClassVar = GOOD_ONES[:12]
    BAD: ClassVar = [
        text(2, b"hunter2\xff"),
        number(5, 9) + text(2, "hunter2"),
        stock("hunter2", 1) + number(3, 1 << 20),
    ]

    @pytest.fixture
    def decoder(self, tmp_path: Path) -> RowDecoder:
        (tmp_path / "things.desc").write_bytes(descriptor_set(HERE / "things.proto"))
        (tmp_path / "models.py").write_text((HERE / "models.py").read_text())
        return RowDecoder(
            ModelReference("models.py:Order", tmp_path),
            ProtobufEncoding(TypesFile(tmp_path, "things.desc"), "shop.Order"),
            on_null="drop",
        )

    test_monsters_cost_themselves_only = TestFlat.test_monsters_cost_themselves_only
