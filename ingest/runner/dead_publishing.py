"""Publishes dead letters of committed windows to a topic, each once.

Their store is the truth, and the topic a copy that is made after the window's commit,
in one transaction of Kafka's. The order is note, fence, look, write (with the look
before the fence, two runs would both write). A run may die at any step; the next run of
the window begins at the top:

    died                               the next run sees              and does
    before the store has noted it      nothing noted                  all of it
    before the transaction's commit    a beginning, no mark in Kafka  fences, and writes again
    behind it                          a beginning, and the mark      notes the end
    behind the second note             the end                        nothing, without the topic

Kafka keeps the mark, and forgets it after a while. So the store notes when a try began:
a try of which nothing was noted was never made, however old the window is. If a
beginning is older than Kafka's memory, and there is no mark, nobody can tell whether
the dead letters are in the topic, and a person decides.

The dead letters are those of the attempt that read the window's messages. A dead-letter
replay refuses nothing anew, so it publishes nothing: the dead letters that it leaves
were published, and those that it accepts stay in the topic, which takes nothing back. A
replacement reads again, and the messages that it refuses are published with its own
generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.dead_topic import DeadTopic

Doubt = Literal["refuse", "publish", "skip"]
"""The way to go on if nobody can tell whether dead letters are in the topic.

"refuse": ask a person. "publish": write them, perhaps a second time. "skip": take them
for published.
"""


_SURELY_REMEMBERED = timedelta(seconds=30)
"""The shortest time for which a cluster can be set to keep a group's offsets is a minute.

A try that is younger than half of that is never in doubt.
"""


class PublishedDeadLetters(msgspec.Struct, frozen=True):
    """The topic that a run has published a window's dead letters to, and their number."""

    topic: str
    letters: int


def publish_dead_letters(
    store: DeadLetters,
    topic: DeadTopic,
    receipt: Receipt,
    now: Callable[[], datetime],
    doubt: Doubt = "refuse",
) -> PublishedDeadLetters | None:
    """Publishes a committed window's dead letters to the topic, exactly once.

    None if there is nothing to do.

    Raises:
        RefusedError: the number of dead letters is not that of the receipt, the topic
            doesn't take one, or nobody can tell whether they are there.
        SpecError: the topic doesn't exist, or may not be written.
        UnreachableError: the store or the topic doesn't answer; run the window again.
    """
    if not is_unpublished(store, receipt):
        return None
    window, attempt, count = receipt.window, read_by(receipt), _count(store, receipt)
    begun = store.begin_publication(window, attempt, now())
    crash_point("dead_topic.begun")
    with topic.publishing(window, attempt) as publishing:
        done = (
            not is_unpublished(store, receipt)
            or publishing.is_published()
            or _is_skipped(topic, receipt, now() - begun, doubt)
        )
        if not done:
            publishing.write(dead_letters_of_attempt(store, window, attempt))
            crash_point("dead_topic.before")
            publishing.commit(count)
            crash_point("dead_topic.after")
    store.end_publication(window, attempt)
    return None if done else PublishedDeadLetters(topic.name, count)


def is_unpublished(store: DeadLetters, receipt: Receipt) -> bool:
    """Returns whether a committed window has dead letters that may not be in the topic.

    The store has noted of all others that they are.
    """
    if not (receipt.counts.dead or receipt.dead_replay):
        return False
    noted = store.publication(receipt.window, read_by(receipt))
    return noted is None or not noted.done


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
        mine = batch.filter(pc.equal(batch["attempt"].cast(pa.string()), attempt))
        if mine.num_rows:
            yield mine


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
        what = (
            f"The store of dead letters holds {count} of window {receipt.window.key}, and its"
            f" receipt counts {refused}"
        )
        raise RefusedError(
            what,
            "check",
            "Nothing was published. The window is committed; restore the store from a backup.",
        )
    return count


def _is_skipped(topic: DeadTopic, receipt: Receipt, age: timedelta, doubt: Doubt) -> bool:
    """Returns whether dead letters without a mark in Kafka are taken for published.

    Raises:
        RefusedError: the try is so old that Kafka may have forgotten it, and nobody has
            said how to go on.
    """
    if age < _SURELY_REMEMBERED or age < topic.remembers() / 2:  # half: clocks differ
        return False
    if doubt == "refuse":
        key, attempt = receipt.window.key, read_by(receipt)
        what = (
            f"A run died {age.days} days ago while it published the dead letters of window {key} to"
            f" {topic.name}, or the note of their publication was lost, and Kafka has forgotten"
            " whether they are there"
        )
        do = (
            f"Look for messages there whose header windrow.attempt is {attempt}; then windrow dead"
            f" publish SPEC --window {key} --doubt"
        )
        raise RefusedError(
            what,
            "commit",
            f"{do} skip if there are any, or --doubt publish if there are none. The window is"
            " committed.",
        )
    return doubt == "skip"
