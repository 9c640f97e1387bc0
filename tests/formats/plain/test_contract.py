"""The formats `string` and `raw` fulfil the contract of every format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from windrow.ingest.formats.plain.decoder import PlainDecoder
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent


class TestString(DecoderContract):
    """UTF-8 texts, and bytes that aren't UTF-8."""

    GOOD: ClassVar = [b"a", b"", "ü€𐍈".encode(), b'{"id":1}', b"\x00\n"]
    BAD: ClassVar = [
        b"\xffhunter2",
        b"hunter2\xc3",
        b"\xed\xa0\x80hunter2",
        b"\xc0\xafhunter2",
        b"\xf4\x90\x80\x80hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("string", None)


class TestStringOfASchema(TestString):
    """Texts for the column of a model."""

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("string", ModelReference("models.py:Line", HERE), on_null="drop")


class TestRaw(DecoderContract):
    """Raw bytes, where only a message without a value is refused."""

    GOOD: ClassVar = [b"a", b"", b"\xff\x00", b"\xed\xa0\x80"]
    BAD: ClassVar[Sequence[bytes]] = []

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("raw", ModelReference("models.py:Bytes", HERE))

    def test_each_message_is_in_one_place(self, decoder: PlainDecoder) -> None:
        """Each message is a row, because raw bytes are never bad."""
        assert self.decode_values(decoder, self.GOOD).valid == len(self.GOOD)

    def test_batches_of_one_kind(self, decoder: PlainDecoder) -> None:  # type: ignore[override]
        """The shapes are the same for no message and for one message."""
        assert [self.decode_values(decoder, self.GOOD[:n]).valid for n in (0, 1)] == [0, 1]


class TestRawKept(TestRaw):
    """Raw bytes, where messages without a value are rows too."""

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("raw", None, on_null="keep")
