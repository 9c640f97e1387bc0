"""Draws the pictures of docs/benchmark.md, in its own environment with matplotlib.

python plot.py < FIGURES.json      {"out": path, "panels": [{"title", "bars": [[label, value,
least, most, ours]]} or {"title", "x", "y"}]}
"""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "windrow",
        "font.size": 8,
        "svg.fonttype": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)

import matplotlib.pyplot as plt  # Imported after the choice of the backend.  # noqa: E402

OURS, OTHERS = "#d95f02", "#7f8fa6"


def bars(axes: Any, panel: dict[str, Any]) -> None:
    """Draws a bar for each side, with its range."""
    labels, values, lowest, highest, ours = zip(*panel["bars"], strict=True)
    errors = [
        [v - low for v, low in zip(values, lowest, strict=True)],
        [high - v for v, high in zip(values, highest, strict=True)],
    ]
    places = range(len(labels))
    axes.barh(
        places,
        values,
        xerr=errors,
        color=[OURS if o else OTHERS for o in ours],
        error_kw={"elinewidth": 0.8},
    )
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlabel(panel["unit"])


def line(axes: Any, panel: dict[str, Any]) -> None:
    """Draws seconds by size, and a linear line through the last point."""
    x, y = panel["x"], panel["y"]
    axes.loglog(x, y, "o-", color=OURS)
    axes.loglog(x, [y[-1] * size / x[-1] for size in x], ":", color=OTHERS, label="linear")
    axes.set_xlabel(panel["unit"])
    axes.set_ylabel("seconds")
    axes.legend(frameon=False)


def main() -> None:
    """Reads the panels from stdin and writes one file."""
    instructions = json.load(sys.stdin)
    columns = min(3, len(instructions["panels"]))
    rows = -(-len(instructions["panels"]) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.6 * columns, 2.3 * rows), squeeze=False)
    for axes, panel in zip(grid.flat, instructions["panels"], strict=False):
        (bars if "bars" in panel else line)(axes, panel)
        axes.set_title(panel["title"], loc="left", fontsize=9)
    for axes in grid.flat[len(instructions["panels"]) :]:
        axes.set_visible(False)
    figure.tight_layout()
    figure.savefig(instructions["out"], metadata={"Date": None})


if __name__ == "__main__":
    main()
