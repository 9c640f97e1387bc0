"""The library that reads messages: the one that confluent-kafka brings, of a tried version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import libversion

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka import capi
from windrow.ingest.kafka.capi import KNOWN_VERSIONS, MessageHead
from windrow.ingest.source.reader.fetching import Start
from windrow.ingest.source.reader.librdkafka import connect


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """Each test loads the library again."""
    capi.library.cache_clear()
    yield
    capi.library.cache_clear()


def refusal_text() -> str:
    """Why no client can be made."""
    with pytest.raises(SpecError) as caught:
        connect({}, Start("t", 0, 10, None), lambda _: None)
    assert "Install confluent-kafka's own wheel" in caught.value.do
    return caught.value.what


def test_the_version_of_the_tests_is_a_tried_one() -> None:
    """Whoever allows another librdkafka in pyproject.toml has to name it."""
    assert libversion()[1] >> 8 in KNOWN_VERSIONS


def test_a_library_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, and what to install."""
    monkeypatch.setattr(capi.cimpl, "__file__", "/no/such/library.so")
    assert "the library of confluent-kafka can't be loaded: OSError" in refusal_text()


def test_a_library_without_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confluent-kafka that hides librdkafka's symbols, as one that is linked statically may."""
    monkeypatch.setattr(capi.cimpl, "__file__", sys.modules["_ctypes"].__file__)
    assert "has no rd_kafka_version" in refusal_text()


def test_a_version_that_nobody_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer library is not trusted because it still looks alike."""
    monkeypatch.setattr(capi, "KNOWN_VERSIONS", range(0x030000, 0x030100))
    assert f"librdkafka {libversion()[0]} (0x{libversion()[1]:08x}) is not among" in refusal_text()


def test_nothing_is_compiled_before_messages_are_read() -> None:
    """A reader is made, shown and pickled without numba; a worker loads it with its first split."""
    code = (
        "import sys, windrow.ingest.source.reader.reader, windrow.ingest.assemble; print('numba' in"
        " sys.modules, 'llvmlite' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout.split() == ["False", "False"]


def test_the_passes_read_the_public_struct() -> None:
    """Their offsets are those at which C lays its fields out."""
    offsets = {name: getattr(MessageHead, name).offset for name, _ in MessageHead._fields_}
    assert offsets == {
        "err": 0,
        "topic": 8,
        "partition": 16,
        "payload": 24,
        "size": 32,
        "key": 40,
        "key_size": 48,
        "offset": 56,
        "private": 64,
    }
