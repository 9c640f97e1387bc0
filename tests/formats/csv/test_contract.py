"""CSV fulfils the contract of every format, with the fast pass and the strict decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.csv.corpus import BAD, GOOD
from windrow.ingest.formats.csv.decoder import CsvEncoding
from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.user_code import ModelReference

HERE = Path(__file__).parent


class TestOrders(DecoderContract):
    """The corpus's lines."""

    GOOD: ClassVar = list(GOOD)
    BAD: ClassVar = [line for line in BAD if b"hunter2" in line]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(
            ModelReference("models.py:Order", HERE), CsvEncoding(dialect=Dialect(null_literal="-"))
        )


class TestOneColumn(DecoderContract):
    """Lines of one field in another dialect, in which an empty line is a field too."""

    GOOD: ClassVar = [b"a", b"", b"'a;b'", b"'it''s'", b"a\\;b", b"a\n", b"b"]
    BAD: ClassVar = [
        b"\xef\xbb\xbfhunter2",
        b"hunter2;b",
        b"'hunter2",
        b"hunter2\\",
        b"hunter2\na",
        b"\xffhunter2",
        b"''hunter2",
    ]

    @pytest.fixture
    def decoder(self) -> RowDecoder:
        return RowDecoder(
            ModelReference("models.py:One", HERE),
            CsvEncoding(dialect=Dialect(";", "'", "\\")),
            on_null="drop",
        )

    def test_monsters_cost_themselves_only(self, decoder: Any) -> None:
        """Megabytes of one byte, of quotes or of escapes are one field."""
        monsters = [
            b"\x00" * (4 << 20),
            b"''" * (2 << 20),
            b"\\\\" * (2 << 20),
            b"'" + b"'" * (4 << 20),
            b";" * (4 << 20),
        ]
        decoded = self.decode_values(decoder, [b"a", *monsters, b"b"])
        assert decoded.row_index.to_pylist()[0] == 0
        assert decoded.rows["text"].to_pylist()[-1] == "b"
        assert set(decoded.dead_reason.to_pylist()) <= {"not_csv", "field_count"}
