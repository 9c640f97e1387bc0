"""Text, and bytes as they are, keep the contract of every format."""

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
    """UTF-8, or refused."""

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
    """The column of a schema."""

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("string", ModelReference("models.py:Line", HERE), on_null="drop")


class TestRaw(DecoderContract):
    """Nothing is refused but a message without a value."""

    GOOD: ClassVar = [b"a", b"", b"\xff\x00", b"\xed\xa0\x80"]
    BAD: ClassVar[Sequence[bytes]] = []

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("raw", ModelReference("models.py:Bytes", HERE))

    def test_each_message_is_in_one_place(self, decoder: PlainDecoder) -> None:
        """There are no bad ones."""
        assert self.decode_values(decoder, self.GOOD).valid == len(self.GOOD)

    def test_batches_of_one_kind(self, decoder: PlainDecoder) -> None:  # type: ignore[override]
        """No messages, or one."""
        assert [self.decode_values(decoder, self.GOOD[:n]).valid for n in (0, 1)] == [0, 1]


class TestRawKept(TestRaw):
    """Messages without a value are rows too."""

    @pytest.fixture
    def decoder(self) -> PlainDecoder:
        return PlainDecoder("raw", None, on_null="keep")
