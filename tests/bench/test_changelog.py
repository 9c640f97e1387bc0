"""A table with a primary key has the same rows as the changelog of a real Flink."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.bench.changelog import Said, compare_customers

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize("where", ["TRUE", "credit IS NOT NULL AND MOD(credit, 3) = 0"])
def test_it_is_what_flink_makes_of_the_topic(
    kafka: str, tmp_path: Path, dice: random.Random, where: str
) -> None:
    """The rows of windrow and Flink are the same, in any order of commits.

    The topic has updates, deletes and messages without a key. With a filter, rows begin and
    cease to meet it.
    """
    windrow_customers, flink_customers = compare_customers(
        kafka, tmp_path, Said(4000, 300, dice.randrange(2**31), where)
    )
    assert windrow_customers == flink_customers
    assert len(windrow_customers) > 20
