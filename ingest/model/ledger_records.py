"""Records of the ledger about refused windows, paused pipelines, and messages that kill."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windrow.ingest.model.boundary import TopicPartition, instant
from windrow.ingest.model.plan import Window


class RefusedWindow(msgspec.Struct, frozen=True):
    """A record of the ledger: a window was refused for its data. The window's commit removes it.

    The refusal counts only as long as `plan`, `schema` and `code` are unchanged.

    Attributes:
        window: the window.
        plan: the digest of its plan; empty if none was frozen.
        schema: the digest of everything that decides which messages are refused
            (`runner.due.schema_digest`).
        code: windrow's version.
        refused_at: the time of the refusal.
    """

    window: Window
    plan: str
    schema: str
    code: str
    refused_at: datetime = msgspec.field(name="at")


class Pause(msgspec.Struct, frozen=True):
    """A record of the ledger: the pipeline is paused or resumed. The newest record counts.

    Attributes:
        number: the record's number, from 0 on.
        paused: True if it pauses the pipeline, False if it resumes it.
        who: the person who did it.
        reason: the person's reason; may be empty.
        recorded_at: the time of the record.
    """

    number: int
    paused: bool
    who: str
    reason: str = msgspec.field(name="why")
    recorded_at: datetime = msgspec.field(name="at")

    def __str__(self) -> str:
        """Returns words that follow a pipeline's name: `is paused by ann since ...: why`."""
        state = f"is paused by {self.who} since" if self.paused else f"was resumed by {self.who} at"
        return f"{state} {instant(self.recorded_at)}{f': {self.reason}' if self.reason else ''}"


class PoisonPill(msgspec.Struct, frozen=True):
    """A record of the ledger: a message kills the process that decodes it.

    Windows leave the message out. The newest record of a message counts.

    Attributes:
        topic: the topic's name.
        topic_id: the topic's id, because a topic that is made anew has other messages.
        partition: the partition of the message.
        offset: its offset.
        number: the record's number among those of the message, from 0 on.
        left_out: True if windows leave the message out, False if it is tried again.
        stage: the stage at which the process died, as for dead letters.
        reason: how the process died, such as `signal 11 (SIGSEGV)`.
        recorded_at: the time of the record.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    number: int
    left_out: bool
    stage: str
    reason: str
    recorded_at: datetime

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        """Returns the message's position and the reason: `orders[0]@7 (signal 9 (SIGKILL))`."""
        return f"{self.tp}@{self.offset} ({self.reason})"
