"""The engine without Spark keeps the contract of the real one."""

from __future__ import annotations

import pytest

from ingest.testing.engine import LocalEngine
from tests.contracts.engine_contract import EngineContract
from tests.engine.tasks import DiesInMemory


class TestLocalEngine(EngineContract):
    """The contract, in this process."""

    dies = DiesInMemory

    @pytest.fixture
    def engine(self) -> LocalEngine:
        return LocalEngine()
