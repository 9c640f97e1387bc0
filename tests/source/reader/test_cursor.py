"""The cursor: how a reader handles the events that a client reports between messages."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.heard import hear_waits
from tests.source.reader.clients import WAYS
from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import (
    DataLossError,
    IdentityError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.kafka.allowed_properties import ALLOWED
from windrow.ingest.kafka.client_properties import consumer_recipe
from windrow.ingest.kafka.identity import IdentityCheck, refusal_of
from windrow.ingest.kafka.timeouts import TIMES
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.settings.secrets import InEnvironment
from windrow.ingest.source.reader import cursor as cursors
from windrow.ingest.source.reader.cursor import Cursor, LogLimits, ask_believable
from windrow.ingest.source.reader.fetching import (
    WAIT_SECONDS,
    Fetched,
    Fetcher,
    Fetching,
    OnError,
    Start,
)
from windrow.ingest.source.reader.reader import KafkaReader

SPLIT = Split("t", 0, 10, 20)
PLAN = ReadPlan("c", {"t": "id"}, "fail")


def raise_gone() -> None:
    message = "topic t is gone"
    raise IdentityError(message, "read", "Look.", "t")


CLIENT = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "auto.offset.reset": "error",
    "log_level": 0,
}
"""Properties of a client without a broker."""

Reads = Callable[..., Cursor]


class ScriptOverError(Exception):
    """A poll after the last step of a script."""


class Script:
    """A client without a broker: each poll returns the next step.

    It is also the function that makes clients, and stays the same when a cursor starts again.
    """

    def __init__(self, *steps: Fetched | KafkaError) -> None:
        self.steps = list(steps)
        self.begun: list[tuple[int, int | None]] = []
        self.closed = 0

    def __call__(self, properties: Mapping[str, Any], start: Start, on_error: OnError) -> Fetcher:
        self.begun.append((start.offset, start.leader_epoch))
        self._on_error = on_error
        return self

    def begin(self, start: Start, on_error: OnError) -> bool:
        return False

    def poll(self, max_messages: int, stop: int) -> Fetched:
        if not self.steps:
            raise ScriptOverError
        step = self.steps.pop(0)
        if isinstance(step, KafkaError):  # an error of the connection
            self._on_error(step)
            return passed(-1)
        return step

    def close(self) -> None:
        self.closed += 1


def passed(position: int) -> Fetched:
    """Returns a poll without messages, whose client is at this position."""
    return Fetched(0, position, (), ())


def event(error: KafkaError | int, offset: int = 12) -> Fetched:
    """Returns a poll with an event and its offset."""
    return Fetched(
        0, -1, ((error if isinstance(error, KafkaError) else KafkaError(error), offset),), ()
    )


def truncated(text: str = "") -> Fetched:
    """Returns a poll with the client's event for a log that was cut off.

    `tests/integration/test_truncation.py` gets it from a real cluster.
    """
    message = (
        "Partition log truncation detected at offset 10 (leader epoch 3): broker end offset is 7"
        f" (offset leader epoch 3){text}"
    )
    return event(
        KafkaError(
            KafkaError._AUTO_OFFSET_RESET,
            f"{message}. Reset to INVALID.: Local: Partition log truncation detected (broker 1)",
        )
    )


def play(cursor: Cursor) -> None:
    """Reads to the end of the range, or of the script."""
    with suppress(ScriptOverError):
        assert list(cursor.messages()) == []


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[LogLimits | None]:
    """The cluster's answers about the log's limits, one after the other; tests fill the list."""
    answers: list[LogLimits | None] = []
    monkeypatch.setattr(cursors, "log_limits", lambda *_: answers.pop(0))
    return answers


@pytest.fixture
def skipped() -> list[tuple[int, int]]:
    return []


@pytest.fixture(params=["fail", "skip"])
def reads(request: pytest.FixtureRequest, skipped: list[tuple[int, int]]) -> Reads:
    """A function that makes a cursor over a script.

    It doesn't wait, and a loss ends it or is skipped.
    """

    def make_cursor(
        script: Script, split: Split = SPLIT, properties: Mapping[str, Any] = CLIENT
    ) -> Cursor:
        def skip(start: int, stop: int) -> None:
            skipped.append((start, stop))

        return Cursor(
            script, properties, split, 0, lambda: None, skip if request.param == "skip" else None
        )

    return make_cursor


fails = pytest.mark.parametrize("reads", ["fail"], indirect=True)
skips = pytest.mark.parametrize("reads", ["skip"], indirect=True)


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
        # a recreated topic is shorter, which is no loss of the old topic's data
        (KafkaError._AUTO_OFFSET_RESET, IdentityError),
        (KafkaError._LOG_TRUNCATION, IdentityError),
    ],
)
def test_errors_end_the_read_by_what_they_mean(code: int, kind: type[WindrowError]) -> None:
    """A damaged message, a refused client and another topic end the read: nothing is skipped
    silently.
    """
    with pytest.raises(kind) as ended:
        play(Cursor(Script(event(code)), CLIENT, SPLIT, 60, raise_gone))
    assert ended.value.topic == "t"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # of the consumers' own group, which isn't used
    ],
)
def test_what_the_client_retries_is_waited_for(code: int) -> None:
    """A broken connection, a moving leader, or a group without rights doesn't end the read, or
    change the position.
    """
    play(cursor := Cursor(Script(event(code, 15)), CLIENT, SPLIT, 60, raise_gone))
    assert cursor.position == 10


def test_the_end_of_the_log_says_how_far_it_was_passed(limits: list[LogLimits | None]) -> None:
    """The end-of-partition event has the offset up to which all was delivered.

    The position never goes back.
    """
    script = Script(event(KafkaError._PARTITION_EOF, 15), passed(12))
    limits.append(LogLimits(0, 30))
    play(cursor := Cursor(script, CLIENT, SPLIT, 60, raise_gone))
    assert cursor.position == 15


def test_what_came_begins_the_stall_limit_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stall limit counts from the last progress, not from the start of the read."""
    clock = iter([0.0, 61.0, 120.0])
    monkeypatch.setattr(cursors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    script = Script(passed(10), passed(12), passed(12), passed(12))
    play(cursor := Cursor(script, CLIENT, SPLIT, 60, raise_gone))
    assert list(clock) == []
    assert cursor.position == 12


def test_a_log_from_which_nothing_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for messages is logged after two seconds, and again, without secrets."""
    clock = iter([0.0, 1.0, 3.0, 17.0, 19.0])
    monkeypatch.setattr(cursors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    error = KafkaError(KafkaError._TRANSPORT, "failed with hunter2")
    script = Script(passed(10), passed(10), passed(10), error, passed(10))
    with hear_waits() as heard:
        play(Cursor(script, {**CLIENT, "sasl.password": "hunter2"}, SPLIT, 60, raise_gone))
    told = [heard.get_nowait().getMessage() for _ in range(heard.qsize())]
    assert told == [
        "Waiting for messages of t[0] from offset 10 on",
        "Waiting for messages of t[0] from offset 10 on: failed with ***",
    ]


@pytest.mark.parametrize("fetching", WAYS.values(), ids=WAYS)
def test_a_client_without_messages_waits(fetching: Fetching) -> None:
    """A poll without messages sleeps in the client, so that a waiting reader uses no CPU."""
    with closing(fetching(CLIENT, Start("t", 0, 0, None, doubtful=False), print)) as fetcher:
        began = time.monotonic()
        assert fetcher.poll(1, 1).count == 0
    assert time.monotonic() - began >= WAIT_SECONDS / 2


END_AT_10 = LogLimits(0, 10)


@pytest.mark.parametrize(
    "answers",
    [
        (END_AT_10, LogLimits(0, 30)),
        (END_AT_10, END_AT_10, LogLimits(0, 30)),
        (END_AT_10, LogLimits(0, 12)),
        (END_AT_10, None),
        (None,),
    ],
)
def test_a_small_end_of_a_new_leader_is_not_believed(
    reads: Reads,
    limits: list[LogLimits | None],
    skipped: list[tuple[int, int]],
    answers: tuple[LogLimits | None, ...],
) -> None:
    """One answer that the log ends too early, or two different ones, lose nothing, whatever
    on_loss is.
    """
    limits += [END_AT_10, *answers]
    play(cursor := reads(Script(event(KafkaError._PARTITION_EOF, 10))))
    assert (limits, cursor.position, cursor.skipped, skipped) == ([], 10, 0, [])


@fails
def test_an_end_that_is_told_again_is_a_loss(reads: Reads, limits: list[LogLimits | None]) -> None:
    """The same end below the stop, answered several times, raises DataLossError with the end."""
    limits += [END_AT_10] * 4
    with pytest.raises(DataLossError, match="10 to 20 are wanted, but the log holds 0 to 10"):
        play(reads(Script(event(KafkaError._PARTITION_EOF, 10))))


@skips
def test_what_is_still_there_is_read_before_the_rest_is_skipped(
    reads: Reads, limits: list[LogLimits | None], skipped: list[tuple[int, int]]
) -> None:
    """If the log ends between position and stop, the messages up to the end are read before the
    rest is skipped.
    """
    limits += [LogLimits(0, 15)] * 8
    script = Script(event(KafkaError._PARTITION_EOF, 10))
    play(cursor := reads(script))
    assert (cursor.position, cursor.skipped) == (10, 0)
    script.steps.append(event(KafkaError._PARTITION_EOF, 15))
    play(cursor)
    assert (cursor.position, cursor.skipped, skipped) == (20, 5, [(15, 20)])


@skips
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_client_that_has_lost_offsets_is_not_kept(
    reads: Reads, limits: list[LogLimits | None], is_lost: bool
) -> None:
    """A client that reported lost offsets isn't kept for the next split, because it may not go
    on.
    """
    limits += [LogLimits(15, 30)]
    script = Script(*([event(KafkaError.OFFSET_OUT_OF_RANGE)] if is_lost else []), passed(20))
    with keeping():
        play(cursor := reads(script))
        assert cursor.position == 20
        cursor.close()
        assert script.closed == (2 if is_lost else 0)


@skips
def test_a_client_that_has_not_come_to_its_stop_is_not_kept(reads: Reads) -> None:
    """A client of a read that ended early isn't kept for the next split."""
    with keeping():
        play(cursor := reads(script := Script(passed(15))))
        cursor.close()
        assert script.closed == 1


def grew_again(reads: Reads, limits: list[LogLimits | None]) -> Cursor:
    """Returns a cursor after two events that the log was cut below its position, with a third
    event to come.
    """
    limits += [LogLimits(0, 30)] * 3
    script = Script(truncated(), truncated())
    play(cursor := reads(script))
    assert (cursor.position, cursor.skipped) == (10, 0), "a broker that is behind may say so"
    script.steps.append(truncated())
    return cursor


@fails
def test_a_log_that_grew_again_is_a_loss(reads: Reads, limits: list[LogLimits | None]) -> None:
    """A log that was cut off below the position and has grown again raises DataLossError after
    three such events.

    The offsets now hold other messages than the plan's.
    """
    with pytest.raises(
        DataLossError,
        match=r"the log holds 0 to 30; it was cut off and has grown again.*broker end offset is 7",
    ):
        play(grew_again(reads, limits))


@skips
def test_a_log_that_grew_again_is_skipped(reads: Reads, limits: list[LogLimits | None]) -> None:
    """A log that was cut off and has grown again is skipped with on_loss: skip."""
    play(cursor := grew_again(reads, limits))
    assert (cursor.position, cursor.skipped, cursor.diverged) == (20, 10, False)


@fails
def test_what_the_cluster_says_once_in_a_while_is_not_believed(
    reads: Reads, limits: list[LogLimits | None]
) -> None:
    """Answers that the log was cut off don't add up if messages came between them."""
    limits += [LogLimits(0, 30)] * 5
    script = Script(truncated(), truncated(), passed(12), truncated(), truncated())
    play(cursor := reads(script))
    assert cursor.position == 12
    script.steps.append(truncated())
    with pytest.raises(DataLossError):
        play(cursor)


@fails
def test_a_client_that_begins_again_has_the_leader_epoch_of_the_stop(
    reads: Reads, limits: list[LogLimits | None]
) -> None:
    """A client that starts again uses the stop's leader epoch.

    The start's epoch is only for the start, and may be missing.
    """
    limits.append(LogLimits(0, 30))
    script = Script(passed(12), truncated())
    play(reads(script, Split("t", 0, 10, 20, 3, 4)))
    assert script.begun == [(10, 3), (12, 4)]
    play(reads(without := Script()))
    assert without.begun == [(10, None)]


@skips
def test_a_start_that_was_cut_off_before_the_plan_is_read_by_the_stops_epoch(
    reads: Reads, limits: list[LogLimits | None]
) -> None:
    """With on_loss: skip, a start that was cut off before the plan is read with the stop's
    epoch.

    These are messages that the plan saw. If they are gone, too, they are skipped.
    """
    limits += [LogLimits(0, 30)] * 6
    script = Script(*[truncated()] * 3)
    play(cursor := reads(script, Split("t", 0, 10, 20, 3, 4)))
    assert (cursor.position, cursor.skipped, cursor.diverged) == (10, 0, True)
    script.steps += [truncated()] * 3
    play(cursor)
    assert (cursor.position, cursor.skipped) == (20, 10), "after the plan too"
    assert script.begun == [(10, 3), (10, 3), (10, 3), (10, 4), (10, 4), (10, 4)]


@fails
def test_a_message_of_a_later_leader_is_a_loss(
    reads: Reads, limits: list[LogLimits | None]
) -> None:
    """A message of a later leader is a loss from its offset on, whatever was read before."""
    limits.append(LogLimits(0, 30))
    play(cursor := reads(Script(passed(18))))
    with pytest.raises(
        DataLossError,
        match=(
            "from 15 to 20 are wanted, but the log holds 0 to 30; it was cut off and has grown"
            " again"
        ),
    ):
        cursor.lose_from(15)


@skips
def test_a_message_of_a_later_leader_is_skipped_with_the_rest(
    reads: Reads, limits: list[LogLimits | None], skipped: list[tuple[int, int]]
) -> None:
    """A message of a later leader is skipped with the rest, with on_loss: skip."""
    limits.append(LogLimits(0, 30))
    play(cursor := reads(Script(passed(18))))
    cursor.lose_from(15)
    assert (cursor.position, cursor.skipped, skipped) == (20, 5, [(15, 20)])


@fails
def test_an_offset_that_was_refused_for_a_moment_is_asked_for_again(
    reads: Reads, limits: list[LogLimits | None]
) -> None:
    """If the log holds an offset that the client reported out of range, the client starts again
    there, up to the stall limit.
    """
    limits.append(LogLimits(0, 30))
    play(cursor := reads(script := Script(event(KafkaError._AUTO_OFFSET_RESET))))
    assert script.begun == [(10, None)] * 2
    assert cursor.position == 10


@fails
@pytest.mark.parametrize(
    "name", sorted(name for name, allowed in ALLOWED.items() if allowed.secret)
)
@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError._AUTHENTICATION])
def test_an_error_of_the_client_shows_no_secret(reads: Reads, name: str, code: int) -> None:
    """An error never contains the value of a secret property, whatever the client's text says."""
    script = Script(event(KafkaError(code, "failed with hunter2")))
    with pytest.raises(WindrowError, match=r"with \*\*\*") as ended:
        play(reads(script, properties={name: "hunter2"}))
    assert "hunter2" not in str(ended.value)


@fails
def test_a_loss_shows_no_secret(reads: Reads, limits: list[LogLimits | None]) -> None:
    """The client's text about a cut log is shown without secrets."""
    limits += [LogLimits(0, 30)] * 3
    script = Script(*[truncated(" with hunter2")] * 3)
    with pytest.raises(DataLossError, match=r"with \*\*\*") as ended:
        play(reads(script, properties={"sasl.password": "hunter2"}))
    assert "hunter2" not in str(ended.value)


@fails
def test_a_stall_shows_no_secret(reads: Reads, limits: list[LogLimits | None]) -> None:
    """The last error before a stall is shown without secrets."""
    limits += [None, None]
    script = Script(KafkaError(KafkaError._TRANSPORT, "failed with hunter2"), passed(-1))
    with pytest.raises(UnreachableError, match=r"with \*\*\*"):
        play(reads(script, properties={"sasl.password": "hunter2"}))


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._TRANSPORT])
def test_a_refused_question_shows_no_secret(code: int) -> None:
    """The errors of a refused login and of a broken connection have no secrets."""
    refusal = refusal_of(
        SPLIT, KafkaError(code, "failed with hunter2"), [], {"sasl.password": "hunter2"}
    )
    assert "with ***" in str(refusal)
    assert "hunter2" not in str(refusal)


def test_properties_that_cannot_be_used_show_no_secret() -> None:
    """A client that can't be made is reported with the reason and without secrets."""
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "hunter2",
        "sasl.password": "hunter2",
    }
    with pytest.raises(SpecError, match=r"\*\*\*") as refused:
        IdentityCheck(properties).check(SPLIT, "c", "id", 1)
    assert "hunter2" not in str(refused.value)


def test_the_clients_log_stays_in_a_worker() -> None:
    """A worker prints no line of the client's log, neither to stderr nor to a root handler."""
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
    """Properties aren't in the reader's repr. Written-out ones are pickled with it."""
    properties = {"sasl.password": "hunter2", "isolation.level": "read_committed"}
    reader = KafkaReader(properties, PLAN)
    assert "hunter2" not in repr(reader)
    assert pickle.loads(pickle.dumps(reader)).properties == properties


def test_a_referred_secret_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a referenced password only the reference is pickled.

    If it is missing where the task runs, the error names it.
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
    """A reader must be given an isolation level, so that the client's default is never used
    silently.
    """
    with pytest.raises(ValueError, match=r"isolation\.level"):
        KafkaReader(properties, PLAN)


def test_answers_about_a_small_end_are_some_time_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions about an end that is too small are some time apart, because a new leader's
    watermark is small for a moment.
    """
    waited = list[float]()
    monkeypatch.setattr("time.sleep", waited.append)
    assert ask_believable(lambda: LogLimits(0, 7), 5, 10, 0.25) == LogLimits(0, 7)
    assert waited == [0.25] * (TIMES - 1)
    waited.clear()
    assert ask_believable(lambda: LogLimits(6, 7), 5, 10, 0.25) == LogLimits(6, 7)
    assert waited == []
