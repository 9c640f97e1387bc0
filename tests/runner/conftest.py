"""A cluster in memory, and a desk that runs pipelines on it.

Modules that need another desk define their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.logs import Logs, MemoryCluster
from tests.contracts.source_desk import SourceDesk
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.reader import MemoryReader


@pytest.fixture
def cluster() -> MemoryBroker:
    """A new cluster in memory."""
    return MemoryBroker()


@pytest.fixture
def desk(cluster: MemoryBroker, tmp_path: Path) -> SourceDesk:
    """A desk on the cluster."""
    logs = Logs(MemoryCluster(cluster))
    return SourceDesk(
        logs,
        cluster.with_isolation,
        lambda isolation, plan: MemoryReader(cluster.with_isolation(isolation), plan),
        tmp_path,
    )
