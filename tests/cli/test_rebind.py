"""`windrow rebind` and `windrow verify --restore-receipts`: a dry run, and changes with --yes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli.conftest import Stage, hour


def rename_table(stage: Stage, path: str) -> None:
    """Changes the table's path in the spec."""
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("lake/things", path))


def test_a_moved_table(stage: Stage) -> None:
    """After a table was moved, commands are refused until `windrow rebind --yes`.

    A dry run records nothing. Then the next window is committed, and verification finds
    nothing.
    """
    assert "just run it" in stage.json("rebind", stage.spec, code=2)["error"]["message"]
    stage.json("run", stage.spec, "--window", hour(0))
    (stage.folder / "lake").rename(stage.folder / "moved")
    for command in ("show", "lag"):
        assert stage.json(command, stage.spec, code=1)["error"]["kind"] == "OwnerError"
    rename_table(stage, "moved/things")
    (stage.folder / "moved" / "things_dead").rename(stage.folder / "left")
    assert (
        "move their table (the same path with _dead) as well"
        in stage.call("rebind", stage.spec).stdout
    )
    (stage.folder / "left").rename(stage.folder / "moved" / "things_dead")
    for command in (
        ("run", "--window", hour(1)),
        ("plan", "--window", hour(1)),
        ("doctor", "--rebuild-ledger"),
    ):
        error = stage.json(command[0], stage.spec, *command[1:], code=1)["error"]
        assert error["kind"] == "OwnerError"
        assert f"windrow rebind {stage.spec} " in error["message"]
    dry = stage.call("rebind", stage.spec)
    assert dry.exit_code == 0
    assert "from now on it writes to delta:" in dry.stdout
    assert "_dead" not in dry.stdout
    assert "Nothing was recorded; add --yes" in dry.stdout
    proposed = stage.json("rebind", stage.spec)
    assert (proposed["there"], proposed["windows"], proposed["missing"], proposed["recorded"]) == (
        True,
        1,
        [],
        False,
    )
    assert (
        stage.json("run", stage.spec, "--window", hour(1), code=1)["error"]["kind"] == "OwnerError"
    ), "a look recorded something"
    assert stage.json("rebind", stage.spec, "--yes") == proposed | {"recorded": True}
    assert stage.json("run", stage.spec, "--window", hour(1))["windows"][0]["recovered"] is False
    assert stage.json("verify", stage.spec)["findings"] == []


def test_a_table_given_up(stage: Stage) -> None:
    """The windows that the ledger forgets are named, and can be run again."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    shutil.rmtree(stage.folder / "lake")
    restored = stage.call("verify", stage.spec, "--restore-receipts", "--yes")
    assert (restored.exit_code, "isn't there, and the ledger knows 2" in restored.stdout) == (
        1,
        True,
    )
    assert (
        "mounted?" in stage.json("run", stage.spec, "--window", hour(2), code=1)["error"]["message"]
    )
    assert f"{hour(0)} to {hour(1)}" in stage.call("rebind", stage.spec).stdout
    assert stage.json("rebind", stage.spec, "--yes")["missing"] == [hour(0), hour(1)]
    assert len(stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")["windows"]) == 3
    assert stage.json("verify", stage.spec)["findings"] == []


def test_lost_receipts(stage: Stage) -> None:
    """Verification advises --restore-receipts, which shows lost receipts, and restores them
    with --yes.

    If a receipt can't be restored, it ends with 1.
    """
    assert stage.call("verify", stage.spec, "--yes").exit_code == 2
    assert stage.call("verify", stage.spec, "--restore-receipts", "--deep").exit_code == 2
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert "Nothing to restore" in stage.call("verify", stage.spec, "--restore-receipts").stdout
    first, second = sorted((stage.folder / "lake" / "things" / "_windrow" / "receipts").iterdir())
    content = first.read_bytes()
    first.unlink()
    (finding,) = stage.json("verify", stage.spec, code=1)["findings"]
    assert (finding["window"], "windrow verify SPEC --restore-receipts" in finding["do"]) == (
        hour(0),
        True,
    )
    shown = stage.call("verify", stage.spec, "--restore-receipts")
    assert (shown.exit_code, "add --yes to restore 1 receipt." in shown.stdout, first.exists()) == (
        0,
        True,
        False,
    )
    assert stage.json("verify", stage.spec, "--restore-receipts", "--yes") == {
        "windows": [hour(0)],
        "failed": [],
        "dry_run": False,
        "listed": {},
    }
    assert first.read_bytes() == content
    assert stage.json("verify", stage.spec)["findings"] == []
    second.unlink()
    (stage.folder / ".windrow" / "state.db").unlink()
    assert [
        f["window"]
        for f in stage.json("verify", stage.spec, "--restore-receipts", "--yes", code=1)["failed"]
    ] == [hour(1)]


def test_a_ledger_that_was_left_behind(stage: Stage) -> None:
    """A ledger that can't be rebuilt here is rebuilt from the table in another place, as advised.

    `lag` says that the ledger doesn't know a committed window.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    state, moved_ledger = stage.folder / ".windrow" / "state.db", stage.folder / "kept.db"
    state.rename(moved_ledger)
    (stage.folder / "lake").rename(stage.folder / "other")
    stage.json("run", stage.spec, "--window", hour(0))
    shutil.rmtree(stage.folder / "lake")
    (stage.folder / "other").rename(stage.folder / "lake")
    message = stage.json("run", stage.spec, "--window", hour(1), code=1)["error"]["message"]
    assert f"windrow doctor {stage.spec} --rebuild-ledger" in message
    refused = stage.json("doctor", stage.spec, "--rebuild-ledger", code=1)["error"]
    assert refused["kind"] == "IdentityError"
    assert "or to one that doesn't exist yet" in refused["message"]
    spec = Path(stage.spec)
    spec.write_text(f"{spec.read_text()}state: other.db\n")
    unknown = f"The ledger doesn't know window {hour(0)}, which the table has"
    assert unknown in " ".join(stage.call("lag", stage.spec).stdout.split())
    stage.json("doctor", stage.spec, "--rebuild-ledger")
    assert unknown not in " ".join(stage.call("lag", stage.spec).stdout.split())
    stage.json("run", stage.spec, "--window", hour(1))
    assert stage.json("verify", stage.spec)["findings"] == []


def test_lost_pages(stage: Stage) -> None:
    """After the list of windows was lost, every command advises --restore-receipts.

    It brings the list and lost receipts back. Then the next window is committed.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    shutil.rmtree(stage.folder / "lake/things/_windrow/pages")
    next((stage.folder / "lake/things/_windrow/receipts").iterdir()).unlink()
    for command in (("show",), ("lag",), ("run", "--window", hour(2))):
        error = stage.json(command[0], stage.spec, *command[1:], code=1)["error"]
        assert f"windrow verify {stage.spec} --restore-receipts" in error["message"]
    (finding,) = stage.json("verify", stage.spec, code=1)["findings"]
    assert "windrow verify SPEC --restore-receipts" in finding["do"]
    shown = stage.call("verify", stage.spec, "--restore-receipts")
    assert f"{hour(1)}: in the table, and back in its list" in shown.stdout
    assert "Nothing was written; add --yes to restore the list of windows." in shown.stdout
    (listed,) = stage.json("verify", stage.spec, "--restore-receipts")["listed"].values()
    assert listed == [hour(0), hour(1)]
    done = stage.call("verify", stage.spec, "--restore-receipts", "--yes").stdout
    assert "Restored: 1 receipt and the list of windows." in done
    assert stage.json("run", stage.spec, "--window", hour(2))["windows"][0]["recovered"] is False
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []


def test_lost_pages_whose_rows_nobody_explains(stage: Stage) -> None:
    """If no receipt explains the rows, nothing is written, not even for the dead letters."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    for lost_folder in ("things/_windrow", "things_dead/_windrow/pages"):
        shutil.rmtree(stage.folder / "lake" / lost_folder)
    (stage.folder / ".windrow" / "state.db").unlink()
    error = stage.json("verify", stage.spec, "--restore-receipts", "--yes", code=1)["error"]
    assert "lake/things has lost which windows it holds" in error["message"]
    assert "Nothing was written." in error["message"]
    assert not (stage.folder / "lake/things_dead/_windrow/pages").exists()
