"""Broken commits to a catalog, each one step from the real one."""

from __future__ import annotations

from typing import Any

from windrow.ingest.sinks.iceberg.commit import Prepared


def lets_pyiceberg_retry(sink: Any) -> None:
    """Sends by PyIceberg's own commit, which tries again on a state that nobody looked at."""
    sink.store.send = Prepared.commit_transaction
