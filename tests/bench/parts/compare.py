"""A comparison: all sides on the same topic, in turns, each in a process that stays for
all its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench.harness.figures import Measured, Run, ratios
from tests.bench.harness.side import FailedError, Program
from tests.bench.parts.sides import Side
from tests.bench.parts.targets import Job

SLOW_SECONDS = 30.0
"""A side whose run takes longer is measured in the first round alone: it would take
most of the time, and isn't near.
"""


class _Turn:
    """A side in one comparison: its process, and what it brought."""

    def __init__(self, side: Side, job: Job, folder: Path, stack: ExitStack) -> None:
        self.side, self.failed, self.runs = side, "", list[Run]()
        self.ready = 0.0
        self._job = job
        try:
            self._program = stack.enter_context(
                Program(side.command(job.bootstrap), folder, side.environment)
            )
            self.ready = self._program.ready
        except (FailedError, RuntimeError, OSError) as failed:
            self._give_up(failed)

    def run(self) -> None:
        """Once more, unless it failed before, or is slow and was measured."""
        if self.failed or (len(self.runs) > 1 and self.runs[-1].seconds > SLOW_SECONDS):
            return
        try:
            with self.side.into(self._job) as target:
                instructions = self.side.instructions(target.job)
                self.runs.append(
                    self._program.run(
                        instructions,
                        self._job.messages,
                        expected=target.expected,
                        written=target.rows,
                    )
                )
        except FailedError as failed:
            self._give_up(failed)

    def to_measured(self) -> Measured:
        """Its first run warms up, and is told by itself."""
        first, later = (self.runs[0], tuple(self.runs[1:])) if self.runs else (None, ())
        return Measured(
            self.side.name, self.side.does, self.side.version, self.ready, first, later, self.failed
        )

    def _give_up(self, failed: Exception) -> None:
        self.failed = str(failed).splitlines()[0]
        print(f"{self.side.name}, {self.side.does}: {failed}", flush=True)


def compare(sides: Sequence[Side], job: Job, rounds: int) -> list[Measured]:
    """One round to warm up, then `rounds` of them.

    Args:
        sides: the first is what the others are held against.
        job: what all of them do, on a topic that is filled; `out` is where each has a
            folder of its own.
        rounds: how often each side runs after its first time.
    """
    with ExitStack() as stack:
        turns = []
        for number, side in enumerate(sides):
            folder = job.out / str(number)
            turns.append(_Turn(side, replace(job, out=folder / "out"), folder, stack))
        for number in range(rounds + 1):
            for turn in turns:
                turn.run()
            ran = ", ".join(
                f"{turn.side.name} {turn.runs[number].seconds:.2f} s"
                for turn in turns
                if len(turn.runs) > number
            )
            print(f"  {'warm-up' if number == 0 else f'round {number}'}: {ran}", flush=True)
    measured = [turn.to_measured() for turn in turns]
    for peer in measured[1:]:
        if ratio := ratios(measured[0], peer):
            print(
                f"  windrow, {measured[0].does} / {peer.name}, {peer.does}: {ratio.median:.2f}"
                f" ({ratio.lowest:.2f} to {ratio.highest:.2f})",
                flush=True,
            )
    return measured
