"""The kept results: a JSON file for each part.

So a part can be measured again alone, and the page is made from all parts. The files are next
to the page and are committed with it. A full measurement takes hours, so the other parts may
come from another machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from tests.bench.harness.figures import Growth, PrintedResult, Result
from tests.bench.harness.side import ROOT

KEPT = ROOT / "docs" / "benchmark"
Kind = Result | Growth | PrintedResult
T = TypeVar("T", Result, Growth, PrintedResult)


def keep(result: Kind) -> None:
    """Writes a part's result in place of an older one."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{result.part}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(result)) + b"\n"
    )


def kept_result(part: str, kind: type[T]) -> T | None:
    """Returns a part's result; None if it was never measured, or was kept in another form."""
    try:
        return msgspec.json.decode((KEPT / f"{part}.json").read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def kept_commit(part: str) -> str:
    """Returns the commit that a part was measured with; empty if there is no result."""
    try:
        return str(
            msgspec.json.decode((KEPT / f"{part}.json").read_bytes(), type=dict[str, Any])["commit"]
        )
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        return ""


def commit() -> str:
    """Returns the current commit, with a plus if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return (git("rev-parse", "--short=10", "HEAD") or "no commit") + ("+" if changed else "")


def machine() -> str:
    """Returns a line that describes the machine."""
    words = (
        line.partition(":")
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    )
    model = next(
        (value.strip() for name, _, value in words if name.strip() == "model name"),
        platform.processor(),
    )
    memory = psutil.virtual_memory().total / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores of {model}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" Python {platform.python_version()}"
    )


def stamp(part: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the measured values with part, date, commit, machine and the time taken."""
    began = datetime.now(UTC)
    about = {"part": part, "date": f"{began:%Y-%m-%d}", "commit": commit(), "machine": machine()}
    measured = measure()
    return about | {"took": (datetime.now(UTC) - began).total_seconds()} | measured
