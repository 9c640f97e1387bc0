"""What can become of a table in Kafka topics, and the way out that windrow names."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.advice.world import Advice, Step, World, again
from tests.cli.conftest import Stage, hour
from tests.kafka.produce import (
    Put,
    configure,
    create_topic,
    delete_records,
    delete_topic,
    high_watermark,
    produce,
)
from windrow.ingest.sinks.kafka.stage import StagedMessageFiles


@dataclass
class KafkaWorld(World):
    """With the broker's address, and the names of the table's topics."""

    servers: str = field(init=False)
    topic: str = field(init=False)

    @property
    def control(self) -> str:
        """Name of the control topic."""
        return f"{self.topic}.windrow"

    def sets(self, name: str, value: str, topic: str = "") -> None:
        """A setting of the target topic, or of another one."""
        configure(self.servers, topic or self.topic, name, value)


def world(stage: Stage, request: pytest.FixtureRequest) -> KafkaWorld:
    """The pipeline, and its topics on a real broker."""
    servers: str = request.getfixturevalue("kafka")
    topic = create_topic(servers, 2)
    sink = f"kind: kafka, bootstrap_servers: '{servers}', topic: {topic}, staging: lake/staging"
    stage.sink(f"{{{sink}, key: {{columns: [id]}}}}")
    stage.json("run", stage.spec, "--window", hour(0))
    shutil.copy(LEDGER, OLDER)
    made: KafkaWorld = KafkaWorld.on(stage, "")  # the spec has its sink already
    made.servers, made.topic = servers, topic
    return made


def control_lost(world: KafkaWorld) -> None:
    """Somebody deletes the control topic."""
    delete_topic(world.servers, world.control)


def older_ledger(world: KafkaWorld) -> None:
    """The control topic is gone, and the ledger is a copy of before the newest window."""
    shutil.copy(LEDGER, NEWER)
    shutil.copy(OLDER, LEDGER)
    control_lost(world)


def newer_ledger(world: KafkaWorld, _: re.Match[str]) -> None:
    """The spec names a copy that has all windows."""
    spec = Path(world.stage.spec)
    spec.write_text(f"{spec.read_text()}\nstate: {NEWER}\n")


def owner_overwritten(world: KafkaWorld) -> None:
    """Another program writes to the control topic."""
    produce(world.servers, world.control, [Put(b"{}", key=b'["owner"]')])


def records_deleted(world: KafkaWorld) -> None:
    """Another cleanup.policy deletes all records of the control topic."""
    world.sets("cleanup.policy", "delete", world.control)
    end = high_watermark(world.servers, world.control)
    delete_records(world.servers, world.control, 0, end)


def staged_files_removed(world: KafkaWorld) -> None:
    """A sweep removes what a run has staged, right before the run publishes it."""
    left = [None]

    def refuse_gone(files: object, wanted: object) -> None:
        if left:
            left.pop()
            for file in Path("lake/staging").rglob("*.arrow"):
                file.unlink()
        check(files, wanted)  # type: ignore[arg-type]

    check = StagedMessageFiles.refuse_gone
    world.patches.setattr(StagedMessageFiles, "refuse_gone", refuse_gone)


RUN = f"windrow run SPEC --window {hour(3)}"
RESTORE = Step("windrow verify SPEC --restore-receipts")
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
            Step(
                "and restore again", lambda w, _: w.types("windrow verify SPEC --restore-receipts")
            ),
        ],
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
        [again(RUN)],
    ),
]
