"""What every kind of sink here promises of a writer that is slower than a sweep's grace period."""

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
    """Runs unchanged on every sink."""

    def test_a_writer_that_a_sweep_overtakes(
        self, sink: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """1 A writes, and is stopped.  2 A sweep finds its file old, and gives it up.
        3 A writes on, and commits.  4 The sweep removes it.

        Whether A commits or is refused, no row is lost.
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
