"""Publication of dead letters of committed windows to a topic, each at least once.

The store of dead letters is the original, and the topic is a copy, made after the window's
commit. When all dead letters of a window are in the topic, the store notes this. A dead
letter is published twice if a run dies before the note, or if two runs publish at once. Both
copies have the same headers `__connect.errors.topic`, `.partition` and `.offset`, and
`windrow.generation`.

The published dead letters are those of the attempt that read the window's messages. A
dead-letter replay publishes nothing: it refuses no further messages, and a topic can't
remove the messages that it accepts. A replacement reads the window again, so its dead letters
are published with its own generation.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.dead_topic import DeadTopic


class PublishedDeadLetters(msgspec.Struct, frozen=True):
    """The topic to which a run published a window's dead letters, and their number."""

    topic: str
    dead_letters: int


def publish_dead_letters(
    store: DeadLetters, topic: DeadTopic, receipt: Receipt
) -> PublishedDeadLetters | None:
    """Publishes a committed window's dead letters to the topic.

    Returns None if there is nothing to publish.

    Raises:
        RefusedError: the number of dead letters isn't the receipt's, or the topic refuses a
            message.
        SpecError: the topic doesn't exist, or may not be written.
        UnreachableError: the store or the topic doesn't answer; run the window again.
    """
    if not is_unpublished(store, receipt):
        return None
    window, attempt, count = receipt.window, read_by(receipt), _count(store, receipt)
    crash_point("dead_topic.before")
    topic.publish(window, dead_letters_of_attempt(store, window, attempt))
    crash_point("dead_topic.after")
    store.note_published(window, attempt)
    return PublishedDeadLetters(topic.name, count)


def is_unpublished(store: DeadLetters, receipt: Receipt) -> bool:
    """Returns whether a committed window has dead letters that may not be in the topic.

    If they surely are in the topic, or are expired, the store has noted it.
    """
    return (
        bool(receipt.counts.dead or receipt.dead_replay)
        and not store.is_published(receipt.window, read_by(receipt))
        and not store.is_expired(receipt.window, receipt.attempt)
    )


def read_by(receipt: Receipt) -> str:
    """Returns the id of the attempt that read the window's messages.

    A dead-letter replay reads no messages, so its receipt names that attempt.
    """
    return receipt.attempt if receipt.dead_replay is None else receipt.dead_replay.read_by


def dead_letters_of_attempt(
    store: DeadLetters, window: Window, attempt: str
) -> Iterator[pa.RecordBatch]:
    """Yields an attempt's dead letters of a window, in the order of their files.

    The batches have a limited size.

    Raises (while it yields):
        UnreachableError, RefusedError: see `ports.dead_letters.DeadLetters.contents`.
    """
    for batch in store.contents(window):
        attempt_letters = batch.filter(pc.equal(batch["attempt"].cast(pa.string()), attempt))
        if attempt_letters.num_rows:
            yield attempt_letters


def _count(store: DeadLetters, receipt: Receipt) -> int:
    """Counts the dead letters to publish.

    Raises:
        RefusedError: the receipt has another number.
    """
    count = store.count(receipt.window, read_by(receipt))
    refused = receipt.counts.dead + (
        0 if receipt.dead_replay is None else receipt.dead_replay.messages
    )
    if count != refused:
        raise RefusedError(
            f"The store of dead letters holds {count} of window {receipt.window.key}, and its"
            f" receipt counts {refused}",
            "check",
            "Nothing was published. The window is committed; restore the store from a backup.",
        )
    return count
