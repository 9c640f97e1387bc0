"""Which way to fetch is taken: the compiled one where the library was seen to be what
it is taken for, else the other, with a reason.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import libversion

from windrow.ingest.kafka import capi
from windrow.ingest.kafka.capi import KNOWN, Api, MessageHead, Unusable, load_api
from windrow.ingest.source.reader import choice, selftest
from windrow.ingest.source.reader.choice import fastest, load_compiled
from windrow.ingest.source.reader.confluent import ConfluentFetcher
from windrow.ingest.source.reader.fetching import Fetcher, Start
from windrow.ingest.source.reader.librdkafka import LibrdkafkaFetcher

CLIENT = {"group.id": "g", "auto.offset.reset": "error", "log_level": 0}
START = Start("t", 0, 10, None)


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """What a process has decided is decided anew."""
    choice._compiled.cache_clear()
    yield
    choice._compiled.cache_clear()


def made() -> type[Fetcher]:
    """What kind of client is made."""
    fetcher = fastest(CLIENT, START, lambda _: None)
    fetcher.close()
    return type(fetcher)


def told(caplog: pytest.LogCaptureFixture) -> str:
    """The one line of the log, after two clients were made."""
    with caplog.at_level(logging.WARNING):
        assert [made(), made()] == [ConfluentFetcher] * 2
    (record,) = [r for r in caplog.records if r.name == "windrow.read"]
    return record.getMessage()


def test_the_compiled_way_is_taken_here(caplog: pytest.LogCaptureFixture) -> None:
    """On the platform and the versions that the tests run on nothing falls back:
    whoever allows another librdkafka has to see to that.
    """
    assert made() is LibrdkafkaFetcher
    assert libversion()[1] >> 8 in KNOWN
    assert [r for r in caplog.records if r.name == "windrow.read"] == []


def test_a_library_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is logged once in a process, and messages are read by the other way."""
    monkeypatch.setattr(capi.cimpl, "__file__", "/no/such/library.so")
    assert "the library of confluent-kafka can't be loaded: OSError" in told(caplog)


def test_a_library_without_the_functions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A confluent-kafka that hides librdkafka's symbols, as one that is linked statically may."""
    monkeypatch.setattr(capi.cimpl, "__file__", sys.modules["_ctypes"].__file__)
    assert "shows no rd_kafka_version" in told(caplog)


def test_a_version_that_nobody_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer library is not trusted because it still looks alike."""
    monkeypatch.setattr(capi, "KNOWN", range(0x030000, 0x030100))
    assert (
        f"librdkafka {libversion()[0]} (0x{libversion()[1]:08x}) is not among the versions that"
        " were tried" in told(caplog)
    )


@pytest.mark.parametrize(("what", "value"), [("byteorder", "big"), ("sizes", 4)])
def test_another_platform(
    what: str, value: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The passes take addresses to be 64 bits wide, little end first."""
    if what == "byteorder":
        monkeypatch.setattr(sys, "byteorder", value)
    else:
        monkeypatch.setattr(ctypes, "sizeof", lambda _: value)
    assert "this platform is not a 64-bit little-endian one" in told(caplog)


def test_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A compiler that fails, say, keeps nobody from reading; its words, which may be
    long, stay out of the line.
    """

    def fails(_: Api) -> None:
        raise LookupError("a page of LLVM")

    monkeypatch.setattr(selftest, "check", fails)
    assert told(caplog).endswith("the compiled way failed to load: LookupError")


# --------------------------------------------------------------------------------------------------


class Moved(Api):
    """A library whose message has two fields in each other's place."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(load_api()._library)
        honest = self.event_message_array
        self.kept: list[Any] = []

        def moved(event: int, addresses: int, size: int) -> int:
            count = honest(event, addresses, size)
            array = (ctypes.c_int64 * size).from_address(addresses)
            for n in range(count):
                head = MessageHead()
                ctypes.memmove(ctypes.byref(head), array[n], ctypes.sizeof(head))
                # an address is None for 0
                first, second = getattr(head, one) or 0, getattr(head, other) or 0
                setattr(head, one, second)
                setattr(head, other, first)
                self.kept.append(head)
                array[n] = ctypes.addressof(head)
            return int(count)

        self.event_message_array = moved


FIELDS = [name for name, _ in MessageHead._fields_]


@pytest.mark.parametrize("one", range(len(FIELDS)))
def test_another_layout_is_found_out(one: int) -> None:
    """Wherever two fields of the message changed places, the self-test names one of
    them, and reads no memory that isn't the message's.
    """
    for other in range(one + 1, len(FIELDS)):
        with pytest.raises(Unusable, match=r"self-test: rd_kafka_message_t\.\w+ is "):
            selftest.check(Moved(FIELDS[one], FIELDS[other]))


class Altered(Api):
    """A library whose message says something else in one field."""

    def __init__(self, name: str) -> None:
        super().__init__(load_api()._library)
        honest = self.event_message_array

        def altered(event: int, addresses: int, size: int) -> int:
            count = honest(event, addresses, size)
            self.kept = MessageHead()
            address = ctypes.c_int64.from_address(addresses)
            ctypes.memmove(ctypes.byref(self.kept), address.value, ctypes.sizeof(self.kept))
            setattr(self.kept, name, 0 if name == "key" else 77)
            address.value = ctypes.addressof(self.kept)
            return int(count)

        self.event_message_array = altered


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_is_looked_at(name: str) -> None:
    """One that doesn't say what it must is enough."""
    with pytest.raises(Unusable, match=r"self-test: rd_kafka_message_t\.\w+ is (77|False), not"):
        selftest.check(Altered(name))


def test_another_layout_falls_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the self-test found is the reason that is logged."""
    monkeypatch.setattr(choice, "load_api", lambda: Moved("payload", "key"))
    assert "librdkafka's self-test: rd_kafka_message_t.payload is " in told(caplog)


@pytest.mark.parametrize("field", ["partition", "offset"])
def test_another_list_of_places_is_found_out(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an assignment is written in, and a position read from, is held against what
    the library put there.
    """
    api = load_api()
    honest = api.topic_partition_list_add

    def moved(places: Any, topic: bytes, partition: int) -> Any:
        place = honest(places, topic, partition)
        setattr(place.contents, field, 77)
        return place

    monkeypatch.setattr(api, "topic_partition_list_add", moved)
    with pytest.raises(Unusable, match=rf"rd_kafka_topic_partition_t\.{field} is 77"):
        selftest.check(api)


def test_passes_that_read_something_else_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled passes themselves are tried: what they make of a message is compared, too."""
    monkeypatch.setattr(selftest.passes, "look", lambda *_: 0)
    with pytest.raises(Unusable, match="messages that were recognized is 0, not 1"):
        selftest.check(load_api())
    monkeypatch.undo()
    monkeypatch.setattr(selftest.passes, "move", lambda *_: None)
    with pytest.raises(Unusable, match=r"a message's (key|value) is"):
        selftest.check(load_api())


def test_a_library_that_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test waits for its reports no longer than a moment."""
    api = load_api()
    monkeypatch.setattr(selftest, "_WAIT_MS", 1)
    monkeypatch.setattr(api, "purge", lambda *_: 0)
    with pytest.raises(Unusable, match="reports nothing"):
        selftest.check(api)


def test_the_self_test_leaves_nothing_behind() -> None:
    """No thread stays after it, however often it is made: twenty leave no more than
    what others may begin or end meanwhile.
    """
    load_compiled()
    here = psutil.Process()
    before = here.num_threads()
    for _ in range(20):
        selftest.check(load_api())
    assert here.num_threads() < before + 10


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
    offsets = {name: getattr(MessageHead, name).offset for name in FIELDS}
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
