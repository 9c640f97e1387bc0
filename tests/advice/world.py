"""A pipeline on a real table of one kind, which is damaged and then repaired by the advice."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Stage, hour
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.sinks.kit.commit import commit_loop

COMMITTED = f"{hour(0)}/{hour(2)}"
"""The windows that a table has before it is damaged."""

NEXT = f"{hour(2)}/{hour(4)}"
"""The windows that must be committed after the repair."""

TPS = [TopicPartition("shop.things", n) for n in range(2)]


@dataclass(frozen=True)
class Step:
    """One step of an advice.

    Attributes:
        words: a regular expression that an earlier output must match.
        action: does the step, given the match; None if the match is a command to call.
    """

    words: str
    action: Callable[[Any, re.Match[str]], object] | None = None


def retry_step(command: str) -> Step:
    """Returns a step that calls the command again, which must work."""

    def do(world: World, _: re.Match[str]) -> None:
        assert world.types(command) == 0, world.output

    return Step(r"[Rr]un (the window|it|this) again", do)


def rewrites(world: World, *pairs: tuple[str, str]) -> None:
    """Edits the spec: replaces the first text of each pair by the second one."""
    spec = Path(world.stage.spec)
    for old, new in pairs:
        assert old in spec.read_text()
        spec.write_text(spec.read_text().replace(old, new))


def knows(world: World, match: re.Match[str]) -> None:
    """Adds a nullable column to the model."""
    schema = world.stage.folder / "schema.py"
    line = f"    {match[1]}: pl.String = pa.Field(nullable=True)\n"
    schema.write_text(f"{schema.read_text().rstrip()}\n{line}")


@dataclass(frozen=True)
class Advice:
    """A damage of a store, the message about it, and the steps of its advice.

    Attributes:
        name: the name of the case.
        harm: causes the damage; the windows `COMMITTED` are in the table then.
        command: the user's next command, with SPEC for the pipeline's file.
        says: a regular expression that the command's output must match.
        steps: the steps of the advice, in order; the words of each were in an earlier output.
        code: the command's exit code.
    """

    name: str
    harm: Callable[[Any], object]
    command: str
    says: str
    steps: Sequence[Step]
    code: int = 1


@dataclass
class World:
    """A pipeline on a table of one kind; a kind has a subclass if it needs more.

    Attributes:
        stage: the pipeline and its topic.
        next: options of the run that must work after the repair.
        output: all output of commands since the damage, without line breaks.
        patches: replaces attributes until the test's end.
    """

    stage: Stage
    next: str = field(default=f"--window {NEXT}", init=False)
    output: str = field(default="", init=False)
    patches: pytest.MonkeyPatch = field(init=False)

    @classmethod
    def on(cls, stage: Stage, sink: str) -> Any:
        """Returns a world whose spec has this sink, with the windows `COMMITTED`."""
        spec = Path(stage.spec)
        spec.write_text(spec.read_text().replace("{path: lake/things}", sink))
        world = cls(stage)
        assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output
        world.output = ""
        return world

    def types(self, command: str) -> int:
        """Runs a command like a user does, and returns its exit code.

        A command that advises --yes after a dry run is called again with --yes.
        """
        result = self.stage.call(*shlex.split(command.replace("SPEC", self.stage.spec))[1:])
        self.output += f" {' '.join(result.output.split())}"
        if "add --yes" in result.output and "--yes" not in command:
            return self.types(f"{command} --yes")
        return result.exit_code

    def before_commit(self, harm: Callable[[], object]) -> None:
        """Calls `harm` in the next run, right before that run commits."""
        pending = [harm]

        def crash_point(name: str) -> None:
            if name == "commit.before" and pending:
                pending.pop()()

        self.patches.setattr(commit_loop, "crash_point", crash_point)

    def follows(self, advice: Advice) -> None:
        """Causes the message, and then does exactly what it advises."""
        advice.harm(self)
        code = self.types(advice.command)
        assert (code, re.search(advice.says, self.output) is not None) == (advice.code, True), (
            self.output
        )
        for step in advice.steps:
            words = step.words.replace("SPEC", re.escape(self.stage.spec))
            match = re.search(words, self.output)
            assert match is not None, f"{step.words!r} is not said by: {self.output}"
            if step.action is not None:
                step.action(self, match)
            else:
                assert self.types(match[0]) == 0, self.output

    def is_well(self) -> None:
        """Asserts that the next windows can be committed, and that everything is well.

        Every message is in the table or a dead letter, once. `verify --deep`, `lag` and
        `doctor` find nothing.
        """
        self.output = ""
        assert self.types(f"windrow run SPEC {self.next}") == 0, self.output
        spec = self.stage.spec
        assert self.stage.json("verify", spec, "--deep")["findings"] == []
        assert self.stage.json("lag", spec)["missing"] == []
        checks = self.stage.json("doctor", spec)["checks"]
        assert {c["level"] for c in checks if c["name"] in {"state", "sink", "windows"}} == {"ok"}
        counts = [c["receipt"]["counts"] for c in self.stage.json("show", spec)["windows"]]
        ends = self.stage.broker.with_isolation("read_committed").stable_ends(TPS)
        assert sum(c["read"] for c in counts) == sum(end.offset for end in ends.values())


def of_lakes(more_columns: Callable[[Any], object]) -> list[Advice]:
    """Returns the damages of a table with files below `_windrow`.

    Args:
        more_columns: adds the column `extra`, like another client does.
    """

    def loses(folder: str) -> Callable[[World], None]:
        """Returns a function that removes a folder below `_windrow`."""

        def do(world: World) -> None:
            (path,) = world.stage.folder.glob(f"lake/**/things/_windrow/{folder}")
            shutil.rmtree(path)

        return do

    run = f"windrow run SPEC --window {NEXT}"
    return [
        Advice(
            "a page is gone",
            loses("pages"),
            run,
            "it isn't known which ones",
            [Step(r"windrow verify \S+ --restore-receipts")],
        ),
        Advice(
            "a receipt is gone",
            loses("receipts"),
            "windrow verify SPEC",
            "is missing",
            [Step(r"windrow verify SPEC --restore-receipts")],
        ),
        Advice(
            "another client has added a column",
            more_columns,
            run,
            "extra: in the table",
            [Step(r"add it to the schema, nullable: (\w+)", knows)],
        ),
    ]
