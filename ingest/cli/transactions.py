"""`transactions`: open transactions of a Kafka sink's runs. Loaded only when it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.admin.transactions import (
    Ended,
    blocking_windows,
    end_transactions,
    plans_of,
    unfinished,
)
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.window import windows_named
from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.transactions import HeldBack, OpenTransactions, Transactional
from windrow.ingest.runner.context import Pipeline


class UnfinishedWindow(msgspec.Struct, frozen=True):
    """A window that was begun and isn't committed, and the transactional ids of its runs."""

    window: str
    ids: tuple[str, ...]


class TransactionList(msgspec.Struct):
    """The document of `transactions list`."""

    pipeline: str
    held_back: list[HeldBack]
    unfinished: list[UnfinishedWindow]


class TransactionsEnded(msgspec.Struct):
    """The document of `transactions abort`.

    `windows`: the windows whose transactions were ended, or would be.
    """

    pipeline: str
    windows: list[str]
    ids: list[str]
    held_back: list[HeldBack]
    aborted: bool


def list_transactions(output: Output, path: Path) -> None:
    """Shows the topic-partitions where readers wait, and the windows that they wait for."""
    pipeline = assemble.assemble_to_look(load_spec(path))
    transactions, name = _transactions(pipeline), pipeline.spec.id
    held_back, plans = transactions.held_back(), unfinished(name, pipeline.sink, pipeline.ledger)
    windows = [
        UnfinishedWindow(plan.window.key, tuple(transactions.ids(name, [plan]))) for plan in plans
    ]
    lines = [
        *map(_held_line, held_back),
        *(f"window {w.window} isn't committed; its ids: {', '.join(w.ids)}" for w in windows),
    ]
    if not held_back:
        lines.append("No open transaction holds readers back.")
    output.show(TransactionList(name, held_back, windows), *map(Text, lines))


def abort_transactions(
    output: Output, path: Path, window: str | None, *, yes: bool, force: bool
) -> None:
    """Ends transactions of dead runs if `yes`, or else shows them.

    Raises:
        RefusedError: a run seems to be alive, or the ledger doesn't know the window's plan.
    """
    spec = load_spec(path)
    pipeline = assemble.assemble_to_look(spec)
    transactions = _transactions(pipeline)
    plans = unfinished(spec.id, pipeline.sink, pipeline.ledger)
    if window is not None:
        plans = plans_of(windows_named(spec, window), pipeline.ledger)
    ended = (
        end_transactions(transactions, spec.id, plans, force=force)
        if yes
        else _preview(transactions, spec.id, plans)
    )
    document = TransactionsEnded(
        spec.id, list(ended.windows), list(ended.ids), list(ended.left), yes and bool(ended.windows)
    )
    output.show(document, *map(Text, [*map(_held_line, ended.left), _end(ended, yes=yes)]))


def _preview(transactions: OpenTransactions, name: str, plans: list[Plan]) -> Ended:
    """The result that ending the transactions would have."""
    held_back = transactions.held_back()
    keys = blocking_windows(held_back, {plan.window.key: plan for plan in plans})
    ids = (
        transactions.ids(name, [plan for plan in plans if plan.window.key in keys]) if keys else []
    )
    return Ended(tuple(sorted(keys)), tuple(ids), tuple(held_back))


def _transactions(pipeline: Pipeline) -> OpenTransactions:
    if not isinstance(pipeline.sink, Transactional):
        what = f"The table of pipeline {pipeline.spec.id} is not written in transactions of Kafka"
        raise SpecError(what, "spec", "Only a sink of kind kafka has them: leave this command out.")
    return pipeline.sink.transactions()


def _held_line(held: HeldBack) -> str:
    whose = (
        "an unknown transaction"
        if held.window is None
        else f"a transaction of window {held.window}"
    )
    return (
        f"{held.topic}[{held.partition}]: readers wait at offset {held.stable} of {held.end},"
        f" behind {whose}"
    )


def _end(ended: Ended, *, yes: bool) -> str:
    if not ended.windows:
        return "There is no open transaction of these windows."
    names = ", ".join(ended.windows)
    if not yes:
        return f"Nothing was ended; add --yes to end the transactions of {names}."
    if any(held.window in ended.windows for held in ended.left):
        return (
            f"Ended the transactions of {names} with this table's ids. Readers still wait for"
            " transactions with other ids, maybe of another pipeline."
        )
    return (
        f"Ended the transactions of {names}. Run {'it' if len(ended.windows) == 1 else 'them'}"
        " again when you like."
    )
