"""Broken commits to a catalog. Each differs from the real one in one step."""

from __future__ import annotations

from typing import Any

from windrow.ingest.sinks.iceberg.commit import Prepared


def lets_pyiceberg_retry(sink: Any) -> None:
    """Makes a sink send with PyIceberg's own commit, which retries on a state that the sink
    hasn't looked at.
    """
    sink.store.send = Prepared.commit_transaction
