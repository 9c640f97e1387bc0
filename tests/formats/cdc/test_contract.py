"""The formats of change events fulfil the contract of every format."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.cdc import formats
from tests.formats.cdc.corpus import CANAL, DEBEZIUM, INSIDE, MAXWELL, STATED, WRITTEN, Corpus
from tests.formats.cdc.formats import BINLOG, CUSTOMERS, FORMS, PRODUCTS
from windrow.ingest.ports.decoder import Decoder


def good(corpus: Corpus) -> list[bytes]:
    """Returns the corpus's messages that become rows."""
    return [
        value for _, value, verdict in corpus if isinstance(verdict, list) and value is not None
    ]


def bad(corpus: Corpus) -> list[bytes]:
    """Returns the refused messages that contain the secret word "hunter2"."""
    return [
        value
        for _, value, verdict in corpus
        if isinstance(verdict, tuple) and value is not None and b"hunter2" in value
    ]


class TestDebezium(DecoderContract):
    """Debezium's events."""

    GOOD: ClassVar = good(DEBEZIUM)
    BAD: ClassVar = bad(DEBEZIUM)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return CUSTOMERS


class TestForms(DecoderContract):
    """Values in Debezium's own forms."""

    GOOD: ClassVar = good(WRITTEN)
    BAD: ClassVar = bad(WRITTEN)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return FORMS


class TestInside(DecoderContract):
    """Values in Debezium's own forms, in lists and structs."""

    GOOD: ClassVar = good(INSIDE)
    BAD: ClassVar = bad(INSIDE)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return formats.INSIDE


class TestStated(DecoderContract):
    """Values whose forms the schema in the message states."""

    GOOD: ClassVar = good(STATED)
    BAD: ClassVar = bad(STATED)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return formats.STATED


class TestCanal(DecoderContract):
    """Canal's messages, which hold several rows."""

    GOOD: ClassVar = good(CANAL)
    BAD: ClassVar = bad(CANAL)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return PRODUCTS


class TestMaxwell(DecoderContract):
    """Maxwell's messages."""

    GOOD: ClassVar = good(MAXWELL)
    BAD: ClassVar = bad(MAXWELL)

    @pytest.fixture
    def decoder(self) -> Decoder:
        return BINLOG
