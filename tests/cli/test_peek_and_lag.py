"""`windrow peek` and `windrow lag`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import HOURLY, START, TOPIC, Stage, hour
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.schema.messages import MESSAGES

TP0, TP1 = TopicPartition("shop.things", 0), TopicPartition("shop.things", 1)


def places(document: Any) -> list[tuple[int, int]]:
    """Returns partition and offset of the shown messages."""
    return [(m["partition"], m["offset"]) for m in document["messages"]]


# --------------------------------------------------------------------------------------------------


def test_peek(stage: Stage) -> None:
    """`peek` shows all messages in order, with keys and values.

    It makes neither table nor ledger, and doesn't read the schema.
    """
    (stage.folder / "schema.py").write_text("this is no Python")
    shown = stage.json("peek", stage.spec)
    assert places(shown) == [(0, o) for o in range(7)] + [(1, o) for o in range(5)]
    assert shown["messages"][0] == {
        "topic": "shop.things",
        "partition": 0,
        "offset": 0,
        "timestamp": "2026-01-05T00:00:00.000Z",
        "timestamp_type": "CreateTime",
        "key": "secret-key",
        "value": '{"id": 0}',
        "headers": [],
        "leader_epoch": 0,
    }
    assert shown["left_out"] is False
    assert sorted(p.name for p in stage.folder.iterdir()) == ["schema.py", "things.yaml"]


@pytest.mark.parametrize(
    ("start", "stop", "first", "last"),
    [
        ("earliest", "latest", (0, 0), (1, 4)),
        ("latest", "latest", None, None),
        (f"timestamp:{hour(3)}", "latest", (0, 6), (1, 4)),
        ("earliest", f"timestamp:{int(START.timestamp() * 1000) + 3_600_000}", (0, 0), (1, 1)),
        ("committed:readers", "latest", (0, 5), (1, 4)),
        ("committed:nobody?latest", "latest", None, None),
        (
            "partition:0,offset:2;partition:1,offset:1",
            "partition:0,offset:4?latest",
            (0, 2),
            (1, 4),
        ),
    ],
)
def test_positions(
    stage: Stage, start: str, stop: str, first: tuple[int, int] | None, last: tuple[int, int] | None
) -> None:
    """Each form of a position works for --start and --stop."""
    stage.broker.commit_group("readers", {TP0: 5, TP1: 4})
    read_places = places(stage.json("peek", stage.spec, "--start", start, "--stop", stop))
    assert (read_places[:1], read_places[-1:]) == ([first] if first else [], [last] if last else [])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--start", "yesterday"], 2, "is not a position"),
        (["--start", hour(1)], 2, f"Is timestamp:{hour(1)} meant?"),
        (["--stop", "1767322800000"], 2, "Is timestamp:1767322800000 meant?"),
        (
            ["--start", "group-offsets"],
            2,
            "latest, timestamp:INSTANT, committed:GROUP",
        ),
        (["--start", "timestamp:2126-01-01T00:00:00Z?fail"], 2, "No message is stamped"),
        (["--start", "committed:nobody"], 2, "has committed nothing"),
        (["--start", "partition:0,offset:3"], 2, "No offset is given for shop.things[1]"),
        (["--start", "partition:0,offset:3"], 2, "Write ?earliest or ?latest behind a position"),
        (["--start", "partition:0,offset:999?latest"], 2, "999"),
        (["--start", "partition:0,offset:1?latest"], 1, "Retention has removed"),
        (["--topic", "shop.gifts"], 2, "not among those that the pipeline reads: shop.things"),
        (["--out", "messages.csv"], 2, "neither a .parquet nor a .jsonl file"),
        (["--out", "nosuch/messages.jsonl"], 2, "There is no folder nosuch"),
    ],
)
def test_mistakes(stage: Stage, arguments: list[str], code: int, says: str) -> None:
    """A mistake is explained in one paragraph, and no file is written."""
    stage.broker.delete_records(TP0, 2)
    error = stage.json("peek", stage.spec, *arguments, code=code)["error"]
    assert says in error["message"]
    assert sorted(p.name for p in stage.folder.iterdir()) == ["schema.py", "things.yaml"]


def test_limit(stage: Stage) -> None:
    """Twenty messages are shown by default, and the output says if there are more.

    A file gets all messages.
    """
    stage.produce(5, *[b"{}"] * 20)
    shown = stage.json("peek", stage.spec)
    assert (len(shown["messages"]), shown["left_out"]) == (20, True)
    assert "There are more, which are not shown" in stage.call("peek", stage.spec).stdout
    assert len(stage.json("peek", stage.spec, "--limit", "3")["messages"]) == 3
    exact = stage.json("peek", stage.spec, "--limit", "32")
    assert (len(exact["messages"]), exact["left_out"]) == (32, False)
    assert stage.json("peek", stage.spec, "--out", "all.jsonl")["messages"] == 32
    assert stage.json("peek", stage.spec, "--out", "few.jsonl", "--limit", "3")["messages"] == 3
    assert len((stage.folder / "few.jsonl").read_text().splitlines()) == 3


def test_files(stage: Stage) -> None:
    """A Parquet file has the reader's columns; a line of JSON equals an entry of --json."""
    assert stage.json("peek", stage.spec, "--out", "m.parquet") == {
        "pipeline": "things",
        "file": "m.parquet",
        "messages": 12,
    }
    table = pq.read_table(stage.folder / "m.parquet")
    assert (table.schema.names, table.num_rows) == (MESSAGES.names, 12)
    assert (
        stage.call("peek", stage.spec, "--out", "m.jsonl").stdout == "m.jsonl holds 12 messages.\n"
    )
    lines = [json.loads(line) for line in (stage.folder / "m.jsonl").read_text().splitlines()]
    assert lines == stage.json("peek", stage.spec)["messages"]


def test_peek_for_people(stage: Stage) -> None:
    """Without --json, messages are printed as a table with escaped characters, or as a sentence."""
    stage.broker.produce(TP1, b"\x1b[31mred[bold]\xff", timestamp=START, headers=(("h", b"\x07"),))
    output = stage.call("peek", stage.spec, "--start", "partition:1,offset:5?latest").stdout
    assert r"\x1b[31mred[bold]\xff" in output
    assert "\x1b[31m" not in output
    assert "\x07" not in output
    assert (
        "no messages between these positions"
        in stage.call("peek", stage.spec, "--start", "latest").stdout
    )


def test_isolation(stage: Stage) -> None:
    """The messages of an open transaction are shown only with read_uncommitted."""
    opened = stage.broker.transaction()
    stage.broker.produce(TP0, b"undecided", timestamp=START, transaction=opened)
    assert len(stage.json("peek", stage.spec)["messages"]) == 12
    assert len(stage.json("peek", stage.spec, "--isolation", "read_uncommitted")["messages"]) == 13


@pytest.mark.parametrize(
    "source",
    [
        "topic: [shop.gifts, shop.things]",
        "topic_pattern: 'shop[.].*'",
        "partitions: {shop.gifts: [0], shop.things: [1]}",
    ],
)
def test_one_topic_of_several(stage: Stage, source: str) -> None:
    """`--topic` chooses one of the spec's topics, and then offsets by partition can be given."""
    stage.write(source)
    stage.broker.create_topic("shop.gifts")
    stage.broker.produce(TopicPartition("shop.gifts", 0), b"gift", timestamp=START)
    assert {m["topic"] for m in stage.json("peek", stage.spec)["messages"]} == {
        "shop.gifts",
        "shop.things",
    }
    assert places(stage.json("peek", stage.spec, "--topic", "shop.gifts")) == [(0, 0)]
    start = ["--start", "partition:1,offset:3?latest"]
    assert places(stage.json("peek", stage.spec, "--topic", "shop.things", *start)) == [
        (1, 3),
        (1, 4),
    ]
    assert "exactly one topic" in stage.json("peek", stage.spec, *start, code=2)["error"]["message"]
    stage.json("peek", stage.spec, "--topic", "shop.coats", code=2)


def test_help_explains_positions(stage: Stage) -> None:
    """The help explains every form of a position."""
    output = " ".join(stage.call("peek", "--help").stdout.split())
    for form in (
        "earliest",
        "latest",
        "timestamp:2026-01-02T03:00:00Z",
        "committed:GROUP",
        "partition:0,offset:42;",
        "?earliest",
    ):
        assert form in output


# --------------------------------------------------------------------------------------------------


def test_lag(stage: Stage) -> None:
    """`lag` shows records and seconds for each topic-partition and in total.

    It counts from the newest committed window, or from the source's start.
    """
    fresh = stage.json("lag", stage.spec)
    assert (fresh["window"], fresh["lag"]["records"], fresh["group_offsets"]) == (None, 12, None)
    assert "Nothing is committed yet." in stage.call("lag", stage.spec).stdout
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.now = START + timedelta(hours=5)
    lag_document = stage.json("lag", stage.spec)
    assert lag_document["window"] == hour(1)
    assert (
        lag_document["lag"]["records"],
        lag_document["lag"]["behind"],
        lag_document["lag"]["seconds"],
    ) == (
        2,
        2,
        7200,
    )
    assert [
        (p["partition"], p["start"], p["end"], p["records"])
        for p in lag_document["lag"]["partitions"]
    ] == [(0, 6, 7, 1), (1, 4, 5, 1)]
    output = stage.call("lag", stage.spec).stdout
    assert "7,200" in output
    assert f"Committed up to the end of window {hour(1)}." in output
    assert "lost" not in output


def test_lag_tells_what_is_lost(stage: Stage) -> None:
    """Unread offsets that are lost have their own column."""
    stage.json("run", stage.spec, "--window", hour(0))
    stage.broker.delete_records(TP0, 5)
    assert stage.json("lag", stage.spec)["lag"]["lost"] == 2
    assert "lost" in stage.call("lag", stage.spec).stdout


def test_windows_that_were_left_out_are_seen(stage: Stage) -> None:
    """Windows without a commit between committed ones are named by `lag`, `show` and `doctor`.

    The command that they advise commits them.
    """

    def told() -> list[list[dict[str, object]]]:
        return [stage.json(verb, stage.spec)["uncommitted"] for verb in ("lag", "show")]

    def level() -> object:
        checks = stage.json("doctor", stage.spec)["checks"]
        return next(check["level"] for check in checks if check["name"] == "windows")

    for n in (0, 3):
        stage.json("run", stage.spec, "--window", hour(n))
    gap = f"{hour(1)}/{hour(3)}"
    assert told() == [[{"start": hour(1), "end": hour(3), "windows": 2, "offsets": 5}]] * 2
    advice = f"windrow run {stage.spec} --window {gap} commits them, or says why not"
    lag, show = (stage.call(verb, stage.spec).stdout for verb in ("lag", "show"))
    assert f"2 windows not committed, though later ones are: {gap}." in lag.replace("\n", " ")
    assert "They have 5 offsets, which are not counted above." in lag.replace("\n", " ")
    assert all(advice in text.replace("\n", " ") for text in (lag, show))
    assert level() == "warn"
    assert advice in stage.call("doctor", stage.spec).stdout.replace("\n", " ")
    stage.json("run", stage.spec, "--window", gap)
    assert told() == [[], []]
    assert level() == "ok"


def test_windows_before_the_first_one_that_was_run_are_seen(stage: Stage) -> None:
    """Windows without a commit before the first committed one are named, too.

    Moving window.start, as advised, ends that.
    """

    def told() -> list[object]:
        checks = stage.json("doctor", stage.spec)["checks"]
        levels = [check["level"] for check in checks if check["name"] == "windows"]
        return [stage.json(verb, stage.spec)["uncommitted"] for verb in ("lag", "show")] + levels

    for n in (2, 3):
        stage.json("run", stage.spec, "--window", hour(n))
    gaps = [{"start": hour(0), "end": hour(2), "windows": 2, "offsets": None}]
    assert told() == [gaps, gaps, "warn"]
    for verb, end in (
        ("lag", "Their offsets are not counted above."),
        ("show", ""),
        ("doctor", ""),
    ):
        output = " ".join(stage.call(verb, stage.spec).stdout.split())
        assert f"2 windows not committed, though later ones are: {hour(0)}/{hour(2)}." in output
        assert "If the first ones aren't wanted, move window.start" in output
        assert end in output
    for few in (("--limit", "1"), ("--window", hour(3))):
        assert stage.json("show", stage.spec, *few)["uncommitted"] == []
    stage.write(window=HOURLY.replace("T00", "T02"))
    assert told() == [[], [], "ok"]


def test_lag_of_batches(stage: Stage) -> None:
    """`lag` shows the newest micro-batch by its name."""
    stage.write(window="grid: batch, max_records: 5")
    stage.json("run", stage.spec)
    lag_document = stage.json("lag", stage.spec)
    assert (lag_document["window"], lag_document["lag"]["records"]) == ("batch-000000000", 7)


def test_a_group_gets_the_offsets(stage: Stage) -> None:
    """`--alter-offsets` publishes the end of the newest window to the consumer group.

    A refusal has its reason and exit code 3.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    stage.write(f"{TOPIC}, offsets_group: lag-tools")
    assert stage.json("lag", stage.spec)["group_offsets"] is None
    assert stage.broker.committed_offsets("lag-tools", [TP0]) == {TP0: None}
    group_offsets = stage.json("lag", stage.spec, "--alter-offsets")["group_offsets"]
    assert group_offsets == {"group": "lag-tools", "succeeded": 2, "failed": 0, "why": []}
    assert stage.broker.committed_offsets("lag-tools", [TP0, TP1]) == {TP0: 3, TP1: 2}
    assert (
        "Group lag-tools has the offsets of 2 topic-partitions."
        in stage.call("lag", stage.spec, "--alter-offsets").stdout
    )
    stage.broker.refuse_offsets("lag-tools", "consumers are at work in it")
    assert stage.json("lag", stage.spec, "--alter-offsets", code=3)["group_offsets"]["failed"] == 2
    refused = stage.call("lag", stage.spec, "--alter-offsets")
    assert refused.exit_code == 3
    assert "and not those of 2:" in refused.stdout
    assert "consumers are at work in it (shop.things[0] and 1 more)" in refused.stdout


def test_no_offsets_for_a_group(stage: Stage) -> None:
    """Without a group, `--alter-offsets` is refused; before the first window it only says so."""
    assert (
        "source.offsets_group"
        in stage.json("lag", stage.spec, "--alter-offsets", code=2)["error"]["message"]
    )
    stage.write(f"{TOPIC}, offsets_group: lag-tools")
    assert stage.json("lag", stage.spec, "--alter-offsets")["group_offsets"] is None
    output = stage.call("lag", stage.spec, "--alter-offsets").stdout
    assert "So no offsets were committed to the group." in output
