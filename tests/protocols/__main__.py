"""Explores a protocol, or has one way of it again.

python -m tests.protocols [--protocol kafka] [--twin random-id] [--scenario "one window
twice"]     every state python -m tests.protocols --protocol kafka --seeds 1000 [--first
1]                                 ways by chance, with a third run python -m
tests.protocols --protocol kafka --twin random-id --scenario "..." --trace 0.2.1
that way, as numbered steps python -m tests.protocols --protocol kafka --scenario "..."
--seed 17                               that seed's way, likewise
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from tests.protocols.explore import Explored, Protocol, Scenario, explore, replay, wander
from tests.protocols.table import PROTOCOLS, TWINS, crowd


def tell(protocol: Protocol, scenario: Scenario, explored: Explored, rerun_options: str) -> bool:
    """Returns whether no promise is broken; otherwise prints the steps, and the command that
    repeats them.
    """
    if explored.broken is None:
        return True
    print("\n".join(replay(protocol, scenario, explored.broken.choices)))
    print(
        f"the same again: python -m tests.protocols {rerun_options} --trace"
        f" {'.'.join(map(str, explored.broken.choices))}"
    )
    return False


def every_state(protocol: Protocol, name: str, rerun_options: str) -> bool:
    """Explores every state of a scenario, and returns whether no promise is broken."""
    began, scenario = time.monotonic(), protocol.scenarios[name]
    explored = explore(protocol, scenario)
    print(
        f"{protocol.name}, {name}: {explored.states:,} states, {explored.steps:,} steps,"
        f" {time.monotonic() - began:.1f} s",
        flush=True,
    )
    return tell(protocol, scenario, explored, rerun_options)


def by_chance(protocol: Protocol, name: str, seeds: range, rerun_options: str) -> bool:
    """Explores random ways of a scenario with a third run, one per seed, up to the first broken
    promise.

    Returns whether no promise is broken.
    """
    scenario, steps = crowd(protocol.scenarios[name]), 0
    for seed in seeds:
        explored = wander(protocol, scenario, seed)
        steps += explored.steps
        if not tell(protocol, scenario, explored, f"{rerun_options} --crowded"):
            print(f"seed {seed}")
            return False
    print(
        f"{protocol.name}, {name}, three runs: seeds {seeds.start} to {seeds.stop - 1}, {steps:,}"
        " steps",
        flush=True,
    )
    return True


def chosen_scenarios(arguments: argparse.Namespace) -> Iterator[tuple[Protocol, str, str]]:
    """Yields each chosen protocol and scenario, and the options that choose it alone."""
    for name in [arguments.protocol] if arguments.protocol else PROTOCOLS:
        protocol = (
            TWINS[name][arguments.twin].protocol_type() if arguments.twin else PROTOCOLS[name]()
        )
        for scenario in [arguments.scenario] if arguments.scenario else protocol.scenarios:
            twin = f" --twin {arguments.twin}" if arguments.twin else ""
            yield protocol, scenario, f'--protocol {name}{twin} --scenario "{scenario}"'


def main() -> int:
    """Returns the exit code: 0 if no promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.protocols",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--protocol", choices=PROTOCOLS)
    parser.add_argument(
        "--twin", choices=sorted({twin for twins in TWINS.values() for twin in twins})
    )
    parser.add_argument("--scenario")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--crowded", action="store_true", help="with a third run, as seeds are")
    parser.add_argument("--trace")
    arguments = parser.parse_args()
    if arguments.twin and arguments.twin not in TWINS.get(arguments.protocol, {}):
        parser.error(
            f"--twin {arguments.twin} is of another protocol: name that one with --protocol"
        )
    good = True
    for protocol, name, rerun_options in chosen_scenarios(arguments):
        if name not in protocol.scenarios:
            parser.error(
                f"--scenario of {protocol.name} is one of: {', '.join(protocol.scenarios)}"
            )
        scenario = (
            crowd(protocol.scenarios[name]) if arguments.crowded else protocol.scenarios[name]
        )
        if arguments.trace is not None:
            print(
                "\n".join(replay(protocol, scenario, [int(n) for n in arguments.trace.split(".")]))
            )
        elif arguments.seed is not None:
            good &= by_chance(
                protocol, name, range(arguments.seed, arguments.seed + 1), rerun_options
            )
        elif arguments.seeds:
            good &= by_chance(
                protocol,
                name,
                range(arguments.first, arguments.first + arguments.seeds),
                rerun_options,
            )
        else:
            good &= every_state(protocol, name, rerun_options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
