"""The runbooks: each trouble is caused, and the page's commands repair it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import SCHEMA, Stage, hour, stage
from tests.shape.readme import ROOT
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.broker import MemoryBroker

__all__ = ["stage"]

RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
FENCE = re.compile(r"^ *```(sh|text|yaml)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    """Returns a text without line breaks."""
    return " ".join(text.split())


def commit_hours(stage: Stage, first: int, last: int) -> None:
    """Commits hours."""
    stage.json("run", stage.spec, "--window", f"{hour(first)}/{hour(last)}")


def set_to(stage: Stage, section: str) -> None:
    """Replaces a section of the spec, given as one line `name: ...`."""
    name, spec = section.partition(":")[0], Path(stage.spec)
    lines = [line for line in spec.read_text().splitlines() if not line.startswith(f"{name}:")]
    spec.write_text("\n".join([*lines, section.strip(), ""]))


def refused(stage: Stage) -> None:
    set_to(stage, "limits: {max_dead_ratio: 0}")


def anew(stage: Stage) -> None:
    commit_hours(stage, 0, 2)
    stage.broker.recreate_topic("shop.things", 2)
    stage.produce(2, b'{"id": 1}', b'{"id": 2}')


def near(stage: Stage) -> None:
    """Makes a topic that keeps messages for 25 hours, with messages that are a day old."""
    stage.broker = MemoryBroker()
    stage.broker.create_topic("shop.things", partitions=2, retention_ms=25 * 3_600_000)
    for n in range(3):
        stage.produce(n, *(b'{"id": %d}' % i for i in range(4)))


def delete_all(stage: Stage) -> None:
    """Deletes all records of the topic, like retention does."""
    tps = [TopicPartition("shop.things", n) for n in range(2)]
    for tp, end in stage.broker.stable_ends(tps).items():
        stage.broker.delete_records(tp, end.offset)


def changed(stage: Stage) -> None:
    """Makes a table with a narrower type than the model has now."""
    schema = stage.folder / "schema.py"
    schema.write_text(SCHEMA.replace("pl.Int64", "pl.Int32"))
    commit_hours(stage, 0, 1)
    schema.write_text(SCHEMA)


def disagree(stage: Stage) -> None:
    """Runs two pipelines on the topic, and deletes a row from the first one's table."""
    second_spec = Path(stage.spec).read_text().replace("id: things", "id: others")
    (stage.folder / "other.yaml").write_text(second_spec.replace("lake/things", "lake/others"))
    commit_hours(stage, 0, 1)
    stage.json("run", "other.yaml", "--window", hour(0))
    DeltaTable(str(stage.folder / "lake/things")).delete("id = 1")


def restored(stage: Stage) -> None:
    """Restores the table from before its newest hour."""
    commit_hours(stage, 0, 1)
    shutil.copytree(stage.folder / "lake", stage.folder / "kept")
    commit_hours(stage, 1, 2)
    shutil.rmtree(stage.folder / "lake")
    (stage.folder / "kept").rename(stage.folder / "lake")


TROUBLES: dict[str, Callable[[Stage], None]] = {
    "refused-hour": refused,
    "restored-backup": restored,
    "retention": near,
    "schema-changed": changed,
    "tables-disagree": disagree,
    "topic-made-anew": anew,
    "upgrade": lambda stage: commit_hours(stage, 0, 1),
}
MEANWHILE = {("retention", "--window 2026-01-05T02:00:00Z"): delete_all}
"""What happens right before the page's first command with these words."""

LINKED = {"refused-hour", "retention", "schema-changed", "topic-made-anew", "restored-backup"}
"""The pages that a message refers to."""


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_helps(stage: Stage, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page ends as the page says, and the page's texts are in the output.

    The message about the trouble names the page. At the end verification finds nothing.
    """
    monkeypatch.setattr("windrow.ingest.cli.doctor.java_problem", lambda: None)
    monkeypatch.setattr("windrow.ingest.cli.doctor.java_untried", lambda: None)
    TROUBLES[page.stem](stage)
    meanwhile = {
        command_part: interfere
        for (name, command_part), interfere in MEANWHILE.items()
        if name == page.stem
    }
    output = full_output = ""
    for kind, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "yaml":
            set_to(stage, block.strip())
        elif kind == "text":
            assert words(block) in output, (block, output)
        else:
            output = ""
            for line in filter(None, map(str.strip, block.splitlines())):
                command, _, code = line.partition("   # exit code ")
                for command_part in [
                    command_part for command_part in meanwhile if command_part in command
                ]:
                    meanwhile.pop(command_part)(stage)
                done = stage.call(*shlex.split(command.replace("SPEC", stage.spec))[1:])
                output += words(done.output)
                assert done.exit_code == int(code or 0), (command, output)
            full_output += output
    assert (f"See `windrow help {page.stem}`" in full_output) == (page.stem in LINKED)
    assert stage.call("verify", stage.spec).exit_code == 0
