"""The library that reads messages: confluent-kafka's own librdkafka, in a tested version."""

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
    """Makes each test load the library again."""
    capi.library.cache_clear()
    yield
    capi.library.cache_clear()


def refusal_text() -> str:
    """Returns the reason why no client can be made."""
    with pytest.raises(SpecError) as caught:
        connect({}, Start("t", 0, 10, None), lambda _: None)
    assert "Install confluent-kafka's own wheel" in caught.value.advice
    return caught.value.message


def test_the_version_of_the_tests_is_a_tried_one() -> None:
    """The installed librdkafka is a known version.

    A change of pyproject.toml that allows another one must add it.
    """
    assert libversion()[1] >> 8 in KNOWN_VERSIONS


def test_a_library_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that can't be loaded is reported with the package to install."""
    monkeypatch.setattr(capi.cimpl, "__file__", "/no/such/library.so")
    assert "the library of confluent-kafka can't be loaded: OSError" in refusal_text()


def test_a_library_without_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confluent-kafka that hides librdkafka's symbols, for example a static one, is refused."""
    monkeypatch.setattr(capi.cimpl, "__file__", sys.modules["_ctypes"].__file__)
    assert "has no rd_kafka_version" in refusal_text()


def test_a_version_that_nobody_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown version of the library is refused, even if it has the same functions."""
    monkeypatch.setattr(capi, "KNOWN_VERSIONS", range(0x030000, 0x030100))
    assert f"librdkafka {libversion()[0]} (0x{libversion()[1]:08x}) is not among" in refusal_text()


def test_nothing_is_compiled_before_messages_are_read() -> None:
    """Making, printing and pickling a reader doesn't import numba.

    A worker imports it with its first split.
    """
    code = (
        "import sys, windrow.ingest.source.reader.reader, windrow.ingest.assemble; print('numba' in"
        " sys.modules, 'llvmlite' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout.split() == ["False", "False"]


def test_the_passes_read_the_public_struct() -> None:
    """The fields have the same offsets as in the C struct."""
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
