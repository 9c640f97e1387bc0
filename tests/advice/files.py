"""Damages of a table of files, and the advice that windrow gives."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.advice.world import COMMITTED, Advice, Step, World
from tests.cli.conftest import Stage, hour

LOG = Path("lake/things/_windrow/log/0000000000")


@dataclass
class FilesWorld(World):
    """A pipeline on a table of files, with a copy of the table and its dead letters.

    docs/backups.md describes such a copy.
    """

    def keeps(self) -> None:
        """Copies the folder."""
        shutil.copytree("lake", "kept")

    def restores(self, _: re.Match[str] | None = None) -> None:
        """Replaces the folder by the copy."""
        shutil.rmtree("lake")
        shutil.copytree("kept", "lake")


def world(stage: Stage, request: pytest.FixtureRequest) -> FilesWorld:
    """Returns a pipeline with its table and a copy."""
    del request
    new_world: FilesWorld = FilesWorld.on(stage, "{kind: files, path: lake/things}")
    new_world.keeps()
    return new_world


def restored_under_a_run(then: str = "") -> Callable[[FilesWorld], None]:
    """Commits a window, and restores an older copy of the table before the next run's commit.

    Then it runs another command, if there is one.
    """

    def do(world: FilesWorld) -> None:
        world.types(f"windrow run SPEC --window {hour(2)}")

        def restore() -> None:
            world.restores()
            if then:
                world.types(then)

        world.before_commit(restore)

    return do


def remove(number: int) -> None:
    """Removes a manifest, and all with a higher number."""
    for manifest in LOG.iterdir():
        if int(manifest.stem) >= number:
            manifest.unlink()


REMOVE = Step(
    r"manifest (\d+) of \S+ .*remove what that run left behind the end of the log: that file, if"
    " it is there, and all with a higher number",
    lambda _, match: remove(int(match[1])),
)
LAG = Step("windrow lag SPEC")


def after(harm: Callable[[FilesWorld], None]) -> Callable[[FilesWorld], None]:
    """Returns a function that causes the damage and makes a run fail because of it."""

    def do(world: FilesWorld) -> None:
        harm(world)
        assert world.types(RUN) == 1
        world.output = ""

    return do


RUN = f"windrow run SPEC --window {hour(3)}"

ROWS = [
    Advice(
        "restored under a live run",
        restored_under_a_run(),
        RUN,
        "was removed, restored or made anew while a commit was under way",
        [REMOVE, LAG],
    ),
    Advice(
        "left by a live run behind a restored log",
        after(restored_under_a_run()),
        "windrow verify SPEC",
        "can't be used: it is gone",
        [REMOVE, LAG],
    ),
    Advice(
        "left by a live run on a restored log",
        after(restored_under_a_run(f"windrow run SPEC --window {hour(2)}")),
        "windrow doctor SPEC",
        "can't be used: it was written behind another one",
        [REMOVE, LAG],
    ),
    Advice(
        "lost manifest",
        lambda _: (LOG / f"{1:020d}.json").unlink(),
        RUN,
        "can't be used: it is gone",
        [Step("Restore that file from a backup", FilesWorld.restores)],
    ),
    *(
        Advice(
            f"lost log, before {command.split()[1]}",
            lambda _: shutil.rmtree("lake/things/_windrow"),
            command,
            r"the log of .* \(_windrow/log\) is gone, and files of rows are left",
            [Step("restore the folder _windrow from a backup", FilesWorld.restores)],
        )
        for command in (RUN, "windrow verify SPEC --restore-receipts", "windrow rebind SPEC --yes")
    ),
    Advice(
        "table removed for good, but for its rows",
        lambda _: shutil.rmtree("lake/things/_windrow"),
        RUN,
        "moved, or removed for good",
        [
            Step("remove data here as well", lambda *_: shutil.rmtree("lake/things/data")),
            Step("run this again", lambda w, _: w.types(RUN)),
            Step("windrow rebind SPEC"),
            Step(
                "They can be run again",
                lambda w, _: w.types(f"windrow run SPEC --window {COMMITTED}"),
            ),
        ],
    ),
    Advice(
        "lost receipt",
        lambda _: shutil.rmtree("lake/things/_windrow/receipts"),
        "windrow verify SPEC",
        "and its receipt in _windrow/receipts is missing",
        [Step("windrow verify SPEC --restore-receipts")],
    ),
    Advice(
        "damaged rows",
        lambda _: [
            file.write_bytes(file.read_bytes()[:-9] + b"x" * 9)
            for file in Path("lake/things/data").rglob("*.parquet")
        ],
        "windrow verify SPEC --deep",
        "can't be read: the file .* is damaged",
        [
            Step(f"windrow replay SPEC --window {hour(0)}"),
            Step(f"windrow replay SPEC --window {hour(1)}"),
        ],
    ),
    Advice(
        "removed under a live run",
        lambda w: w.before_commit(lambda: shutil.rmtree("lake/things")),
        RUN,
        "was removed, restored or made anew while a commit was under way",
        [
            Step("Restore that file from a backup", FilesWorld.restores),
            LAG,
        ],
    ),
]
