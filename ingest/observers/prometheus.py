"""Figures for Prometheus: in a file for node_exporter's textfile collector, or at a Pushgateway.

A run is a process that ends, and the next run would count from 0 again. So a report reads
the current figures from the file or the Pushgateway. It adds what the run has counted since
its last report, and writes the sums.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from windrow.ingest.errors import UnreachableError, require_extra
from windrow.ingest.ports.observer import FIGURES, Observer

REST = 60.0
"""The seconds without a report after a failed one, so that not every window waits for a timeout."""

TIMEOUT = 5.0
"""The seconds for which a Pushgateway may send nothing; a report may take twice as long."""

MOST_BYTES = 16 << 20
"""The most bytes of a Pushgateway's answer, which has the figures of all its groups."""


def observer_of(pipeline_id: str) -> Observer | None:
    """Makes the observer that the environment configures; None if it configures none."""
    destination = os.environ.get("WINDROW_METRICS")
    return Prometheus(pipeline_id, destination) if destination else None


class Prometheus:
    """The observer (`ports.observer.Observer`): a file, or a Pushgateway's group, per pipeline.

    The destination is a folder, or a Pushgateway's URL.
    """

    def __init__(self, pipeline_id: str, destination: str) -> None:
        self._pipeline, self._destination = pipeline_id, destination.rstrip("/")
        self._figures, self._merged = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
        self._rests_until = 0.0

    def see(self, figure: str, value: float, label: str = "") -> None:
        previous_total = (
            self._figures.get((figure, label), 0.0) if figure.endswith("_total") else 0.0
        )
        self._figures[figure, label] = previous_total + value

    def report(self) -> None:
        if time.monotonic() < self._rests_until:
            return
        self._rests_until = time.monotonic() + REST
        try:
            with require_extra("prometheus", "Figures can't be told to Prometheus"):
                self._write()
        except OSError as error:  # other errors may quote a password in the URL
            raise UnreachableError(
                f"Figures of {self._pipeline} can't be told to Prometheus: {error}",
                "setup",
                "Windows go on. Check WINDROW_METRICS: an existing folder, or a Pushgateway's URL.",
            ) from None
        self._figures, self._rests_until = {}, 0.0

    def _write(self) -> None:
        from prometheus_client import write_to_textfile

        if self._destination.startswith(("http://", "https://")):
            self._push_in_time()
        else:
            file = Path(self._destination) / f"windrow-{self._pipeline}.prom"
            self._merge(file.read_bytes() if file.exists() else b"")
            write_to_textfile(str(file), self)

    def _push_in_time(self) -> None:
        """Pushes in a thread, which is left alone if the Pushgateway's answer doesn't end.

        Raises:
            OSError: the figures aren't pushed.
        """
        from urllib.error import HTTPError

        pushed, given_up = Future[None](), Event()

        def push() -> None:
            try:
                self._push(given_up)
                pushed.set_result(None)
            except BaseException as error:  # noqa: BLE001
                if isinstance(error, HTTPError):  # it holds a connection, and this frame holds it
                    error.close()
                pushed.set_exception(error)

        Thread(target=push, daemon=True).start()
        try:
            pushed.result(2 * TIMEOUT)
        except TimeoutError:
            raise OSError(f"no whole answer within {2 * TIMEOUT:g} seconds") from None
        finally:
            given_up.set()

    def _push(self, given_up: Event) -> None:
        """Reads the totals and pushes the new ones, unless the report was given up meanwhile."""
        from urllib.request import urlopen

        from prometheus_client import push_to_gateway

        with urlopen(f"{self._destination}/metrics", timeout=TIMEOUT) as response:  # noqa: S310
            text = response.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise OSError("its answer is too large")
        if not given_up.is_set():
            self._merge(text)
            group = {"pipeline": self._pipeline}
            push_to_gateway(self._destination, "windrow", self, grouping_key=group, timeout=TIMEOUT)

    def _merge(self, text: bytes) -> None:
        """Adds the new figures to this pipeline's figures in a text, if the text can be read.

        For a figure that isn't a total, the new values replace all its series, because a
        deleted topic must have none.
        """
        from prometheus_client.parser import text_string_to_metric_families

        self._merged = dict(self._figures)
        with suppress(ValueError):
            for family in text_string_to_metric_families(text.decode()):
                for name, labels, value, *_ in family.samples:
                    if name in FIGURES and labels.get("pipeline") == self._pipeline:
                        key = name, labels.get(FIGURES[name][1], "")
                        if name.endswith("_total") or all(
                            name != seen_figure for seen_figure, _ in self._figures
                        ):
                            self._merged[key] = value + self._figures.get(key, 0.0)

    def collect(self) -> Iterator[Any]:
        """Yields the figures in the form that Prometheus's client needs."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (description, label) in FIGURES.items():
            make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = make(name, description, labels=["pipeline", *filter(None, [label])])
            for (figure, value_of), value in self._merged.items():
                if figure == name:
                    family.add_metric([self._pipeline, *filter(None, [value_of])], value)
            yield family
