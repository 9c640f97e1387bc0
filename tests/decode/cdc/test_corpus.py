"""The corpora of changes: each message becomes what stands beside it, alone and among all others."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ingest.ports.decoder import Decoder
from tests.contracts.values import valued, verdicts, whole
from tests.decode.cdc.corpus import CANAL, DEBEZIUM, MAXWELL, WRITTEN, Corpus, Verdict
from tests.decode.cdc.formats import BINLOG, CUSTOMERS, FORMS, PRODUCTS, WITH_SCHEMA


def wrapped(corpus: Corpus) -> Corpus:
    """The same with each message's schema beside it, where it is one that can stand inside something else."""
    inside = [(name, value, verdict) for name, value, verdict in corpus if isinstance(verdict, list) or verdict == "filtered"]
    return [(name, b'{"schema":{"type":"struct","fields":[]},"payload":' + (value or b"") + b"}", verdict) for name, value, verdict in inside]


CORPORA: dict[str, tuple[Decoder, Corpus]] = {
    "debezium": (CUSTOMERS, DEBEZIUM), "debezium with schema": (WITH_SCHEMA, wrapped(DEBEZIUM)), "debezium's forms": (FORMS, WRITTEN),
    "canal": (PRODUCTS, CANAL), "maxwell": (BINLOG, MAXWELL),
}  # fmt: skip


def became(decoder: Decoder, values: Sequence[bytes | None]) -> list[Verdict]:
    """A verdict for each message; `gone` where it is neither a row nor a dead letter."""
    decoded = decoder.open()(valued(values))
    whole(decoded, decoder.columns.arrow_schema, len(values))
    found = verdicts(decoded)
    return [
        "gone" if i not in found else [tuple(row.values()) for row in found[i]] if isinstance(found[i][0], dict) else found[i][0][:2]
        for i in range(len(values))
    ]


def expected(verdict: Verdict) -> Verdict:
    """The same as `became` tells it."""
    return "gone" if isinstance(verdict, str) else verdict


@pytest.mark.parametrize(
    ("of", "number"), [pytest.param(of, i, id=f"{of}: {name}") for of, (_, corpus) in CORPORA.items() for i, (name, _, _) in enumerate(corpus)]
)
def test_a_message_becomes_what_stands_beside_it(of: str, number: int) -> None:
    """Its rows to the last digit, or stage and reason; what is neither is counted as dropped or filtered."""
    decoder, corpus = CORPORA[of]
    _, value, verdict = corpus[number]
    assert became(decoder, [value]) == [expected(verdict)]
    decoded = decoder.open()(valued([value]))
    assert (decoded.dropped, decoded.filtered) == (int(verdict == "dropped"), int(verdict == "filtered"))


@pytest.mark.parametrize("of", CORPORA)
def test_messages_do_not_move_each_other(of: str) -> None:
    """All messages in one batch, in any order and any often, become what they are alone."""
    r, (decoder, corpus) = random.Random(7), CORPORA[of]
    for _ in range(20):
        strewn = r.choices(corpus, k=120)
        assert became(decoder, [value for _, value, _ in strewn]) == [expected(verdict) for _, _, verdict in strewn]


def test_the_corpora_are_large_enough() -> None:
    """More than a hundred messages; each tool has rows, refusals, and what is only counted."""
    assert sum(len(corpus) for _, corpus in CORPORA.values()) > 100
    for corpus in (DEBEZIUM, CANAL, MAXWELL):
        assert {type(verdict) for _, _, verdict in corpus} == {list, tuple, str}


def test_reasons_say_where() -> None:
    """What is refused is told by its path in the envelope, whatever the envelope lies in."""
    details = {name: became_in_words(CUSTOMERS, value) for name, value, _ in DEBEZIUM}
    assert details["row that misses a column"] == "Expected a value, got none - at $.after.first_name"
    assert details["delete without a before-image"] == "Expected a value, got none - at $.before"
    assert details["unknown operation"] == "Expected a change that Debezium has (c, r, u, d, t, m) - at $.op"
    assert details["truncate"] == "Expected the change of a row, got all rows' removal - at $.op"
    assert details["source's time as a text"] == "Expected int, got str - at $.source.ts_ms"
    assert became_in_words(WITH_SCHEMA, b'{"payload":{"op":"c","after":{"id":1}}}') == "Expected a value, got none - at $.payload.after.first_name"
    canal = {name: became_in_words(PRODUCTS, value) for name, value, _ in CANAL}
    assert canal["one row of several misses its name"] == "Expected a value, got none - at $.data[...].name"
    assert canal["a row that is null"] == "Expected a value, got none - at $.data[...]"
    assert canal["no table"] == "Expected a value, got none - at $.table"


def became_in_words(decoder: Decoder, value: bytes | None) -> str | None:
    """Why it was refused; None if it wasn't."""
    detail = decoder.open()(valued([value])).dead_detail
    return str(detail[0].as_py()) if len(detail) else None
