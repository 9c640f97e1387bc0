"""The commit protocols as state machines: each keeps its promises in every state, and each
broken twin is found.
"""

from __future__ import annotations

import random
import sys

import pytest

from tests.protocols import __main__ as command
from tests.protocols.explore import explore, replay, wander
from tests.protocols.fenced import FencedIds
from tests.protocols.table import PROTOCOLS, TWINS, crowd

EVERY = [
    (name, scenario) for name, protocol in PROTOCOLS.items() for scenario in protocol().scenarios
]
SEEDS = 200


@pytest.mark.some(2)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "scenario"), EVERY)
def test_every_state_keeps_the_promises(name: str, scenario: str) -> None:
    """Two runs, in every order and with every crash and lost reply, keep INV-1 to INV-5.

    Runs without faults commit from each state.
    """
    protocol = PROTOCOLS[name]()
    explored = explore(protocol, protocol.scenarios[scenario])
    steps = explored.broken and replay(
        protocol, protocol.scenarios[scenario], explored.broken.choices
    )
    assert explored.broken is None, "\n".join(steps or ())
    assert explored.states > 1_000, "the scenario was hardly explored"


@pytest.mark.some(2)
@pytest.mark.slow
@pytest.mark.sampled(1, of=100)
@pytest.mark.parametrize(("name", "scenario"), EVERY)
def test_ways_by_chance_keep_the_promises(
    part: int, dice: random.Random, name: str, scenario: str
) -> None:
    """Three runs in random orders keep the promises."""
    protocol = PROTOCOLS[name]()
    wide = crowd(protocol.scenarios[scenario])
    for seed in (dice.randrange(2**32) for _ in range(SEEDS)):
        explored = wander(protocol, wide, seed)
        steps = explored.broken and replay(protocol, wide, explored.broken.choices)
        assert explored.broken is None, f"seed {seed}:\n" + "\n".join(steps or ())


@pytest.mark.parametrize("scenario", FencedIds().scenarios)
def test_kafka_fences_again(dice: random.Random, scenario: str) -> None:
    """Runs that fence, look and write again after a lost id or answer keep the promises, in
    random orders.
    """
    protocol = FencedIds()
    base_scenario = protocol.scenarios[scenario]
    retrying_processes = tuple(p._replace(args=(*p.args, 3)) for p in base_scenario.processes)
    for seed in (dice.randrange(2**32) for _ in range(SEEDS)):
        explored = wander(protocol, base_scenario._replace(processes=retrying_processes), seed)
        assert explored.broken is None, f"seed {seed}: {explored.broken}"


@pytest.mark.parametrize(
    ("name", "twin"), [(name, twin) for name, twins in TWINS.items() for twin in twins]
)
def test_a_twin_is_caught(name: str, twin: str) -> None:
    """Each twin breaks its promise at its step, and the same way breaks it again."""
    breakage = TWINS[name][twin]
    protocol = breakage.protocol_type()
    explored = explore(protocol, protocol.scenarios[breakage.scenario])
    assert explored.broken is not None
    *_, step, violation = replay(
        breakage.protocol_type(), protocol.scenarios[breakage.scenario], explored.broken.choices
    )
    assert breakage.breaks in violation
    assert breakage.breaking_step in step


def test_a_broken_promise_is_shown_and_had_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints numbered steps, and a command that repeats them exactly.

    Its exit code reports the broken promise.
    """

    def run_main(*words: str) -> str:
        monkeypatch.setattr(
            sys,
            "argv",
            [
                "protocols",
                "--protocol",
                "kafka",
                "--twin",
                "random-id",
                "--scenario",
                "two windows",
                *words,
            ],
        )
        assert command.main() == (not words)
        return capsys.readouterr().out

    shown = run_main()
    steps = [line for line in shown.splitlines() if line.startswith("  ")]
    trace = shown.partition("--trace ")[2].strip()
    assert steps[-1].strip().startswith("BROKEN")
    assert run_main("--trace", trace).splitlines() == steps


def test_ways_by_chance_find_a_twin() -> None:
    """Random ways find a twin within a thousand."""
    protocol = TWINS["delta"]["path-write"].protocol_type()
    wide = crowd(protocol.scenarios["one window twice"])
    assert any(wander(protocol, wide, seed).broken for seed in range(1_000))
