"""What a row of advice stands on: a pipeline on a real table of one kind, harmed, and brought back
by the words of the messages alone.
"""

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
"""The windows that a table has before it is harmed."""

NEXT = f"{hour(2)}/{hour(4)}"
"""The windows that must go in once all is well again."""

TPS = [TopicPartition("shop.things", n) for n in range(2)]


@dataclass(frozen=True)
class Step:
    """One step of an advice.

    `words`: what says it, a regular expression: something that was said before must have it.
    `action`: does it, given what matched; without it the words are a command of windrow, and are
    typed as they were said.
    """

    words: str
    action: Callable[[Any, re.Match[str]], object] | None = None


def retry_step(command: str) -> Step:
    """A step that says to run it again: the command is typed once more, and works."""

    def do(world: World, _: re.Match[str]) -> None:
        assert world.types(command) == 0, world.output

    return Step(r"[Rr]un (the window|it|this) again", do)


def rewrites(world: World, *pairs: tuple[str, str]) -> None:
    """Somebody edits the spec: each first text is replaced by the second."""
    spec = Path(world.stage.spec)
    for old, new in pairs:
        assert old in spec.read_text()
        spec.write_text(spec.read_text().replace(old, new))


def knows(world: World, match: re.Match[str]) -> None:
    """The model gets a column that may be null."""
    schema = world.stage.folder / "schema.py"
    line = f"    {match[1]}: pl.String = pa.Field(nullable=True)\n"
    schema.write_text(f"{schema.read_text().rstrip()}\n{line}")


@dataclass(frozen=True)
class Advice:
    """One way to break a store, what must be said of it, and the way out that this names.

    `name`: of the case. `harm`: breaks the store; windows `COMMITTED` are in the table by then.
    `command`: what a user types next, with SPEC for the pipeline's file. `says`: a regular
    expression that its output must have. `steps`: the advice, in order; each step's words must
    have been said by the command or by a step before it. `code`: the command's exit code.
    """

    name: str
    harm: Callable[[Any], object]
    command: str
    says: str
    steps: Sequence[Step]
    code: int = 1


@dataclass
class World:
    """A pipeline on a table of one kind. A kind makes a world of its own if it needs more.

    `output`: all that commands have said since the harm, without line breaks. `patches`: what a
    test replaces until its end. `next`: the options of a run of what must go in once all is well
    again.
    """

    stage: Stage
    next: str = field(default=f"--window {NEXT}", init=False)
    output: str = field(default="", init=False)
    patches: pytest.MonkeyPatch = field(init=False)

    @classmethod
    def on(cls, stage: Stage, sink: str) -> Any:
        """A world whose spec has this sink, with its first windows committed."""
        spec = Path(stage.spec)
        spec.write_text(spec.read_text().replace("{path: lake/things}", sink))
        world = cls(stage)
        assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output
        world.output = ""
        return world

    def types(self, command: str) -> int:
        """Runs a command, as the user types it; one that shows first what it would do is typed
        again with --yes, as it says. Returns its exit code.
        """
        result = self.stage.call(*shlex.split(command.replace("SPEC", self.stage.spec))[1:])
        self.output += f" {' '.join(result.output.split())}"
        if "add --yes" in result.output and "--yes" not in command:
            return self.types(f"{command} --yes")
        return result.exit_code

    def before_commit(self, harm: Callable[[], object]) -> None:
        """Lets something happen in the next run when it has looked at the table, and is about to
        put its rows there.
        """
        pending = [harm]

        def crash_point(name: str) -> None:
            if name == "commit.before" and pending:
                pending.pop()()

        self.patches.setattr(commit_loop, "crash_point", crash_point)

    def follows(self, advice: Advice) -> None:
        """Types what brings the message, and then does what it says, word by word."""
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
        """Next windows go in; every message is in the table once, or among the dead letters; and
        neither verify with everything read back, nor lag, nor doctor finds anything.
        """
        self.output = ""
        assert self.types(f"windrow run SPEC {self.next}") == 0, self.output
        spec = self.stage.spec
        assert self.stage.json("verify", spec, "--deep")["findings"] == []
        assert self.stage.json("lag", spec)["missing"] == []
        checks = self.stage.json("doctor", spec)["checks"]
        assert {c["level"] for c in checks if c["name"] in {"state", "sink", "windows"}} == {"ok"}
        counts = [c["receipt"]["counts"] for c in self.stage.json("show", spec)["windows"]]
        ends = self.stage.broker.at("read_committed").stable_ends(TPS)
        assert sum(c["read"] for c in counts) == sum(end.offset for end in ends.values())


def of_lakes(more_columns: Callable[[Any], object]) -> list[Advice]:
    """What can become of a table whose receipts and pages are files below `_windrow`, and whose
    columns other clients change. `more_columns`: another client adds the column extra.
    """

    def loses(folder: str) -> Callable[[World], None]:
        """All files of a folder of windrow's own are gone."""

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
            "nobody knows which ones are in the table",
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
