"""The broker of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.permissions.guarded import GuardedBroker
from windrow.ingest.kafka.embedded.server import find_jars


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """A broker with an authorizer, for the module."""
    with GuardedBroker(tmp_path_factory.mktemp("guarded"), find_jars()) as broker:
        yield broker
