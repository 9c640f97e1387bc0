"""One range of one topic-partition: gives its messages, knows where it stands, and
judges what is missing, whatever client fetches them.

Why the end is a position and not a message: transaction markers, aborted messages and
compaction leave offsets that no consumer ever sees. The last of the range may be one of
them, so a reader that waits for it waits for ever (the stop rule is that of Flink's
partition reader).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, cast

from confluent_kafka import KafkaError

from windrow.ingest.client_cache import is_keeping, keep, taken
from windrow.ingest.errors import DataLossError, RefusedError
from windrow.ingest.kafka.client import scrubbed
from windrow.ingest.kafka.codes import DENIED, END, GONE, LOST, PASSING, is_truncation
from windrow.ingest.kafka.identity import denied, turned_away, unreachable
from windrow.ingest.kafka.retry import APART_SECONDS, TIMES
from windrow.ingest.model.plan import Split
from windrow.ingest.source.reader.fetching import Fetched, Fetcher, Fetching, Start
from windrow.ingest.source.reader.loglimits import LogLimits, believed, log_limits

_OTHERS = "it was cut off and has grown again, so that other messages stand there now"

Skip = Callable[[int, int], None]
"""Told of each range that is gone, before what lies behind it is read."""


class Cursor:
    """Reads [start, stop) through a client that `fetching` makes.

    `check` asks for the topic's identity again when something is missing that should be
    there. `skip`: what to tell of offsets that are not in the log any more; None: they
    are a data loss. `skipped` counts them. `regrown`: see `ports.reader.ReadSummary`.
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
        self._heard: KafkaError | None = None
        self._quiet_since: float | None = None
        self._end = -1
        self._loss: KafkaError | None = None
        self._truncations = 0
        self.position = split.start
        self.skipped = 0
        self.regrown = False
        self._untroubled = True
        self._fetcher = self._begin_on_kept()

    def messages(self) -> Iterator[Fetched]:
        """The visible messages of the range, some thousands at a time, never none."""
        while self.position < self._split.stop:
            fetched = self._poll()
            if fetched.count:
                yield fetched
            if self._loss is not None:
                self._no_progress()
            elif self.position <= self._end < self._split.stop:
                self._at_end()

    def close(self) -> None:
        """Give the client, its threads and its queue back, or let it wait for the next
        split: if it came to the end untroubled.
        """
        if self._untroubled and self.position >= self._split.stop and is_keeping():
            keep(self._client, self._fetcher)
        else:
            self._fetcher.close()

    def _begin(self) -> Fetcher:
        """A client at the position.

        The leader epoch lets the cluster say that the log was cut off since the plan was made.
        """
        return self._fetching(self._properties, self._start(), self._hear)

    def _begin_on_kept(self) -> Fetcher:
        """The one that the split before has left; else a new one."""
        fetcher = cast("Fetcher | None", taken(self._client)) if is_keeping() else None
        if fetcher is None:
            return self._begin()
        begun = False
        try:
            begun = fetcher.begin(self._start(), self._hear)
        finally:
            if not begun:
                fetcher.close()
        return fetcher if begun else self._begin()

    @property
    def _client(self) -> Hashable:
        """What tells clients apart."""
        return self._fetching, frozenset(self._properties.items())

    def _start(self) -> Start:
        witness = self._witness()
        doubtful = witness is not None and witness != self._split.stop_epoch
        return Start(self._split.topic, self._split.partition, self.position, witness, doubtful)

    def _witness(self) -> int | None:
        """The start's for the start.

        The stop's is one for every position before the stop, but knows only of what
        came after the plan.
        """
        at_start = self.position == self._split.start and not self.regrown
        return self._split.leader_epoch if at_start else self._split.stop_epoch

    def _begin_again(self) -> None:
        """The client stands still after a loss."""
        self._untroubled = False
        self._fetcher.close()
        self._fetcher = self._begin()

    def _poll(self) -> Fetched:
        fetched = self._fetcher.poll(self._split.stop - self.position, self._split.stop)
        passed = max((self._event(error, offset) for error, offset in fetched.events), default=0)
        self._advance(max(fetched.position, passed))
        return fetched

    def _advance(self, passed: int) -> None:
        """The client has passed all before this; it may say less than it said before."""
        if passed > self.position:
            self.position, self._quiet_since, self._truncations = passed, None, 0
        elif self._quiet_since is None:
            self._quiet_since = time.monotonic()
        elif time.monotonic() - self._quiet_since > self._stall_seconds:
            self._stalled()

    def _event(self, error: KafkaError, offset: int) -> int:
        """What an event says: how far the log was passed, or an error that ends the read.

        The end-of-partition event moves the position only by the offset that it
        carries, and that only after all before it was delivered: behind a batch that
        compaction emptied no message will ever come, and the consumer's own position
        stays before it.
        """
        code = error.code()
        if code == END:
            self._end = offset
            return offset
        if code in LOST:
            self._loss = self._heard = error  # judged once the messages before it are given away
        elif code in DENIED:
            raise denied(self._split, self._said(error))
        elif code in GONE:
            self._check()
        elif code not in PASSING:
            do = "Look at the topic at this place with Kafka's own tools; nothing was committed."
            what = f"the client could not read on: {self._said(error)}"
            raise RefusedError(
                what, "read", do, self._split.topic, self._split.partition, self.position
            )
        return 0

    def _hear(self, error: KafkaError) -> None:
        """Errors of the connection; librdkafka goes on trying."""
        self._heard = error

    def _said(self, error: KafkaError) -> str:
        return scrubbed(error.str(), self._properties)

    def _limits(self) -> LogLimits | None:
        return log_limits(self._properties, self._split)

    # ----------------------------------------------------------------------------------------------

    def _at_end(self) -> None:
        """The client saw an end of the log before the stop.

        An open transaction, or a replica that lags behind, looks the same.
        """
        self._end = -1
        limits = self._limits()
        if limits is not None and limits.high < self._split.stop:
            self._no_progress()

    def _no_progress(self) -> None:
        """Hold what is wanted against the log: what is gone is lost, all else is waited for."""
        error, self._loss = self._loss, None
        self._check()  # another topic is no loss of this one
        stop, apart = self._split.stop, min(APART_SECONDS, self._stall_seconds / 4)
        limits = believed(self._limits, self.position, stop, apart)
        if error is not None and is_truncation(error):
            self._truncations += 1
            self._quiet_since = None if self._truncations <= TIMES else self._quiet_since
        if limits is not None and self.position < limits.low:
            self._lose(min(limits.low, stop), limits)
        elif limits is not None and self._is_cut(limits):
            self._lose(stop, limits)
        elif limits is not None and error is not None and self._truncations >= TIMES:
            self._lose_cut(limits, f"; {_OTHERS} ({self._said(error)})")
        elif error is not None:
            time.sleep(apart)
            self._begin_again()

    def _is_cut(self, limits: LogLimits) -> bool:
        """Whether the rest is gone for good; who skips reads up to the log's end first."""
        return limits.high < self._split.stop and (
            self._skip is None or self.position >= limits.high
        )

    def lose_from(self, offset: int) -> None:
        """The message at this offset, just given, has a later leader epoch than any
        that was planned: it is another one than was planned.

        Raises:
            DataLossError: unless told to skip; then the read is over.
        """
        self._check()
        self.position = offset
        self._lose(self._split.stop, self._limits(), f"; {_OTHERS}")

    def _lose_cut(self, limits: LogLimits, why: str) -> None:
        """The log was cut off below the position, and has grown again: whoever skips
        reads what the plan saw of it, if it saw it.

        1 The window's start was frozen.  2 The log was cut off below it, and grew.  3
        The stop was frozen, in the new messages. All of them between start and stop are
        the window's own then, and the stop's witness says so.
        """
        planned_after = (
            self._split.stop_epoch is not None and self._witness() != self._split.stop_epoch
        )
        if self._skip is None or not planned_after:
            self._lose(self._split.stop, limits, why)
        else:
            self.regrown, self._truncations, self._quiet_since = True, 0, None
            self._begin_again()

    def _lose(self, upto: int, limits: LogLimits | None, why: str = "") -> None:
        if self._skip is None:
            there = "others" if limits is None else f"{limits.low} to {limits.high}"
            what = (
                f"offsets from {self.position} to {self._split.stop} are wanted, but the log holds"
                f" {there}{why}"
            )
            do = (
                "Retention or truncation removed these messages: run later windows, or set"
                " source.on_loss: skip to go on without them."
            )
            raise DataLossError(
                what, "read", do, self._split.topic, self._split.partition, self.position
            )
        self._skip(self.position, upto)
        self.skipped += upto - self.position
        self.position, self._quiet_since = upto, None
        if upto < self._split.stop:
            self._begin_again()

    def _stalled(self) -> None:
        """Nothing for the stall limit: say why, as far as that can be known."""
        if self._heard is not None and turned_away(self._heard):
            raise denied(self._split, self._said(self._heard))
        position = self.position
        self._no_progress()
        if self.position > position:
            return
        limits = self._limits()
        seen = (
            ""
            if limits is None
            else f"; the log ends at {limits.high}, and an open transaction may hold it back"
        )
        heard = (
            "" if self._heard is None else f"; the last that was heard: {self._said(self._heard)}"
        )
        what = (
            f"nothing came for {self._stall_seconds:g} s before offset {self._split.stop} was"
            f" reached{seen}{heard}"
        )
        raise unreachable(self._split, what, self.position)
