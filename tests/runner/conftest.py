"""A cluster in memory, and a desk at which pipelines run on it; modules that need
another desk have their own.
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
    """A new one."""
    return MemoryBroker()


@pytest.fixture
def desk(cluster: MemoryBroker, tmp_path: Path) -> SourceDesk:
    """On the cluster."""
    logs = Logs(MemoryCluster(cluster))
    return SourceDesk(
        logs,
        cluster.with_isolation,
        lambda isolation, plan: MemoryReader(cluster.with_isolation(isolation), plan),
        tmp_path,
    )
