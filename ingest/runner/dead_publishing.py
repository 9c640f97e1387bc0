"""Publishes dead letters of committed windows to a topic, each at least once.

Their store is the truth, and the topic a copy that is made after the window's commit.
When all of a window's dead letters are in the topic, the store notes it. A run that dies
between the two leaves the note out, so the next run of the window publishes all of them
again, as two runs at once may do. `__connect.errors.topic`, `.partition` and `.offset` with
`windrow.generation` are the same in both copies of a letter.

The dead letters are those of the attempt that read the window's messages. A dead-letter
replay refuses nothing anew, so it publishes nothing: the dead letters that it leaves
were published, and those that it accepts stay in the topic, which takes nothing back. A
replacement reads again, and the messages that it refuses are published with its own
generation.
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
    """The topic that a run has published a window's dead letters to, and their number."""

    topic: str
    dead_letters: int


def publish_dead_letters(
    store: DeadLetters, topic: DeadTopic, receipt: Receipt
) -> PublishedDeadLetters | None:
    """Publishes a committed window's dead letters to the topic.

    None if there is nothing to do.

    Raises:
        RefusedError: the number of dead letters is not that of the receipt, or the topic
            doesn't take one.
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

    The store has noted of all others that they are.
    """
    return bool(receipt.counts.dead or receipt.dead_replay) and not store.is_published(
        receipt.window, read_by(receipt)
    )


def read_by(receipt: Receipt) -> str:
    """Returns the attempt that read the window's messages.

    A dead-letter replay reads none.
    """
    return receipt.attempt if receipt.dead_replay is None else receipt.dead_replay.read_by


def dead_letters_of_attempt(
    store: DeadLetters, window: Window, attempt: str
) -> Iterator[pa.RecordBatch]:
    """Yields an attempt's dead letters of a window, in the order of their files.

    The batches have a bounded size.

    Raises (when read on):
        UnreachableError, RefusedError: as `ports.dead_letters.DeadLetters.contents`.
    """
    for batch in store.contents(window):
        attempt_letters = batch.filter(pc.equal(batch["attempt"].cast(pa.string()), attempt))
        if attempt_letters.num_rows:
            yield attempt_letters


def _count(store: DeadLetters, receipt: Receipt) -> int:
    """Counts the dead letters to publish.

    Raises:
        RefusedError: they are not as many as the receipt says.
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
