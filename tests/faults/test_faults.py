"""One I/O call of a command fails: nothing is lost, silent or unexplained."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import typer

from tests.faults.child import TWINS
from tests.faults.harness import Case, Ended, cases_of, judge, wrong_of
from tests.faults.injector import Target
from tests.faults.places import (
    COMMANDS,
    LEDGERS,
    PLACES,
    SINKS,
    SPARED,
    Servers,
    commands_at,
    serving,
)
from tests.s3.server import S3Server
from windrow.ingest.cli.main import app
from windrow.ingest.ledger.database import NAME_QUERIES
from windrow.ingest.sinks.kinds import KINDS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

COMMANDS_AT_PLACES = [(place, command) for place in PLACES for command in commands_at(place)]


@pytest.fixture(scope="module")
def servers(kafka: str, postgres: str, s3_server: S3Server) -> Iterator[Servers]:
    """The servers of all cases."""
    url = postgres.replace("postgresql+psycopg://", "postgresql://", 1)
    with serving(kafka, url, s3_server) as servers:
        yield servers


def names(commands: typer.Typer, prefix: str = "") -> Iterator[str]:
    """Yields the names of all commands."""
    for command in commands.registered_commands:
        assert command.callback is not None
        yield prefix + (command.name or command.callback.__name__)
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from names(group.typer_instance, f"{prefix}{group.name} ")


def test_every_kind_and_command_meets_faults() -> None:
    """Each kind of sink and of ledger, and each command that does I/O, has a line in a table."""
    assert SINKS.keys() == KINDS.keys()
    assert {ledger for _, _, ledger in PLACES.values()} == LEDGERS.keys() == NAME_QUERIES.keys()
    assert set(names(app)) == COMMANDS.keys() - {"run again", "maintain aged"} | SPARED


@pytest.mark.some(1)
@pytest.mark.parametrize(("place", "command"), COMMANDS_AT_PLACES)
def test_a_call_fails(servers: Servers, dice: random.Random, place: str, command: str) -> None:
    """A call of a command fails, in a way that the seed draws.

    The command is not ended by a bug, and doesn't wait silently. Its advice works: the same
    command does its work, all messages are in the table or its dead letters once, and
    `verify --deep` finds nothing.
    """
    cases = [c for c in cases_of(place, command, servers) if c.target.mode != "gone"]
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda case: judge(case, servers), dice.sample(cases, 2)))
    for verdict in verdicts:
        assert not verdict.wrong, f"{verdict.case} ({verdict.hit}): {verdict.wrong} {verdict.text}"


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (Ended(70, "this is a bug in windrow, report it, run it again"), "bug"),
        (Ended(3, "Traceback (most recent call last) ... again"), "bug"),
        (Ended(3, "The table can't be read."), "no advice"),
        (Ended(0, "", silent=True), "without a message"),
        (Ended(-1, "Waiting"), "didn't end"),
    ],
)
def test_what_is_wrong_with_an_end(ended: Ended, says: str) -> None:
    """Each way to end badly is noticed; an error with an advice is none."""
    (wrong,) = wrong_of(ended)
    assert says in wrong
    assert wrong_of(Ended(3, "It can't be read. Check it, then run this again.")) == []


CASES_OF_TWINS = {
    "silent": (Case("sqlite here", "plan", Target("kafka", 3, "stall")), "without a message"),
    "raising": (Case("sqlite here", "pause", Target("file", 1, "full")), "a bug"),
    "losing": (Case("sqlite here", "run again", Target("kafka", 3, "cut")), "verify"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_windrow_is_found(servers: Servers, twin: str) -> None:
    """A silent wait, an error that nobody explains, and a lost row are each found."""
    case, says = CASES_OF_TWINS[twin]
    verdict = judge(case, servers, twin)
    assert verdict.hit
    assert any(says in wrong for wrong in verdict.wrong), verdict
