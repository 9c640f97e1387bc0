"""The contract of every sink about a writer that is slower than a sweep's grace period."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from tests.clock import clock_ahead
from windrow.ingest.errors import WindrowError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts import windows
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest


class SweepContract(SinkUnderTest):
    """The promises of a sink about such a writer."""

    def test_a_writer_that_a_sweep_overtakes(
        self, sink: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sweep that overtakes a slow writer loses no row, whether the writer commits or is
        refused.

        1. Writer A writes, and stops.
        2. A sweep finds A's file old, and decides to remove it.
        3. A goes on, and commits.
        4. The sweep removes the file.
        """
        stopped, wakes, remove = Event(), Event(), Place.remove
        monkeypatch.setattr("windrow.ingest.sinks.kit.files.file_stager.GROUP_ROWS", 1)

        def stop(point: str) -> None:
            if point == "write.middle" and not stopped.is_set():
                stopped.set()
                assert wakes.wait(60)

        def late(folder: Place, path: str) -> None:
            wakes.set()
            if current_thread() is not writer:
                writer.join(60)
            remove(folder, path)

        with monkeypatch.context() as patch:
            patch.setattr(windows, "crash_point", stop)
            patch.setattr(Place, "remove", late)
            writer = Thread(target=self._commit_or_not, args=(self.reopen(sink),))
            writer.start()
            assert stopped.wait(60)
            with clock_ahead(timedelta(hours=2)):
                self.reopen(sink).sweep_both(timedelta(hours=1))
            wakes.set()
            writer.join(60)
            assert not writer.is_alive()
        assert isinstance(self.commit(self.reopen(sink), 0, attempt="again"), (Done, AlreadyDone))
        assert self.report(sink, [0]).ok, str(self.report(sink, [0]))

    def _commit_or_not(self, sink: Any) -> None:
        with suppress(WindrowError):
            self.commit(sink, 0)
