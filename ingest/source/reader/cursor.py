"""Reads one range of one topic-partition, and finds which messages are missing.

The cursor works with any client that fetches messages. A read ends at a position, not at
a message: transaction markers, aborted messages and compaction leave offsets that no
consumer ever sees. The last offset of the range may be such an offset, so a reader that
waits for its message would wait for ever. (Flink's partition reader has the same stop
rule.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing
from typing import Any, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from windrow.ingest.client_cache import is_keeping, keep, take_client
from windrow.ingest.errors import DataLossError, RefusedError
from windrow.ingest.kafka.client_properties import LOG, scrub
from windrow.ingest.kafka.error_codes import (
    END,
    LOGIN,
    LOST_OFFSETS,
    MISSING_TOPIC,
    PASSING,
    is_denied,
    is_truncation,
)
from windrow.ingest.kafka.identity import denied_error, is_client_refused, unreachable
from windrow.ingest.kafka.timeouts import APART_SECONDS, CONNECT_SECONDS, TIMES
from windrow.ingest.model.plan import Split
from windrow.ingest.source.data_loss import REMOVED
from windrow.ingest.source.reader.fetching import Fetched, Fetcher, Fetching, Start
from windrow.ingest.waiting import AGAIN_SECONDS, SECONDS, log_waiting

_REPLACED = "it was cut off and has grown again, so these offsets hold other messages now"

Skip = Callable[[int, int], None]
"""Called with each range of missing offsets, before the messages after it are read."""


class Cursor:
    """Reads the offsets of a split, from its start up to its stop.

    Args:
        fetching: makes the client.
        properties: the properties of the client.
        split: the range to read.
        stall_seconds: how long no message may arrive.
        check: compares the topic's identity again when messages are missing that should
            exist.
        skip: called with offsets that are gone from the log; None: they are a data loss.

    Attributes:
        position: the next offset to read.
        skipped: the number of skipped offsets.
        diverged: see `ports.reader.ReadSummary`.
    """

    def __init__(
        self,
        fetching: Fetching,
        properties: Mapping[str, Any],
        split: Split,
        stall_seconds: float,
        check: Callable[[], None],
        skip: Skip | None = None,
    ) -> None:
        self._fetching = fetching
        self._split = split
        self._properties = properties
        self._stall_seconds = stall_seconds
        self._check = check
        self._skip = skip
        self._last_error: KafkaError | None = None
        self._quiet_since: float | None = None
        self._told_time = 0.0
        self._end = -1
        self._loss: KafkaError | None = None
        self._truncations = 0
        self.position = split.start
        self.skipped = 0
        self.diverged = False
        self._reusable = True
        self._fetcher = self._begin_on_kept()

    def messages(self) -> Iterator[Fetched]:
        """Yields the visible messages of the range, some thousands at a time, never zero."""
        while self.position < self._split.stop:
            fetched = self._poll()
            if fetched.count:
                yield fetched
            if self._loss is not None:
                self._no_progress()
            elif self.position <= self._end < self._split.stop:
                self._at_end()

    def close(self) -> None:
        """Closes the client, or keeps it for the next split.

        It is kept if it came to the stop without an error.
        """
        if self._reusable and self.position >= self._split.stop and is_keeping():
            keep(self._client, self._fetcher)
        else:
            self._fetcher.close()

    def _begin(self) -> Fetcher:
        """Makes a client at the position.

        The leader epoch lets the cluster detect that the log was cut off since the plan was
        made.
        """
        return self._fetching(self._properties, self._start(), self._on_error)

    def _begin_on_kept(self) -> Fetcher:
        """Takes the client that the previous split has left, or makes a client."""
        fetcher = cast("Fetcher | None", take_client(self._client)) if is_keeping() else None
        if fetcher is None:
            return self._begin()
        begun = False
        try:
            begun = fetcher.begin(self._start(), self._on_error)
        finally:
            if not begun:
                fetcher.close()
        return fetcher if begun else self._begin()

    @property
    def _client(self) -> Hashable:
        """The key under which clients are kept."""
        return self._fetching, frozenset(self._properties.items())

    def _start(self) -> Start:
        witness = self._witness()
        doubtful = witness is not None and witness != self._split.stop_epoch
        return Start(self._split.topic, self._split.partition, self.position, witness, doubtful)

    def _witness(self) -> int | None:
        """Returns the leader epoch to read under.

        At the split's start this is the start's epoch. The stop's epoch is a witness for every
        position before the stop, but proves nothing about the time before the plan.
        """
        at_start = self.position == self._split.start and not self.diverged
        return self._split.leader_epoch if at_start else self._split.stop_epoch

    def _begin_again(self) -> None:
        """Makes a new client: after a loss the old client reads no further."""
        self._reusable = False
        self._fetcher.close()
        self._fetcher = self._begin()

    def _poll(self) -> Fetched:
        fetched = self._fetcher.poll(self._split.stop - self.position, self._split.stop)
        passed = max((self._event(error, offset) for error, offset in fetched.events), default=0)
        self._advance(max(fetched.position, passed))
        return fetched

    def _advance(self, passed: int) -> None:
        """Moves the position on, if the client has passed more of the log.

        Logs a message if it hasn't for a while.

        Raises:
            UnreachableError: the client hasn't moved within the stall limit.
        """
        if passed > self.position:
            self.position, self._quiet_since, self._truncations = passed, None, 0
            return
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since, self._told_time = now, now + SECONDS - AGAIN_SECONDS
        elif now - self._quiet_since > self._stall_seconds:
            self._raise_stalled()
        elif now - self._told_time > AGAIN_SECONDS:
            self._told_time = now
            reason = "" if self._last_error is None else f": {self._error_text(self._last_error)}"
            log_waiting(f"messages of {self._split.tp} from offset {self.position} on{reason}")

    def _event(self, error: KafkaError, offset: int) -> int:
        """Handles an event, and returns the offset up to which it shows the log was passed.

        A fatal error is raised. An end-of-partition event moves the position to the offset
        that it carries, but only after all messages before it were delivered. It is needed
        after a batch that compaction emptied: such a batch yields no message, and the
        consumer's own position stays before it.
        """
        code = error.code()
        if code == END:
            self._end = offset
            return offset
        if code in LOST_OFFSETS:
            # checked after the messages before the loss are taken
            self._loss = self._last_error = error
        elif is_denied(error):
            raise denied_error(self._split, error, self._properties)
        elif code in MISSING_TOPIC:
            self._check()
        elif code not in PASSING | LOGIN:  # a login that only lacks a token gets one later
            raise RefusedError(
                f"the client can't read any further: {self._error_text(error)}",
                "read",
                "Nothing was committed. Look at this offset with Kafka's own tools.",
                self._split.topic,
                self._split.partition,
                max(self.position, offset),
            )
        return 0

    def _on_error(self, error: KafkaError) -> None:
        """Keeps an error of the connection; librdkafka goes on trying."""
        self._last_error = error

    def _error_text(self, error: KafkaError) -> str:
        return scrub(error.str(), self._properties)

    def _limits(self) -> LogLimits | None:
        return log_limits(self._properties, self._split)

    # ----------------------------------------------------------------------------------------------

    def _at_end(self) -> None:
        """Handles an end of the log before the stop, as the client sees it.

        The client can't tell it from an open transaction or a replica that lags.
        """
        self._end = -1
        limits = self._limits()
        if limits is not None and limits.high < self._split.stop:
            self._no_progress()

    def _no_progress(self) -> None:
        """Compares the wanted offsets with the log.

        Offsets that are gone are lost. The cursor waits for the others.
        """
        error, self._loss = self._loss, None
        self._check()  # a recreated topic is no loss
        stop, apart = self._split.stop, min(APART_SECONDS, self._stall_seconds / 4)
        limits = ask_believable(self._limits, self.position, stop, apart)
        if error is not None and is_truncation(error):
            self._truncations += 1
            self._quiet_since = None if self._truncations <= TIMES else self._quiet_since
        if limits is not None and self.position < limits.low:
            self._lose(min(limits.low, stop), limits)
        elif limits is not None and self._is_cut(limits):
            self._lose(stop, limits)
        elif limits is not None and error is not None and self._truncations >= TIMES:
            self._lose_cut(limits, f"; {_REPLACED} ({self._error_text(error)})")
        elif error is not None:
            time.sleep(apart)
            self._begin_again()

    def _is_cut(self, limits: LogLimits) -> bool:
        """Returns whether the rest of the range is gone for good.

        A read that skips goes on up to the log's end first.
        """
        return limits.high < self._split.stop and (
            self._skip is None or self.position >= limits.high
        )

    def lose_from(self, offset: int) -> None:
        """Handles a message that was written after the plan was made: the rest is lost.

        The message's leader epoch is later than any that was planned, so it isn't the planned
        message.

        Raises:
            DataLossError: the cursor may not skip; otherwise the rest counts as skipped.
        """
        self._check()
        self.position = offset
        self._lose(self._split.stop, self._limits(), f"; {_REPLACED}")

    def _lose_cut(self, limits: LogLimits, reason: str) -> None:
        """Handles a log that was cut off below the position, and has grown again.

        A read that skips goes on if the plan was made after the cut-off:

        1. The window's start was frozen.
        2. The log was cut off below the start, and grew again.
        3. The stop was frozen, among the new messages.

        Then all messages between start and stop belong to the window, and the stop's witness
        proves it.
        """
        planned_after = (
            self._split.stop_epoch is not None and self._witness() != self._split.stop_epoch
        )
        if self._skip is None or not planned_after:
            self._lose(self._split.stop, limits, reason)
        else:
            self.diverged, self._truncations, self._quiet_since = True, 0, None
            self._begin_again()

    def _lose(self, upto: int, limits: LogLimits | None, reason: str = "") -> None:
        if self._skip is None:
            log_range = "others" if limits is None else f"{limits.low} to {limits.high}"
            raise DataLossError(
                f"offsets from {self.position} to {self._split.stop} are wanted, but the log holds"
                f" {log_range}{reason}",
                "read",
                REMOVED,
                self._split.topic,
                self._split.partition,
                self.position,
            )
        self._skip(self.position, upto)
        self.skipped += upto - self.position
        self.position, self._quiet_since = upto, None
        if upto < self._split.stop:
            self._begin_again()

    def _raise_stalled(self) -> None:
        """Raises an error with the likely reason, after the stall limit.

        The read goes on if the missing offsets turn out to be gone and may be skipped.
        """
        if self._last_error is not None and is_client_refused(self._last_error):
            raise denied_error(self._split, self._last_error, self._properties)
        position = self.position
        self._no_progress()
        if self.position > position:
            return
        limits = self._limits()
        end_text = (
            ""
            if limits is None
            else f"; the log ends at {limits.high}, and an open transaction may hold it back"
        )
        last = (
            ""
            if self._last_error is None
            else f"; last error: {self._error_text(self._last_error)}"
        )
        message = (
            f"no message arrived within {self._stall_seconds:g} s, and offset"
            f" {self._split.stop} was not reached{end_text}{last}"
        )
        raise unreachable(self._split, message, self.position)


class LogLimits(msgspec.Struct, frozen=True):
    """The first offset of a log, and its high watermark."""

    low: int
    high: int


def log_limits(properties: Mapping[str, Any], split: Split) -> LogLimits | None:
    """Asks for the log's limits now; returns None if no broker answered.

    The request uses its own consumer with read_uncommitted. A consumer that reads committed
    messages gets the last stable offset, which an open transaction holds below the log's end.
    """
    settings = {
        **properties,
        "isolation.level": "read_uncommitted",
        "logger": LOG,
        "error_cb": _ignore,
    }
    with closing(Consumer(settings)) as consumer:
        try:
            partition = KafkaPartition(split.topic, split.partition)
            offsets = consumer.get_watermark_offsets(
                partition, timeout=CONNECT_SECONDS, cached=False
            )
        except KafkaException:
            return None
    return None if offsets is None else LogLimits(*offsets)


def ask_believable(
    ask: Callable[[], LogLimits | None], position: int, stop: int, apart_seconds: float
) -> LogLimits | None:
    """Asks for limits until they can be believed; returns None if they can't be yet.

    A new leader may report a high watermark that is too low for a moment (KAFKA-7703). So a
    high watermark below `stop` is believed only if several answers agree, some time
    apart. A log start beyond `position` is believed at once, because it never goes
    back.
    """
    first = ask()
    if first is None or first.high >= stop or first.low > position:
        return first
    for _ in range(TIMES - 1):
        time.sleep(apart_seconds)
        second = ask()
        if second is None or second.high != first.high:
            return second if second is not None and second.high >= stop else None
        first = second
    return first


def _ignore(_error: object) -> None:
    """Ignores an error of the connection, because the reading consumer reports it."""
