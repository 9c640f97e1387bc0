"""Messages that are left out because they killed their worker, in the command."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Stage, hour
from windrow.ingest.config.load import load_spec
from windrow.ingest.model.ledger_records import PoisonPill


def test_replay_tries_poison_pills_again(stage: Stage) -> None:
    """A replay decodes a message that is left out only with --try-again, and `run` takes it, too.

    `dead show` lists it until then. A retry of the same request ends no other record.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    ledger = stage.assemble(load_spec(Path(stage.spec))).ledger
    topic_id = ledger.recorded_receipts("things")[0].plan.stop.topics[0].topic_id
    pill = PoisonPill("shop.things", topic_id, 0, 1, 0, True, "value", "signal 9", stage.now)
    ledger.put_poison_pill("things", pill)
    replay = ("replay", stage.spec, "--window", hour(0))
    left_out = stage.json(*replay)["windows"][0]["committed"]["receipt"]
    (warning,) = left_out["warnings"]
    assert "shop.things[0]@1 (signal 9) is left out" in warning
    assert "--try-again" in warning
    shown = stage.call("dead", "show", stage.spec, "--reason", "poison_pill", "--json").stdout
    assert "It killed its process: signal 9" in shown
    for _ in range(2):
        again = (*replay, "--try-again", "--request", "once")
        tried = stage.json(*again)["windows"][0]["committed"]["receipt"]
        assert (tried["warnings"], tried["generation"]) == ([], 2)
    (record,) = ledger.poison_pills("things")
    assert (record.number, record.left_out) == (1, False)
    assert stage.json("run", stage.spec, "--window", hour(1), "--try-again")["windows"]
