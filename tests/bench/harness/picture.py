"""The contents of the pictures, made from results.

plotting/plot.py draws them in its own environment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.harness.environments import environment_folder, python
from tests.bench.harness.figures import Growth, Result, Spread, ratios
from tests.bench.harness.page import TITLES

PLOTTING = Path(__file__).parent / "plotting"


def bars(result: Result) -> dict[str, Any]:
    """Returns a panel with the rows a second of each side that didn't fail."""
    shape, stage = result.part.split(".")
    sound = [side for side in result.sides if side.runs and not side.failed]
    rates = [
        (side, Spread.of([run.rows / run.seconds / 1e3 for run in side.runs])) for side in sound
    ]
    lines = [
        [
            f"{side.name}\n{side.does}",
            rate.median,
            rate.lowest,
            rate.highest,
            side.name == "windrow",
        ]
        for side, rate in rates
    ]
    return {"title": f"{TITLES[stage]}, {shape}", "unit": "thousand rows/s", "bars": lines}


def sinks(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yields two panels of all measured sinks.

    The first has the rows a second. The second has each sink's time divided by that of its
    comparison.
    """
    sound = [
        (result.part.partition(".")[2], *result.sides[:2])
        for result in results
        if ratios(*result.sides[:2])
    ]
    if not sound:
        return
    rates = [
        (name, Spread.of([run.rows / run.seconds / 1e3 for run in side.runs]))
        for name, side, _ in sound
    ]
    times = [
        (f"{name}\n/ {peer.does}", ratio)
        for name, side, peer in sound
        if (ratio := ratios(side, peer))
    ]
    for title, unit, spreads in (
        ("Into each sink", "thousand rows/s", rates),
        ("Beside another side", "times as long", times),
    ):
        yield {
            "title": title,
            "unit": unit,
            "bars": [
                [label, spread.median, spread.lowest, spread.highest, True]
                for label, spread in spreads
            ],
        }


def line(result: Growth) -> dict[str, Any]:
    """Returns a panel with the seconds by size."""
    sizes, seconds = (
        [point.size for point in result.points],
        [point.seconds for point in result.points],
    )
    return {"title": result.what, "unit": result.part.split(".")[1], "x": sizes, "y": seconds}


def draw(panels: Sequence[dict[str, Any]], out: Path) -> None:
    """Draws the panels and writes the picture."""
    interpreter = environment_folder("plotting", PLOTTING, python) / "venv/bin/python"
    instructions = json.dumps({"out": str(out), "panels": panels})
    subprocess.run(
        [interpreter, PLOTTING / "plot.py"], input=instructions, text=True, check=True, timeout=300
    )
