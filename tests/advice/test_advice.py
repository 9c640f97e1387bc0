"""The advice in messages helps: each message is caused on a real table, and followed literally.

Each kind of store has a module in this folder. Its `ROWS` have an `Advice` for each damage, and
its `world` returns the pipeline to damage.
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
    """The message is printed, and each step of its advice works.

    Then all rows are in the table, verification finds nothing, and the next windows are
    committed.
    """
    world: World = KINDS[kind].world(stage, request)
    world.patches = monkeypatch
    world.follows(advice)
    world.is_well()
