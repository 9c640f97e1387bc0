"""Damages of a table in Kafka topics, and the advice that windrow gives."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.advice.world import COMMITTED, Advice, Step, World, retry_step, rewrites
from tests.cli.conftest import HOURLY, START, Stage, hour
from tests.kafka.produce import (
    Put,
    add_partitions,
    configure,
    create_topic,
    delete_records,
    delete_topic,
    high_watermark,
    produce,
)
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.sinks.kafka import store, transactions
from windrow.ingest.sinks.kafka.stage import StagedMessageFiles
from windrow.ingest.sinks.kit.files.staged_files import HasSize


@dataclass
class KafkaWorld(World):
    """A pipeline on Kafka topics.

    Attributes:
        servers: the broker's address.
        topic: the target topic.
    """

    servers: str = field(init=False)
    topic: str = field(init=False)

    @property
    def control(self) -> str:
        """The name of the control topic."""
        return f"{self.topic}.windrow"

    def sets(self, name: str, value: str, topic: str = "") -> None:
        """Changes a setting of the target topic, or of another one."""
        configure(self.servers, topic or self.topic, name, value)


def world(stage: Stage, request: pytest.FixtureRequest) -> KafkaWorld:
    """Returns a pipeline with its topics on a real broker."""
    servers: str = request.getfixturevalue("kafka")
    topic = create_topic(servers, 2)
    sink = f"kind: kafka, bootstrap_servers: '{servers}', topic: {topic}, staging: lake/staging"
    stage.sink(f"{{{sink}, key: {{columns: [id]}}}}")
    stage.json("run", stage.spec, "--window", hour(0))
    shutil.copy(LEDGER, OLDER)
    new_world: KafkaWorld = KafkaWorld.on(stage, "")  # the spec has its sink already
    new_world.servers, new_world.topic = servers, topic
    return new_world


def control_lost(world: KafkaWorld) -> None:
    """Deletes the control topic."""
    delete_topic(world.servers, world.control)


def older_ledger(world: KafkaWorld) -> None:
    """Deletes the control topic, and restores the ledger from before the newest window."""
    shutil.copy(LEDGER, NEWER)
    shutil.copy(OLDER, LEDGER)
    control_lost(world)


def newer_ledger(world: KafkaWorld, _: re.Match[str]) -> None:
    """Sets the spec's ledger to a copy that has all windows."""
    spec = Path(world.stage.spec)
    spec.write_text(f"{spec.read_text()}\nstate: {NEWER}\n")


def lost_ledger(world: KafkaWorld) -> None:
    """Deletes the control topic, and moves the ledger away."""
    Path(LEDGER).rename(NEWER)
    control_lost(world)


def new_pipeline(world: KafkaWorld, _: re.Match[str]) -> None:
    """Runs a pipeline with another id, topic, control topic and staging."""
    topic = create_topic(world.servers, 2)
    rewrites(world, ("id: things", "id: others"), (world.topic, topic), ("/staging", "/others"))
    world.topic = topic
    assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output


def other_control(world: KafkaWorld, _: re.Match[str]) -> None:
    """Sets the spec's control topic to one that doesn't exist yet."""
    topic = f"topic: {world.topic},"
    rewrites(world, (topic, f"{topic} control_topic: {world.topic}.receipts,"))


def rows_deleted(world: KafkaWorld) -> None:
    """Deletes the control topic and all records of the target topic."""
    control_lost(world)
    for partition in range(2):
        end = high_watermark(world.servers, world.topic, partition)
        delete_records(world.servers, world.topic, partition, end)


def published_without_receipt(world: KafkaWorld) -> None:
    """Publishes a window without a receipt, restores an older ledger, and adds messages.

    A crash ends the run after it has published the window.
    """
    with pytest.MonkeyPatch.context() as crash:
        crash.setenv("WINDROW_CRASH", "split.after:raise")
        with pytest.raises(CrashError):
            world.types(RUN)
    shutil.copy(OLDER, LEDGER)
    world.stage.produce(3, b'{"id": 20}', b'{"id": 21}')


def grows(world: KafkaWorld) -> None:
    """Writes nine more messages to the topic that the pipeline reads."""
    for n in range(9):
        partition = TopicPartition("shop.things", int(n % 3 > 0))
        world.stage.broker.produce(partition, b'{"id": %d}' % n, timestamp=START)


def half_batch(world: KafkaWorld) -> None:
    """Publishes one topic-partition of a micro-batch, and then makes the run die.

    Then an older ledger is restored, which has another end for the batch.
    """
    topic = create_topic(world.servers, 2)
    ids = ("id: things", "id: others"), (world.topic, topic), ("/staging", "/others")
    rewrites(world, *ids, (HOURLY, "grid: batch"))
    world.topic, world.next = topic, "--drain"
    assert world.types("windrow run SPEC") == 0, world.output
    shutil.copy(LEDGER, OLDER)
    grows(world)
    writing, opened = store.FencedStore.writing, list[str]()

    def dies_at_the_second(part: store.FencedStore) -> object:
        opened.append(part.name)
        assert len(opened) == 1, "dies"
        return writing(part)

    with pytest.MonkeyPatch.context() as crash:
        crash.setattr(transactions, "SMALL", 4)
        crash.setattr(store, "PARALLEL", 1)
        crash.setattr(store.FencedStore, "writing", dies_at_the_second)
        assert world.types("windrow run SPEC") == 70, world.output
    shutil.copy(OLDER, LEDGER)
    grows(world)


def another_place(world: KafkaWorld, _: re.Match[str]) -> None:
    """Sets the spec's ledger to one that doesn't exist yet."""
    spec = Path(world.stage.spec)
    spec.write_text(f"{spec.read_text()}\nstate: anew.db\n")


def owner_overwritten(world: KafkaWorld) -> None:
    """Writes to the control topic, like another program does."""
    produce(world.servers, world.control, [Put(b"{}", key=b'["owner"]')])


def records_deleted(world: KafkaWorld) -> None:
    """Deletes all records of the control topic, with another cleanup.policy."""
    world.sets("cleanup.policy", "delete", world.control)
    end = high_watermark(world.servers, world.control)
    delete_records(world.servers, world.control, 0, end)


def staged_files_removed(world: KafkaWorld) -> None:
    """Removes the staged files of a run right before it publishes them."""
    pending = [None]

    def refuse_gone(files: StagedMessageFiles, expected: Iterable[HasSize]) -> None:
        if pending:
            pending.pop()
            for file in Path("lake/staging").rglob("*.arrow"):
                file.unlink()
        check(files, expected)

    check = StagedMessageFiles.refuse_gone
    world.patches.setattr(StagedMessageFiles, "refuse_gone", refuse_gone)


RUN = f"windrow run SPEC --window {hour(3)}"
RESTORE = Step("windrow verify SPEC --restore-receipts")
ANEW = [
    Step("Set `state` to another path or database", another_place),
    Step(
        "windrow doctor SPEC --rebuild-ledger",
        lambda w, _: w.types("windrow doctor SPEC --rebuild-ledger"),
    ),
]
NEW_PIPELINE = Step(
    "begin a pipeline with another id, topic, control topic and staging", new_pipeline
)
LEDGER, OLDER, NEWER = ".windrow/state.db", "older.db", "newer.db"
ROWS = [
    *(
        Advice(
            f"control topic lost, before {command.split()[1]}",
            control_lost,
            command,
            "isn't there, and the ledger knows 2 committed windows",
            [RESTORE],
        )
        for command in (RUN, "windrow verify SPEC", "windrow doctor SPEC")
    ),
    Advice(
        "control topic lost, and an older ledger",
        older_ledger,
        "windrow verify SPEC --restore-receipts",
        f"rows of {hour(1)} are published, and neither .* has a receipt",
        [
            Step("Set `state` to a newer copy of the ledger", newer_ledger),
            RESTORE,
        ],
    ),
    Advice(
        "control topic lost, and no newer ledger",
        older_ledger,
        "windrow verify SPEC --restore-receipts",
        "neither .* has a receipt",
        [NEW_PIPELINE],
    ),
    *(
        Advice(
            f"control topic and ledger lost, before {command.split()[1]}",
            lost_ledger,
            command,
            "are published, and neither the table .* nor the ledger knows a window of things",
            [Step("Set `state` to a newer copy of the ledger", newer_ledger), RESTORE],
        )
        for command in (f"windrow run SPEC --window {COMMITTED}", "windrow doctor SPEC")
    ),
    Advice(
        "control topic lost, and all rows",
        rows_deleted,
        "windrow verify SPEC --restore-receipts",
        "have 0 of the 4 rows",
        [
            Step("windrow rebind SPEC"),
            Step(
                r"windrow run SPEC --window \S+ --again publishes",
                lambda w, _: w.types(f"windrow run SPEC --window {COMMITTED} --again"),
            ),
        ],
    ),
    Advice(
        "control topic with two partitions",
        lambda w: add_partitions(w.servers, w.control, 2),
        RUN,
        "has 2 partitions",
        [
            Step("name it by sink.control_topic", other_control),
            RESTORE,
            Step("windrow rebind SPEC"),
        ],
        code=2,
    ),
    Advice(
        "control topic that loses records",
        lambda w: w.sets("cleanup.policy", "compact,delete", w.control),
        RUN,
        "it must be compact, or receipts are lost",
        [
            Step(
                "Change that",
                lambda w, _: w.sets("cleanup.policy", "compact", w.control),
            ),
            Step("then run again", lambda w, _: w.types(RUN)),
        ],
        code=2,
    ),
    Advice(
        "window published without a receipt, and an older ledger",
        published_without_receipt,
        RUN,
        "under another plan",
        [
            *ANEW,
            Step("If the window is refused then, too", lambda w, _: w.types(RUN)),
            NEW_PIPELINE,
        ],
    ),
    Advice(
        "half a micro-batch, and an older ledger",
        half_batch,
        "windrow run SPEC",
        "under another plan",
        ANEW,
    ),
    Advice(
        "owner overwritten",
        owner_overwritten,
        "windrow verify SPEC",
        "a record of owner in the control topic can't be read",
        [RESTORE],
    ),
    *(
        Advice(
            f"records deleted, before {command.split()[1]}",
            records_deleted,
            command,
            "records before it were deleted",
            [
                Step(
                    "Set the policy to compact",
                    lambda w, _: w.sets("cleanup.policy", "compact", w.control),
                ),
                RESTORE,
            ],
        )
        for command in (RUN, "windrow verify SPEC")
    ),
    Advice(
        "a message that the topic doesn't take",
        lambda w: w.sets("max.message.bytes", "100"),
        RUN,
        "doesn't take the message of a row",
        [
            Step(
                "Raise the topic's max.message.bytes",
                lambda w, _: w.sets("max.message.bytes", "100000"),
            ),
            Step("then run the window again", lambda w, _: w.types(RUN)),
        ],
    ),
    Advice(
        "staged files removed",
        staged_files_removed,
        RUN,
        "are gone or cut short",
        [retry_step(RUN)],
    ),
]
