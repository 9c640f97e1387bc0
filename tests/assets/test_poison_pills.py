"""Messages that are left out because they killed their worker, in Dagster."""

from __future__ import annotations

from tests.assets.world import World, hour
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.ledger_records import PoisonPill


def test_a_replay_tries_poison_pills_again_if_the_config_says_so(world: World) -> None:
    """A replaced window leaves a poison pill out, unless the run's config says `try_again`."""
    world.fill(2)
    assert world.run(0).success
    receipt, ledger = world.receipt_of(0), open_ledger(world.spec.state_url())
    split = next(split for split in receipt.splits if split.valid)
    topic_id = receipt.plan.stop.topics[0].topic_id
    position = (split.topic, topic_id, split.partition, split.start)
    ledger.put_poison_pill("things", PoisonPill(*position, 0, True, "value", "signal 9", hour(100)))
    assert world.run(0, on_committed="replace").success
    assert world.receipt_of(0).reasons["poison_pill"] == 1
    assert world.run(0, on_committed="replace", try_again=True).success
    assert world.receipt_of(0).reasons["poison_pill"] == 0
    assert world.receipt_of(0).generation == 2
