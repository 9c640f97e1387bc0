"""What a reader makes of the events that a client reports between messages."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from ingest.broker.properties import ALLOWED
from ingest.errors import IdentityError, RefusedError, SpecError, UnreachableError, WindrowError
from ingest.model import Split
from ingest.read.cursor import Cursor
from ingest.read.identity import _refusal, check_identity
from ingest.read.kafka import KafkaReader

SPLIT = Split("t", 0, 10, 20)


def gone() -> None:
    what = "topic t is gone"
    raise IdentityError(what, "read", "Look.", "t")


@pytest.fixture
def cursor() -> Iterator[Cursor]:
    """Assigned, on a client without a broker: events are handed to it."""
    cursor = Cursor({"group.id": "g", "auto.offset.reset": "error", "log_level": 0}, SPLIT, 60, gone)
    yield cursor
    cursor.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._BAD_MSG, RefusedError),
        (KafkaError._BAD_COMPRESSION, RefusedError),
        (KafkaError._AUTHENTICATION, SpecError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SpecError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, IdentityError),
        (KafkaError.UNKNOWN_TOPIC_ID, IdentityError),
        (KafkaError._AUTO_OFFSET_RESET, IdentityError),  # a recreated topic is shorter: it is no data loss of this one
    ],
)
def test_errors_end_the_read_by_what_they_mean(cursor: Cursor, code: int, kind: type[WindrowError]) -> None:
    """A damaged message, a refused client and another topic end the read: nothing that the client skips is passed over in silence."""
    with pytest.raises(kind) as ended:
        cursor._event(KafkaError(code), 12)
    assert ended.value.topic == "t"


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.LEADER_NOT_AVAILABLE])
def test_what_the_client_mends_is_waited_for(cursor: Cursor, code: int) -> None:
    """A broken connection or a moving leader moves nothing and ends nothing."""
    assert cursor._event(KafkaError(code), 15) == 0


def test_the_end_of_the_log_says_how_far_it_was_passed(cursor: Cursor) -> None:
    """The end-of-partition event carries the offset up to which all was delivered; it never moves the position back."""
    assert cursor._event(KafkaError(KafkaError._PARTITION_EOF), 15) == 15
    cursor._advance([], 15)
    cursor._advance([], 12)
    assert cursor.position == 15


@pytest.mark.parametrize("name", sorted(name for name, allowed in ALLOWED.items() if allowed.secret))
@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._AUTHENTICATION, KafkaError._AUTO_OFFSET_RESET])
def test_an_error_of_the_client_shows_no_secret(cursor: Cursor, name: str, code: int) -> None:
    """Whatever the client quotes in its words, no secret property's value gets into an error."""
    cursor._properties = {name: "hunter2"}
    cursor._check = lambda: None
    cursor._log_range = lambda: None  # type: ignore[method-assign]
    with pytest.raises(WindrowError, match=r"with \*\*\*") as ended:
        cursor._event(KafkaError(code, "failed with hunter2"), 12)
    assert "hunter2" not in str(ended.value)


def test_a_stall_shows_no_secret(cursor: Cursor) -> None:
    """What was heard last is told without secrets."""
    cursor._properties, cursor._check = {"sasl.password": "hunter2"}, lambda: None
    cursor._log_range = lambda: None  # type: ignore[method-assign]
    cursor._hear(KafkaError(KafkaError._TRANSPORT, "failed with hunter2"))
    with pytest.raises(UnreachableError, match=r"with \*\*\*"):
        cursor._stalled()


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._TRANSPORT])
def test_a_refused_question_shows_no_secret(code: int) -> None:
    """Neither a refused login nor a broken connection shows what it was tried with."""
    refusal = _refusal(SPLIT, KafkaError(code, "failed with hunter2"), [], {"sasl.password": "hunter2"})
    assert "with ***" in str(refusal)
    assert "hunter2" not in str(refusal)


def test_properties_that_cannot_be_used_show_no_secret() -> None:
    """A client that can't be made says why, without its secrets."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "hunter2", "sasl.password": "hunter2"}
    with pytest.raises(SpecError, match=r"\*\*\*") as refused:
        check_identity(properties, SPLIT, "c", "id", 1)
    assert "hunter2" not in str(refused.value)


def test_the_clients_log_stays_in_a_worker() -> None:
    """A worker, which knows no broker module, prints no line of the client's log: neither to stderr nor to a root handler."""
    code = """
import logging
logging.basicConfig()
from ingest.read.kafka import KafkaReader
logging.getLogger("windrow.librdkafka").error("failed with hunter2")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout + ended.stderr == ""


def test_a_reader_shows_no_secret() -> None:
    """Properties stay out of the reader's text, and travel with it."""
    reader = KafkaReader({"sasl.password": "hunter2"}, "c", {"t": "id"})
    assert "hunter2" not in repr(reader)
    assert pickle.loads(pickle.dumps(reader)).properties == {"sasl.password": "hunter2"}
