"""`verify --deep` finds a change, and its advice repairs it."""

from __future__ import annotations

from deltalake import DeltaTable

from tests.cli.conftest import Stage, hour


def test_tampering_is_found_and_fixed(stage: Stage) -> None:
    """A changed value is found by --deep with exit code 1, and the advised replay repairs it.

    `verify` without --deep doesn't find it.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    healthy = {"windows": 2, "rows": 8, "findings": []}
    assert stage.json("verify", stage.spec, "--deep") == healthy
    DeltaTable(str(stage.folder / "lake" / "things")).update(
        {"id": "id + 1"}, predicate=f"_window = '{hour(1)}'"
    )
    assert stage.json("verify", stage.spec) == healthy
    findings = stage.json("verify", stage.spec, "--deep", code=1)["findings"]
    assert [(f["level"], f["about"], f["window"], f["what"].split()[0]) for f in findings] == [
        ("wrong", "table", hour(1), f"shop.things[{p}]") for p in range(2)
    ]
    assert all(f"windrow replay SPEC --window {hour(1)}" in f["do"] for f in findings)
    assert "2 things wrong" in stage.call("verify", stage.spec, "--deep").stdout
    stage.json("replay", stage.spec, "--window", hour(1))
    assert stage.json("verify", stage.spec, "--deep") == healthy
