"""Dead letters of committed windows, published to a topic, each once.

Their store is the truth, and the topic a copy that is made after the window's commit,
in one transaction of Kafka's. The order is note, fence, look, write (look before the
fence, and two runs both write); whatever dies, the next run of the window begins at the
top:

    died                               the next run finds              and does
    before the store has noted it      nothing noted                   all of it
    before the transaction's commit    a beginning, no mark in topic   fences, and writes again
    behind it                          a beginning, and the mark       notes the end
    behind the second note             the end                         nothing, without the topic

The mark is kept by Kafka, which forgets it after a while. So the store notes when a try
began: a try of which nothing was noted was never made, however old the window is. Where
a beginning is older than what Kafka remembers, and there is no mark, nobody can tell,
and a person decides.

Published is the attempt that read the window's messages. A dead-letter replay refuses
nothing anew, so it publishes nothing: what it leaves dead was published, and what it accepts
stays in the topic, which takes nothing back. A replacement reads again, and what it
refuses is published with its own generation.
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
"""What to do where it can't be told whether letters are in the topic: ask a person,
write them, perhaps again, or take them for there.
"""


_REMEMBERED = timedelta(seconds=30)
"""No cluster can be told to forget a group's offsets in less than a minute."""


class PublishedDeadLetters(msgspec.Struct, frozen=True):
    """How many dead letters of a window a run has published to which topic."""

    topic: str
    letters: int


def publish_dead_letters(
    store: DeadLetters,
    topic: DeadTopic,
    receipt: Receipt,
    now: Callable[[], datetime],
    doubt: Doubt = "refuse",
) -> PublishedDeadLetters | None:
    """Have a committed window's dead letters in the topic, exactly once; None if there is nothing to do.

    Raises:
        RefusedError: the letters are not those of the receipt, the topic doesn't take
            one, or it can't be told whether they are there.
        SpecError: the topic isn't there, or may not be written.
        UnreachableError: store or topic; run the window again.
    """  # noqa: E501
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
    """Whether a committed window has dead letters of which it isn't noted that they are
    in the topic.
    """
    if not (receipt.counts.dead or receipt.dead_replay):
        return False
    noted = store.publication(receipt.window, read_by(receipt))
    return noted is None or not noted.done


def read_by(receipt: Receipt) -> str:
    """The attempt that read the window's messages: a dead-letter replay reads none."""
    return receipt.attempt if receipt.dead_replay is None else receipt.dead_replay.read_by


def dead_letters_of_attempt(
    store: DeadLetters, window: Window, attempt: str
) -> Iterator[pa.RecordBatch]:
    """An attempt's dead letters of a window, in batches of bounded size, as they lie in their files.

    Raises (when read on):
        UnreachableError, RefusedError: as `ports.dead_letters.DeadLetters.contents`.
    """  # noqa: E501
    for batch in store.contents(window):
        mine = batch.filter(pc.equal(batch["attempt"].cast(pa.string()), attempt))
        if mine.num_rows:
            yield mine


def _count(store: DeadLetters, receipt: Receipt) -> int:
    """How many letters there are to publish, which must be as many as were refused."""
    count = store.count(receipt.window, read_by(receipt))
    refused = receipt.counts.dead + (
        0 if receipt.dead_replay is None else receipt.dead_replay.messages
    )
    if count != refused:
        what = (
            f"The store of dead letters holds {count} of window {receipt.window.key}, its receipt"
            f" counts {refused}"
        )
        raise RefusedError(
            what,
            "check",
            "Nothing was published. The window is committed; restore the store from a backup.",
        )
    return count


def _is_skipped(topic: DeadTopic, receipt: Receipt, age: timedelta, doubt: Doubt) -> bool:
    """Of letters without a mark in the topic, a try at which began so long ago: whether
    they are taken for published all the same.
    """
    if age < _REMEMBERED or age < topic.remembers() / 2:  # half of it, for clocks differ
        return False
    if doubt == "refuse":
        key, attempt = receipt.window.key, read_by(receipt)
        what = (
            f"A run died {age.days} days ago while it published the dead letters of window {key} to"
            f" {topic.name}, and Kafka doesn't know"
        )
        what += " any more whether they are there"
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
