"""`windrow rebase`: a dry run, and recording with --yes."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.cli.conftest import START, Stage, hour
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.testing.broker import MemoryBroker


@pytest.fixture
def anew(stage: Stage) -> Stage:
    """Two hours are committed; then the topic is made again, with three messages of the
    third hour.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.broker.recreate_topic("shop.things", 2)
    _fill(stage.broker)
    return stage


def _fill(broker: MemoryBroker) -> None:
    for i in range(3):
        broker.produce(
            TopicPartition("shop.things", 0),
            b'{"id": %d}' % i,
            timestamp=START + timedelta(hours=2, seconds=i),
        )


def test_nothing_to_rebase(stage: Stage) -> None:
    """Before the first run, and without a change, a rebase is refused."""
    assert "no frozen boundary yet" in stage.json("rebase", stage.spec, code=2)["error"]["message"]
    stage.json("run", stage.spec, "--window", hour(0))
    assert (
        "nothing to rebase" in stage.json("rebase", stage.spec, "--yes", code=2)["error"]["message"]
    )


def test_a_topic_made_anew(anew: Stage) -> None:
    """After a rebase, the next windows read the new topic from its start.

    Before it, runs are refused, and a dry run records nothing. Verification finds nothing
    wrong.
    """
    refused = anew.json("run", anew.spec, "--window", hour(2), code=1)["error"]
    assert refused["kind"] == "IdentityError"
    assert f"windrow rebase {anew.spec} shows" in refused["message"]
    dry = anew.call("rebase", anew.spec)
    assert dry.exit_code == 0
    assert "it begins at offset 0" in dry.stdout
    loss_message = (
        "Messages of the old topic from shop.things[0]@6, shop.things[1]@4 on were read by no"
    )
    assert loss_message in " ".join(dry.stdout.split())
    assert f"Nothing was recorded; add --yes to go on so from {hour(2)}." in dry.stdout
    proposed = anew.json("rebase", anew.spec)
    assert proposed["recorded"] is False
    assert (
        anew.json("run", anew.spec, "--window", hour(2), code=1)["error"]["kind"] == "IdentityError"
    ), "a look recorded something"
    recorded = anew.json("rebase", anew.spec, "--yes")
    assert recorded == proposed | {"recorded": True}
    ran = anew.json("run", anew.spec, "--window", hour(2))["windows"][0]["committed"]["receipt"]
    assert ran["counts"]["read"] == 3
    assert {f["level"] for f in anew.json("verify", anew.spec)["findings"]} == {"info"}
    assert "the source was replaced" in anew.call("verify", anew.spec).stdout
    assert "nothing to rebase" in anew.json("rebase", anew.spec, code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("start", "read"), [("latest", 0), ("partition:0,offset:1?earliest", 2), ("earliest", 3)]
)
def test_where_it_begins(anew: Stage, start: str, read: int) -> None:
    """`--start` says from where the new topic is read, and the output shows it."""
    output = anew.call("rebase", anew.spec, "--start", start, "--yes").stdout
    assert "shop.things[0]" in output
    assert "Recorded: " in output
    ran = anew.json("run", anew.spec, "--window", hour(2))["windows"][0]["committed"]["receipt"]
    assert ran["counts"]["read"] == read


def test_a_wrong_start(anew: Stage) -> None:
    """A wrong position records nothing."""
    assert (
        "is not a position"
        in anew.json("rebase", anew.spec, "--start", "begin", "--yes", code=2)["error"]["message"]
    )
    assert anew.json("rebase", anew.spec)["recorded"] is False


def test_another_cluster(stage: Stage) -> None:
    """After a move to another cluster, the user must give a position.

    windrow can't know which of its messages are in the table already.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.broker = MemoryBroker("elsewhere")
    stage.broker.create_topic("shop.things", 2, retention_ms=None)
    _fill(stage.broker)
    message = stage.json("rebase", stage.spec, code=2)["error"]["message"]
    advised = re.findall(rf"windrow (rebase {re.escape(stage.spec)} --start \w+)", message)
    also = re.findall(r"(--start) timestamp: .* as in (timestamp:\S+Z)\.", message)
    assert stage.json("rebase", stage.spec, *also[0])["recorded"] is False
    assert stage.json(*advised[0].split(), "--yes")["boundary"]["cluster_id"] == "elsewhere"
    assert (
        stage.json("run", stage.spec, "--window", hour(2))["windows"][0]["committed"]["receipt"][
            "counts"
        ]["read"]
        == 3
    )


def test_a_second_rebase_at_a_later_label(anew: Stage) -> None:
    """A topic that is made again twice, with windows in between, is rebased twice."""
    anew.json("rebase", anew.spec, "--yes")
    anew.json("run", anew.spec, "--window", hour(2))
    anew.broker.recreate_topic("shop.things", 2)
    assert anew.json("rebase", anew.spec, "--yes")["recorded"] is True
    assert anew.json("run", anew.spec, "--window", hour(3))["windows"]


def test_lag_and_doctor_after_a_rebase(anew: Stage) -> None:
    """After a rebase, `lag` counts the unread messages of the new topic."""
    anew.json("rebase", anew.spec, "--yes")
    assert anew.json("lag", anew.spec)["lag"]["records"] == 3
    assert anew.json("doctor", anew.spec)["checks"][-1]["name"] == "retention"
