"""The lines of the corpus have their expected verdicts, alone and among all others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.formats.csv.corpus import BAD, GOOD
from windrow.ingest.formats.csv.decoder import CsvEncoding
from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import messages_with, verdicts

HERE = Path(__file__).parent
ORDERS = RowDecoder(
    ModelReference("models.py:Order", HERE), CsvEncoding(dialect=Dialect(null_literal="-"))
)


def became(lines: list[bytes]) -> list[object]:
    """Returns the row's values, or the reason, for each line."""
    verdict_by_index = verdicts(ORDERS.open()(messages_with(lines)))
    return [
        tuple(verdict.values())
        if isinstance(verdict := verdict_by_index[i][0], dict)
        else verdict[1]
        for i in range(len(lines))
    ]


@pytest.mark.parametrize("line", [*GOOD, *BAD], ids=repr)
def test_a_line_becomes_what_stands_beside_it(line: bytes) -> None:
    """A line becomes its exact values or its reason."""
    assert became([line]) == [GOOD.get(line, BAD.get(line))]


def test_lines_do_not_move_each_other() -> None:
    """The lines of a batch don't affect each other's verdicts, in any order."""
    r = random.Random(7)
    lines = [*GOOD, *BAD]
    for _ in range(20):
        strewn = r.choices(lines, k=200)
        assert became(strewn) == [GOOD.get(line, BAD.get(line)) for line in strewn]


def test_the_corpus_is_large_enough() -> None:
    """The corpus has at least thirty good and thirty hostile lines, and no line is both."""
    assert min(len(GOOD), len(BAD)) >= 30
    assert not GOOD.keys() & BAD.keys()
