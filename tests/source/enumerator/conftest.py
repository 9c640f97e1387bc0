"""Fixtures for tests that plan windows over random logs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def short_scans() -> Iterator[None]:
    """Limits a search by timestamp to 25 messages, so that short logs also exceed the limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windrow.ingest.source.enumerator.timestamp_search.MOST_SCANNED", 25)
        yield


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for ledgers, one file per example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
