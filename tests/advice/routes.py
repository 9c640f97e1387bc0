"""Damages of one of several tables, and the advice that windrow gives."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.advice.world import COMMITTED, Advice, Step, World, rewrites
from tests.cli.conftest import Stage, hour
from windrow.ingest.crashpoints import CrashError

SINK = (
    "{kind: routes, by: column, name: id, tables: [{values: ['1'], sink: {path: lake/first}}],"
    " other: {path: lake/things}}"
)
FIRST = Path("lake/first")


def world(stage: Stage, request: pytest.FixtureRequest) -> World:
    """Returns a pipeline on two tables, with a copy of the first one after one window."""
    del request
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("{path: lake/things}", SINK))
    stage.json("run", stage.spec, "--window", hour(0))
    shutil.copytree(FIRST, "kept")
    new_world: World = World.on(stage, "{path: lake/things}")  # the spec has its sink already
    return new_world


def _older(_: World) -> None:
    shutil.rmtree(FIRST)
    shutil.copytree("kept", FIRST)


def _gone(_: World) -> None:
    shutil.rmtree(FIRST)


def _unmounted(_: World) -> None:
    FIRST.rename("away")


def _runs_again(world: World, _: re.Match[str]) -> None:
    """Runs the windows that the rebind named."""
    assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output


def _moved(world: World) -> None:
    FIRST.rename("lake/moved")
    rewrites(world, ("lake/first", "lake/moved"))


def _moved_back(world: World, _: re.Match[str]) -> None:
    Path("lake/moved").rename(FIRST)
    rewrites(world, ("lake/moved", "lake/first"))


def _left_out(world: World) -> None:
    """Sets the spec's table for the value to another one."""
    rewrites(world, ("lake/first", "lake/second"))


def _receipts_lost(_: World) -> None:
    shutil.rmtree(FIRST / "_windrow" / "receipts")


def _other_pipeline(world: World) -> None:
    """Changes the pipeline's id and its other table, so that a route leads to the old table."""
    rewrites(world, ("id: things", "id: others"), ("lake/things", "lake/others"))


def _other_path(world: World, _: re.Match[str]) -> None:
    rewrites(world, ("lake/first", "lake/others_first"))
    assert world.types(f"windrow run SPEC --window {COMMITTED}") == 0, world.output


def _dies_between(world: World) -> None:
    """Makes a run die after the first table has the window."""
    with pytest.MonkeyPatch.context() as crash:
        crash.setenv("WINDROW_CRASH", "commit.between:raise")
        with pytest.raises(CrashError):
            world.types(f"windrow run SPEC --window {hour(3)}")


RUN = Step(r"windrow run SPEC --window \S+Z")
ROWS: list[Advice] = [
    Advice("older table", _older, "windrow lag SPEC", "A table of the routes to", [RUN], code=0),
    Advice(
        "older table, by doctor",
        _older,
        "windrow doctor SPEC",
        f"A table of the routes to .* lacks {hour(1)}",
        [RUN],
        code=0,
    ),
    Advice(
        "older table, by verify",
        _older,
        "windrow verify SPEC",
        "lake/first, which doesn't have it",
        [
            Step(
                f"windrow replay SPEC --window {hour(1)}",
            )
        ],
    ),
    *(
        Advice(
            f"lost table, before {command.split()[1]}",
            _gone,
            command,
            "lake/first isn't there, and the ledger knows 2 committed windows",
            [
                Step("windrow rebind SPEC"),
                Step("(They|2 committed windows .*) can be run again", _runs_again),
            ],
        )
        for command in ("windrow lag SPEC", f"windrow run SPEC --window {hour(3)}")
    ),
    Advice(
        "table on a disk that isn't mounted",
        _unmounted,
        f"windrow run SPEC --window {hour(3)}",
        "lake/first isn't there",
        [Step("Is its disk mounted", lambda _w, _m: Path("away").rename(FIRST))],
    ),
    Advice(
        "moved table",
        _moved,
        "windrow verify SPEC",
        "lake/first, which no route names now",
        [Step("if it was moved, move it back", _moved_back)],
    ),
    Advice(
        "table that no route names",
        _left_out,
        f"windrow replay SPEC --window {hour(1)}",
        "lake/first, which no route names now",
        [
            Step(
                "Name the table under sink.tables again",
                lambda w, _: rewrites(w, ("lake/second", "lake/first")),
            ),
            Step("then replay", lambda w, _: w.types(f"windrow replay SPEC --window {hour(1)}")),
        ],
    ),
    Advice(
        "lost receipts",
        _receipts_lost,
        "windrow verify SPEC",
        "The ledger has no copy of the receipts of a route's table",
        [
            Step("move the table away", lambda _w, _m: FIRST.rename("away")),
            Step("windrow rebind SPEC"),
            Step("its windows can be run again", _runs_again),
        ],
    ),
    *(
        Advice(
            f"table of another pipeline, before {command.split()[1]}",
            _other_pipeline,
            command,
            "lake/first belongs to pipeline 'things', not 'others'",
            [Step("use another path", _other_path)],
        )
        for command in (f"windrow plan SPEC --window {hour(1)}", "windrow doctor SPEC")
    ),
    Advice(
        "between two tables",
        _dies_between,
        "windrow verify SPEC",
        "lake/first and not in",
        [
            Step(
                "Run the window again",
                lambda w, _: w.types(f"windrow run SPEC --window {hour(3)}"),
            )
        ],
    ),
]
