"""A comparison: all sides take turns on the same topic. Each has one process for all its runs."""

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
"""A side with a longer run is measured in the first round only.

It would take most of the time, and its result isn't close.
"""


class _Turn:
    """A side in one comparison, with its process and its runs."""

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
        """Runs the side once more, unless it failed, or is slow and was measured already."""
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
        """Returns the measured side. Its first run warms up and is kept apart."""
        first, later = (self.runs[0], tuple(self.runs[1:])) if self.runs else (None, ())
        return Measured(
            self.side.name, self.side.does, self.side.version, self.ready, first, later, self.failed
        )

    def _give_up(self, failed: Exception) -> None:
        self.failed = str(failed).splitlines()[0]
        print(f"{self.side.name}, {self.side.does}: {failed}", flush=True)


def compare(sides: Sequence[Side], job: Job, rounds: int) -> list[Measured]:
    """Runs a warm-up round and then `rounds` rounds.

    Args:
        sides: the sides. The others are compared with the first one.
        job: the job of all sides, on a filled topic. Each side gets its own folder below `out`.
        rounds: the number of runs of each side after its first one.
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
