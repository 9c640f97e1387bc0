"""What a reader makes of the events that a client reports between messages."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.source.reader.clients import WAYS
from windrow.ingest.errors import (
    DataLossError,
    IdentityError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.kafka.client import consumer_recipe
from windrow.ingest.kafka.identity import IdentityCheck, refusal_of
from windrow.ingest.kafka.properties import ALLOWED
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.settings.secrets import InEnvironment
from windrow.ingest.source.reader import cursor as cursors
from windrow.ingest.source.reader.cursor import Cursor
from windrow.ingest.source.reader.fetching import WAIT_SECONDS, Fetcher, Fetching, OnError, Start
from windrow.ingest.source.reader.loglimits import LogLimits
from windrow.ingest.source.reader.reader import KafkaReader

SPLIT = Split("t", 0, 10, 20)
PLAN = ReadPlan("c", {"t": "id"}, "fail")


def gone() -> None:
    what = "topic t is gone"
    raise IdentityError(what, "read", "Look.", "t")


CLIENT = {"group.id": "g", "auto.offset.reset": "error", "log_level": 0}
"""Without a broker."""


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def fetching(request: pytest.FixtureRequest) -> Fetching:
    """What is judged doesn't depend on the client."""
    found: Fetching = request.param
    return found


@pytest.fixture
def cursor(fetching: Fetching) -> Iterator[Cursor]:
    """Assigned, on a client without a broker: events are handed to it."""
    cursor = Cursor(fetching, CLIENT, SPLIT, 60, gone)
    yield cursor
    cursor.close()


@pytest.fixture
def skipped() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def skipping(fetching: Fetching, skipped: list[tuple[int, int]]) -> Iterator[Cursor]:
    """Like `cursor`, of the right topic, impatient, and told to go on without what is gone."""
    cursor = Cursor(
        fetching, CLIENT, SPLIT, 0, lambda: None, lambda start, stop: skipped.append((start, stop))
    )
    yield cursor
    cursor.close()


def truncated(text: str = "") -> KafkaError:
    """How the client tells of a log that was cut off;
    `tests/integration/test_truncation.py` hears it of a real one.
    """
    what = (
        "Partition log truncation detected at offset 10 (leader epoch 3): broker end offset is 7"
        f" (offset leader epoch 3){text}"
    )
    return KafkaError(
        KafkaError._AUTO_OFFSET_RESET,
        f"{what}. Reset to INVALID.: Local: Partition log truncation detected (broker 1)",
    )


def happens(cursor: Cursor, error: KafkaError) -> None:
    """An error comes in, and is settled."""
    cursor._event(error, 12)
    cursor._no_progress()


def tell(cursor: Cursor, *limits: tuple[int, int] | None) -> list[LogLimits | None]:
    """What the cluster says of the log, one answer after the other; what is left of it."""
    left = [None if pair is None else LogLimits(*pair) for pair in limits]
    cursor._limits = lambda: left.pop(0)  # type: ignore[method-assign]
    return left


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._BAD_MSG, RefusedError),
        (KafkaError._BAD_COMPRESSION, RefusedError),
        (KafkaError._AUTHENTICATION, SpecError),
        (KafkaError.UNSUPPORTED_SASL_MECHANISM, SpecError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SpecError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, IdentityError),
        (KafkaError.UNKNOWN_TOPIC_ID, IdentityError),
        # a recreated topic is shorter: it is no data loss of this one
        (KafkaError._AUTO_OFFSET_RESET, IdentityError),
        (KafkaError._LOG_TRUNCATION, IdentityError),
    ],
)
def test_errors_end_the_read_by_what_they_mean(
    cursor: Cursor, code: int, kind: type[WindrowError]
) -> None:
    """A damaged message, a refused client and another topic end the read: nothing that
    the client skips is passed over in silence.
    """
    with pytest.raises(kind) as ended:
        happens(cursor, KafkaError(code))
    assert ended.value.topic == "t"


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_what_the_client_retries_is_waited_for(cursor: Cursor, code: int) -> None:
    """A broken connection or a moving leader moves nothing and ends nothing."""
    assert cursor._event(KafkaError(code), 15) == 0


def test_the_end_of_the_log_says_how_far_it_was_passed(cursor: Cursor) -> None:
    """The end-of-partition event carries the offset up to which all was delivered; it
    never moves the position back.
    """
    assert cursor._event(KafkaError(KafkaError._PARTITION_EOF), 15) == 15
    cursor._advance(15)
    cursor._advance(12)
    assert cursor.position == 15


def test_what_came_begins_the_stall_limit_anew(
    cursor: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quiet moments of a long read don't add up: the limit counts from the last progress."""
    clock = iter([0.0, 61.0, 120.0])
    monkeypatch.setattr(cursors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    cursor._advance(10)
    cursor._advance(12)
    cursor._advance(12)
    cursor._advance(12)
    assert list(clock) == []
    assert cursor.position == 12


def test_a_client_without_messages_waits(fetching: Fetching) -> None:
    """A poll that finds nothing sleeps in the client, so that a reader that waits takes no core."""
    with closing(fetching(CLIENT, Start("t", 0, 0, None, doubtful=False), print)) as fetcher:
        began = time.monotonic()
        assert fetcher.poll(1, 1).count == 0
    assert time.monotonic() - began >= WAIT_SECONDS / 2


def test_a_small_end_of_a_new_leader_is_not_believed(
    cursor: Cursor, skipping: Cursor, skipped: list[tuple[int, int]]
) -> None:
    """One answer that the log ends too early, or two that differ, lose nothing,
    whatever was told to do about a loss.
    """
    cursor._check, cursor._stall_seconds = (lambda: None), 0
    for one in (cursor, skipping):
        for answers in (
            ((0, 10), (0, 30)),
            ((0, 10), (0, 10), (0, 30)),
            ((0, 10), (0, 12)),
            ((0, 10), None),
            (None,),
        ):
            left = tell(one, *answers)
            one._no_progress()
            assert (left, one.position, one.skipped) == ([], 10, 0)
    assert skipped == []


def test_an_end_that_is_told_again_is_believed(
    cursor: Cursor, skipping: Cursor, skipped: list[tuple[int, int]]
) -> None:
    """The same end below the stop, asked for several times: a data loss that names it,
    or the rest is skipped.
    """
    cursor._check, cursor._stall_seconds = (lambda: None), 0
    tell(cursor, *[(0, 10)] * 3)
    with pytest.raises(DataLossError, match="10 to 20 are wanted, but the log holds 0 to 10"):
        cursor._no_progress()
    tell(skipping, *[(0, 10)] * 3)
    skipping._no_progress()
    assert (skipping.position, skipping.skipped, skipped) == (20, 10, [(10, 20)])


def test_what_is_still_there_is_read_before_the_rest_is_skipped(skipping: Cursor) -> None:
    """Where the log ends between the position and the stop, nothing is skipped before
    the position is at that end.
    """
    tell(skipping, *[(0, 15)] * 3)
    skipping._no_progress()
    assert (skipping.position, skipping.skipped) == (10, 0)
    skipping._advance(15)
    tell(skipping, *[(0, 15)] * 3)
    skipping._no_progress()
    assert (skipping.position, skipping.skipped) == (20, 5)


def test_a_log_that_grew_again_is_lost(cursor: Cursor, skipping: Cursor) -> None:
    """Told again and again that the log was cut below the position: what stands there
    now are other messages, and none of the plan's.
    """
    for one in (cursor, skipping):
        one._check, one._stall_seconds = (lambda: None), 0
        tell(one, *[(0, 30)] * 3)
        for _ in range(2):
            happens(one, truncated())
            assert (one.position, one.skipped) == (
                10,
                0,
            ), "one answer may be that of a broker that is behind"
    with pytest.raises(
        DataLossError,
        match=r"the log holds 0 to 30; it was cut off and has grown again.*broker end offset is 7",
    ):
        happens(cursor, truncated())
    happens(skipping, truncated())
    assert (skipping.position, skipping.skipped, skipping.regrown) == (20, 10, False)


def test_what_the_cluster_says_once_in_a_while_is_not_believed(cursor: Cursor) -> None:
    """Between two answers that the log was cut off, messages came: they don't add up."""
    cursor._check, cursor._stall_seconds = (lambda: None), 0
    tell(cursor, *[(0, 30)] * 4)
    happens(cursor, truncated())
    happens(cursor, truncated())
    cursor._advance(12)
    happens(cursor, truncated())
    happens(cursor, truncated())
    assert (cursor.position, cursor._truncations) == (12, 2)


def test_each_begin_has_its_leader_epoch(skipped: list[tuple[int, int]]) -> None:
    """The start's at the start; the stop's further on, and where the start's is known
    to tell of a cut before the plan.
    """
    begun: list[tuple[int, int | None]] = []

    def fetching(properties: Mapping[str, Any], start: Start, on_error: OnError) -> Fetcher:
        begun.append((start.offset, start.leader_epoch))
        return WAYS["confluent"](properties, start, on_error)

    split = Split("t", 0, 10, 20, 3, 4)
    with closing(Cursor(fetching, CLIENT, split, 0, lambda: None)) as cursor:
        cursor._advance(12)
        cursor._begin_again()
    with closing(
        Cursor(fetching, CLIENT, split, 0, lambda: None, lambda a, b: skipped.append((a, b)))
    ) as skipping:
        tell(skipping, *[(0, 30)] * 6)
        for _ in range(3):
            happens(skipping, truncated())
        assert (skipping.position, skipping.skipped, skipping.regrown) == (10, 0, True)
        for _ in range(3):
            happens(skipping, truncated())
        assert (skipping.position, skipping.skipped) == (20, 10), "after the plan too"
    assert begun == [(10, 3), (12, 4), (10, 3), (10, 3), (10, 3), (10, 4), (10, 4), (10, 4)]
    with closing(Cursor(fetching, CLIENT, SPLIT, 0, lambda: None)):
        assert begun[-1] == (10, None)


def test_a_message_of_a_later_leader_is_another_one(
    cursor: Cursor, skipping: Cursor, skipped: list[tuple[int, int]]
) -> None:
    """From there on nothing of the plan is left: a loss that says so, or the rest is
    skipped, whatever was read of it already.
    """
    for one in (cursor, skipping):
        one._check = lambda: None
        one._advance(18)
        tell(one, (0, 30))
    with pytest.raises(
        DataLossError,
        match=(
            "from 15 to 20 are wanted, but the log holds 0 to 30; it was cut off and has grown"
            " again"
        ),
    ):
        cursor.lose_from(15)
    skipping.lose_from(15)
    assert (skipping.position, skipping.skipped, skipped) == (20, 5, [(15, 20)])


def test_an_offset_that_was_refused_for_a_moment_is_asked_for_again(cursor: Cursor) -> None:
    """Where the log holds what the client said to be out of range, the client begins
    again there, and the stall limit is its bound.
    """
    cursor._check, cursor._stall_seconds = (lambda: None), 0
    before = cursor._fetcher
    cursor._event(KafkaError(KafkaError._AUTO_OFFSET_RESET), 12)
    tell(cursor, (0, 30))
    cursor._no_progress()
    assert cursor._fetcher is not before
    assert cursor.position == 10


@pytest.mark.parametrize(
    "name", sorted(name for name, allowed in ALLOWED.items() if allowed.secret)
)
@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._AUTHENTICATION])
def test_an_error_of_the_client_shows_no_secret(cursor: Cursor, name: str, code: int) -> None:
    """Whatever the client quotes in its words, no secret property's value gets into an error."""
    cursor._properties = {name: "hunter2"}
    cursor._check = lambda: None
    tell(cursor, (0, 30))
    with pytest.raises(WindrowError, match=r"with \*\*\*") as ended:
        happens(cursor, KafkaError(code, "failed with hunter2"))
    assert "hunter2" not in str(ended.value)


def test_a_loss_shows_no_secret(cursor: Cursor) -> None:
    """What the client says of a truncation is told without secrets."""
    cursor._properties, cursor._check, cursor._truncations = (
        {"sasl.password": "hunter2"},
        (lambda: None),
        2,
    )
    tell(cursor, (0, 30))
    with pytest.raises(DataLossError, match=r"with \*\*\*") as ended:
        happens(cursor, truncated(" with hunter2"))
    assert "hunter2" not in str(ended.value)


def test_a_stall_shows_no_secret(cursor: Cursor) -> None:
    """What was heard last is told without secrets."""
    cursor._properties, cursor._check = {"sasl.password": "hunter2"}, lambda: None
    tell(cursor, None, None)
    cursor._on_error(KafkaError(KafkaError._TRANSPORT, "failed with hunter2"))
    with pytest.raises(UnreachableError, match=r"with \*\*\*"):
        cursor._stalled()


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._TRANSPORT])
def test_a_refused_question_shows_no_secret(code: int) -> None:
    """Neither a refused login nor a broken connection shows what it was tried with."""
    refusal = refusal_of(
        SPLIT, KafkaError(code, "failed with hunter2"), [], {"sasl.password": "hunter2"}
    )
    assert "with ***" in str(refusal)
    assert "hunter2" not in str(refusal)


def test_properties_that_cannot_be_used_show_no_secret() -> None:
    """A client that can't be made says why, without its secrets."""
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "hunter2",
        "sasl.password": "hunter2",
    }
    with pytest.raises(SpecError, match=r"\*\*\*") as refused:
        IdentityCheck(properties).once(SPLIT, "c", "id", 1)
    assert "hunter2" not in str(refused.value)


def test_the_clients_log_stays_in_a_worker() -> None:
    """A worker, which knows no broker module, prints no line of the client's log:
    neither to stderr nor to a root handler.
    """
    code = """
import logging
logging.basicConfig()
from windrow.ingest.source.reader.reader import KafkaReader
logging.getLogger("windrow.librdkafka").error("failed with hunter2")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout + ended.stderr == ""


def test_a_reader_shows_no_secret() -> None:
    """Properties stay out of the reader's text; those that are written out travel with it."""
    properties = {"sasl.password": "hunter2", "isolation.level": "read_committed"}
    reader = KafkaReader(properties, PLAN)
    assert "hunter2" not in repr(reader)
    assert pickle.loads(pickle.dumps(reader)).properties == properties


def test_a_referred_secret_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a password that a reference tells, what is pickled names the place alone;
    where it isn't there, the read says so by name.
    """
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    recipe = consumer_recipe(
        "localhost:1", {**login, "sasl.password": InEnvironment("KAFKA_PASSWORD")}
    )
    packed = pickle.dumps(KafkaReader(recipe, PLAN))
    assert b"KAFKA_PASSWORD" in packed
    assert b"hunter2" not in packed
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(
        SpecError,
        match=(
            r"variable KAFKA_PASSWORD, which sasl\.password refers to, isn't set in this process"
        ),
    ):
        pickle.loads(packed).read(SPLIT, print)


@pytest.mark.parametrize("properties", [{}, {"isolation.level": "serializable"}])
def test_a_reader_asks_for_an_isolation_level(properties: dict[str, str]) -> None:
    """The client's own choice is never taken in silence."""
    with pytest.raises(ValueError, match=r"isolation\.level"):
        KafkaReader(properties, PLAN)
