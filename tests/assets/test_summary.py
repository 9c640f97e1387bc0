"""The summary of a window's event: sentences and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import dagster as dg
import msgspec

from tests.assets.world import TOPIC, World, hour
from windrow.assets.dagster_internals import LONGEST_TEXT
from windrow.assets.summary import COLOURS, bars_of, picture, summary
from windrow.ingest.admin.lag import Lag
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Committed, Counts, SplitCounts
from windrow.ingest.runner.context import Result
from windrow.ingest.source.enumerator.completeness import WindowState

SVG = "{http://www.w3.org/2000/svg}"


def sentences_of(world: World, n: int) -> str:
    """Returns the sentences of a window's summary, without the picture."""
    text = str(world.metadata(n)["summary"].value)
    return text.partition("\n\n![")[0]


def drawn(address: str) -> dict[str, int]:
    """Returns the number of lines of each colour in a picture."""
    scheme, _, data = address.partition(",")
    assert scheme == "data:image/svg+xml"
    root = ET.fromstring(unquote(data))
    names = {colour: name for name, colour in COLOURS.items()}
    return {
        names[str(path.get("stroke"))]: str(path.get("d")).count("M")
        for path in root.iter(f"{SVG}path")
    }


def test_what_happened_is_said_first(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The summary has rows, messages, dead letters, losses, late messages, completeness and lag.

    Numbers of messages are in the picture, too.
    """
    source = {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC, "on_loss": "skip"}
    world = World(tmp_path, instance, source=source)
    world.fill(2)
    world.send(1, 30, b"poison")
    world.send(0, 30, b'{"id": 1}')
    world.fill(1, first=2)
    world.broker.delete_records(TopicPartition(TOPIC, 1), 10)
    assert world.run(0, 1).success
    assert sentences_of(world, 0) == (
        "In the table: **50 rows** of 50 messages. **Messages may be lost**, see `partial`."
        " Complete: its hours are over in every topic-partition."
    )
    assert re.fullmatch(
        r"In the table: \*\*61 rows\*\* of 62 messages\. \*\*1 dead letter\*\* \(most: `.+`\);"
        r" 1 message of earlier windows, late\. Complete: its hours are over in every"
        r" topic-partition\. Behind it, unread then: 60 offsets, the oldest 4 d 2 h old\.",
        sentences_of(world, 1),
    )
    image = re.search(r"\(<(data:[^<>]+)>\)", str(world.metadata(1)["summary"].value))
    assert image is not None
    assert drawn(image[1]) == {"committed": 2, "late": 1, "dead": 1}
    assert world.run(0).success
    assert sentences_of(world, 0).startswith(
        "In the table: **50 rows** of 50 messages, by an earlier"
    )
    assert "Late: its hours are over, and 1 message of its hours came" in sentences_of(world, 0)


def test_fields_that_no_column_is_for_are_told(world: World) -> None:
    """The summary counts messages with unknown fields, and names the most frequent field."""
    world.fill(1)
    for value in (b'{"id": 1, "issue": {}}', b'{"id": 2, "issue": {}, "more": 1}'):
        world.send(0, 30, value)
    world.fill(1, first=1)
    assert world.run(0).success
    assert (
        "lost. **2 messages** with fields that no column is for (most: `issue`)."
        in sentences_of(world, 0)
    )
    assert world.metadata(0)["ignored"].value == 2


def test_no_part_of_a_bar_is_negative() -> None:
    """No part of a bar is negative, although a late message may be a dead letter."""
    nothing = SplitCounts.of_nothing(Split("t", 0, 0, 10))
    split = msgspec.structs.replace(nothing, valid=2, dead=5, skipped=1, late=4)
    receipt: Any = SimpleNamespace(splits=(split,))
    assert bars_of(receipt, 1) == [("0", {"committed": 0, "late": 2, "dead": 5, "lost": 1})]


def test_a_window_without_messages_has_no_picture(world: World) -> None:
    """A window without messages has no picture."""
    world.fill(1)
    world.fill(1, first=2)
    assert world.run(1).success
    assert world.metadata(1)["summary"].value == (
        "In the table: **0 rows** of 0 messages. No message was late, refused or lost."
        " Complete: its hours are over in every topic-partition. Behind it, unread then:"
        " 60 offsets, the oldest 4 d 2 h old."
    )


def test_a_summary_is_shown_where_it_stands(world: World) -> None:
    """The summary is short enough for Dagster to show it, even with a thousand topic-partitions.

    Only topic-partitions with problems are drawn then. One dead letter among millions is
    visible.
    """
    world.fill(1)
    assert world.run(0).success
    stored_receipt = world.receipt_of(0)
    [first_split, *_] = stored_receipt.splits
    splits = [
        msgspec.structs.replace(
            first_split,
            topic="t" * 249,
            partition=n,
            valid=10**9 + n,
            dead=n % 2,
            late=n,
            skipped=10**6,
        )
        for n in range(1000)
    ]
    receipt = msgspec.structs.replace(stored_receipt, splits=tuple(splits))
    bars = bars_of(receipt, 4)
    assert ([label for label, _ in bars][-1], {parts["dead"] for _, parts in bars}) == ("999", {1})
    assert drawn(picture(bars)) == dict.fromkeys(COLOURS, 4)
    other_topic_split = msgspec.structs.replace(splits[-1], topic="u" * 249)
    receipt = msgspec.structs.replace(receipt, splits=(*splits, other_topic_split))
    assert bars_of(receipt, 1)[-1][0] == f"{'u' * 20}[999]"
    text = summary(Result(Committed(receipt, 1), recovered=False), Lag(0, 0.0, 0, 0, ()), None)
    assert text.count("%3C/text") > 3
    assert len(text) <= LONGEST_TEXT == 999
    four = [
        msgspec.structs.replace(
            first_split,
            partition=n,
            valid=600,
            dead=n % 2,
            late=5 + n,
            skipped=0 if n else 200,
            ignored=6,
            ignored_fields=(("coupon", 6),),
            reasons=(("wrong_type", n % 2),),
        )
        for n in range(4)
    ]
    receipt = msgspec.structs.replace(stored_receipt, splits=tuple(four), counts=Counts.total(four))
    state = WindowState("complete", None, 0, 0, 0)
    text = summary(Result(Committed(receipt, 1), recovered=False), None, state)
    assert drawn(text.partition("(<")[2].rstrip(">)"))["committed"] == 4, "with all to tell"
    small = summary(Result(Committed(stored_receipt, 1), recovered=False), None, None)
    assert drawn(small.partition("(<")[2].rstrip(">)")) == {"committed": 2}


def test_a_red_window_says_why_and_what_to_do(world: World) -> None:
    """A failed window has an event with the reason and advice.

    Only a window that was refused for its data is shown as refused, which the schedule leaves
    out.
    """
    world.fill(2)
    world.now = hour(1)
    assert not world.run(1).success
    [record] = world.instance.fetch_observations(dg.AssetKey(["things"]), limit=9).records
    event = record.asset_observation
    assert event is not None
    assert (event.partition, "refused" in event.metadata) == (world.key(1), False)
    assert event.description == "Failed"
    assert (
        event.metadata["failed"].value == "Window 2026-01-05T01:00:00Z of things is not closed yet"
    )
    assert event.metadata["do"].value == "Run it at 2026-01-05T02:05:00Z or later."
