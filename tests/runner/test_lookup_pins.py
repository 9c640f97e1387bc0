"""Lookup pins: the version of each source that a window uses, over runs, replays and changed
specs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.attempts import Attempt, with_pins
from windrow.ingest.runner.context import Pipeline

WINDOW = Window("p", 0, 1)


@dataclass
class Source:
    """A source whose version the test sets. It counts the requests for it."""

    identity: str
    now: str = "1"
    version_calls: int = 0

    def version(self) -> str:
        self.version_calls += 1
        return self.now


@dataclass
class Tables:
    """A pipeline with lookups, on a real ledger."""

    folder: Path
    sources: dict[str, Source] = field(default_factory=dict)
    atomic: str = "window"

    def pipeline(self) -> Pipeline:
        return cast(
            "Pipeline",
            SimpleNamespace(
                lookups=lambda: self.sources,
                ledger=open_ledger(str(self.folder / "state.db")),
                sink=SimpleNamespace(
                    capabilities=SimpleNamespace(atomic=self.atomic), identity="kafka:orders"
                ),
            ),
        )

    def pins(
        self,
        generation: int = 0,
        replaced_pins: tuple[Pin, ...] | None = None,
        *,
        fresh: bool = False,
    ) -> dict[str, str]:
        """Returns the pins of an attempt.

        Args:
            generation: its generation.
            replaced_pins: pins of the receipt that it replaces.
            fresh: True to use the newest versions.
        """
        plan: Any = SimpleNamespace(window=WINDOW)
        replaced: Any = replaced_pins and SimpleNamespace(
            receipt=SimpleNamespace(pins=replaced_pins)
        )
        attempt = Attempt(plan, replaced, generation, "a", "fail", ())
        (pinned,) = with_pins(self.pipeline(), [attempt], fresh=fresh)
        return {pin.lookup: pin.version for pin in pinned.pins}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path, {"a": Source("delta:/a"), "b": Source("delta:/b")})


def move_versions(sources: Mapping[str, Source]) -> None:
    for source in sources.values():
        source.now = "2"


def test_a_retry_keeps_to_the_first_versions(tables: Tables) -> None:
    """A retry uses the first versions, and asks no source.

    A new or moved source gets its current version.
    """
    assert tables.pins() == {"a": "1", "b": "1"}
    move_versions(tables.sources)
    assert tables.pins() == {"a": "1", "b": "1"}
    assert tables.sources["a"].version_calls == 1
    tables.sources["b"].identity = "delta:/elsewhere"
    tables.sources["c"] = Source("delta:/c", "7")
    assert tables.pins() == {"a": "1", "b": "2", "c": "7"}


def test_a_replay_keeps_to_its_receipts_versions(tables: Tables) -> None:
    """A replay uses its receipt's versions, also after the ledger was lost, unless it is to use
    the newest.
    """
    receipt_pins = (Pin("a", "delta:/a", "1"), Pin("b", "delta:/b", "1"))
    move_versions(tables.sources)
    assert tables.pins(1, receipt_pins) == {"a": "1", "b": "1"}
    assert tables.pins(2, receipt_pins, fresh=True) == {"a": "2", "b": "2"}
    assert tables.pins(2, receipt_pins) == {"a": "2", "b": "2"}


def test_windows_together_ask_once(tables: Tables) -> None:
    """Windows that are pinned together ask each source once, and have the same version."""
    attempts = [
        Attempt(cast("Any", SimpleNamespace(window=window)), None, 0, str(number), "fail", ())
        for number, window in enumerate([Window("p", 5, 6), Window("p", 6, 7)])
    ]
    pinned = with_pins(tables.pipeline(), attempts)
    assert pinned[0].pins == pinned[1].pins
    assert tables.sources["a"].version_calls == 1


def test_a_window_that_may_be_shown_in_part_is_not_pinned_anew(tables: Tables) -> None:
    """A window that may be visible in part isn't pinned again: a second run would add rows of
    other versions.
    """
    tables.atomic = "partition"
    assert tables.pins(fresh=True) == {"a": "1", "b": "1"}
    move_versions(tables.sources)
    with pytest.raises(SpecError, match="piece by piece") as refused:
        tables.pins(fresh=True)
    assert "Bring back the version" in refused.value.advice
    assert tables.pins() == {"a": "1", "b": "1"}
