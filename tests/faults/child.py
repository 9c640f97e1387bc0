"""The process of a case: it runs commands, one after the other, as its owner asks for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout
from datetime import timedelta
from io import TextIOBase
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.clock import clock_ahead
from tests.faults import syscalls
from windrow.ingest import assemble as assembly
from windrow.ingest import waiting
from windrow.ingest.cli.main import app
from windrow.ingest.config.load import load_spec
from windrow.ingest.ledger.database import Database
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.sinks.sqlite.store import SqliteState
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.with_dead_letters import read_dead
from windrow.ingest.testing.engine import LocalEngine

_WAITED = ExitStack()

Produced = Mapping[TopicPartition, Mapping[int, object]]
"""The messages that must be in the table, as the checker takes them."""


class _Told(TextIOBase):
    """A stream whose texts go to the owner at once."""

    def __init__(self, owner: Connection) -> None:
        self._owner, self._lock = owner, threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            self._owner.send(("said", text))
        return len(text)


def silent() -> None:
    """Breaks the messages about waits: the first one comes too late."""
    waiting.SECONDS = 1000.0


def raising() -> None:
    """Breaks the ledger: errors of its database aren't explained."""
    Database._explain_errors = lambda _: nullcontext()  # type: ignore[assignment, misc]  # noqa: SLF001


def losing() -> None:
    """Breaks the table in SQLite: each later commit loses a row of an earlier one."""
    put = SqliteState.put

    def put_and_lose(state: Any, change: Any) -> Any:
        if state._store.table == "orders":  # noqa: SLF001
            state._database.execute("DELETE FROM orders WHERE id = 0")  # noqa: SLF001
        return put(state, change)

    SqliteState.put = put_and_lose  # type: ignore[method-assign]


TWINS: Mapping[str, Callable[[], None]] = {
    twin.__name__: twin for twin in (silent, raising, losing)
}
"""Ways to break windrow in the process of a case, which cases must find."""


def serve(
    owner: Connection, supervisor: int, folder: Path, env: Mapping[str, str], twin: str
) -> None:
    """Runs commands in a folder until the owner closes the connection."""
    os.environ.update(env)
    if twin:
        TWINS[twin]()
    os.chdir(folder)
    handle = syscalls.hand_over()
    reduction.send_handle(owner, handle, supervisor)
    os.close(handle)
    for name in ("assemble", "assemble_to_look"):
        setattr(assembly, name, _on_local_engine(getattr(assembly, name)))
    told = _Told(owner)
    while True:
        try:
            request = owner.recv()
        except EOFError:
            os._exit(0)
        with redirect_stdout(told), redirect_stderr(told):  # type: ignore[type-var]
            answer = _answer(request)
        owner.send(("done", answer))


def _answer(request: Any) -> Any:
    """Waits for a while by the sinks' clock, makes the checker's report, or runs a command."""
    if isinstance(request, timedelta):
        return _WAITED.enter_context(clock_ahead(request))
    return _report(request) if isinstance(request, dict) else _call(request)


def _on_local_engine(assemble: Any) -> Any:
    return lambda spec, engine=None, *rest: assemble(spec, engine or LocalEngine(), *rest)


def _call(arguments: Sequence[str]) -> int:
    """Runs one command, and returns its exit code."""
    try:
        app(list(arguments), prog_name="windrow")
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("a command ends with its exit code")


def _report(produced: Produced) -> str:
    """Returns what is wrong in the table, by the checker; empty if nothing is."""
    pipeline = assembly.assemble_to_look(load_spec(Path("things.yaml")))
    receipts = [committed.receipt for committed in pipeline.sink.receipts()]
    audit = pipeline.sink.audit()
    pieces, dead = list[pa.Table](), list[pa.Table]()
    for receipt in receipts:
        for batch in audit.contents(receipt.window):
            order = [(audit.metadata[name], "ascending") for name in ("partition", "offset")]
            pieces.append(pa.Table.from_batches([batch]).sort_by(order))
        dead.append(read_dead(pipeline.sink, pipeline.dead_letters, receipt.window))
    report = check(produced, pieces, dead, receipts, content="id", metadata=audit.metadata)
    return "" if report.ok else str(report)
