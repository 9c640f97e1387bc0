"""Whoever does what a message says is helped: each message is provoked on a real table, and its
advice is followed word by word.

A kind of store has a module here with `ROWS`, one `Advice` for each way to break it, and `world`,
which makes what they stand on.
"""

from __future__ import annotations

import pytest

from tests.advice import delta, files, iceberg, kafka, ledger, postgres, routes, s3, sqlite
from tests.advice.world import Advice, World
from tests.cli.conftest import Stage, stage

__all__ = ["stage"]

KINDS = {
    "delta": delta,
    "files": files,
    "iceberg": iceberg,
    "kafka": kafka,
    "ledger": ledger,
    "postgres": postgres,
    "routes": routes,
    "s3": s3,
    "sqlite": sqlite,
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        pytest.param(kind, advice, id=f"{kind}: {advice.name}")
        for kind, module in KINDS.items()
        for advice in module.ROWS
    ],
)
def test_advice_helps(
    stage: Stage,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    advice: Advice,
) -> None:
    """The message comes, each step of its advice is one that it names and works, and then all
    rows are there, everything verifies, and the next window goes in.
    """
    world: World = KINDS[kind].world(stage, request)
    world.patches = monkeypatch
    world.follows(advice)
    world.is_well()
