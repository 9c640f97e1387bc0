"""Figures for Prometheus: in a file for node_exporter's textfile collector, or at a Pushgateway.

A run is a process that ends, and the next run would count from 0 again. So a report reads
the current figures from the file or the Pushgateway. It adds what the run has counted since
its last report, and writes the sums.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from windrow.ingest.call_limits import run_in_time
from windrow.ingest.errors import UnreachableError, require_extra
from windrow.ingest.ports.observer import FIGURES, Observer
from windrow.ingest.settings.paths import without_secrets

REST = 60.0
"""The seconds without a report after a failed one, so that not every window waits for a timeout."""

TIMEOUT = 5.0
"""The seconds of each of a report's two requests to a Pushgateway."""

MOST_BYTES = 16 << 20
"""The most bytes of a Pushgateway's answer, which has the figures of all its groups."""

_Series = tuple[str, tuple[str, ...]]
"""A figure's name, and the values of its labels."""


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
        self._figures, self._merged = dict[_Series, float](), dict[_Series, float]()
        self._rests_until = 0.0

    def see(self, figure: str, value: float, *labels: str) -> None:
        previous_total = (
            self._figures.get((figure, labels), 0.0) if figure.endswith("_total") else 0.0
        )
        self._figures[figure, labels] = previous_total + value

    def report(self) -> None:
        if time.monotonic() < self._rests_until:
            return
        self._rests_until = time.monotonic() + REST
        try:
            with require_extra("prometheus", "Figures can't be told to Prometheus"):
                self._write()
        except OSError as error:  # other errors may quote a password in the URL
            raise UnreachableError(
                f"Figures of {self._pipeline} can't be told to Prometheus at"
                f" {without_secrets(self._destination)}: {error}",
                "setup",
                "Windows go on. Check WINDROW_METRICS: an existing folder, or a Pushgateway's URL.",
            ) from None
        self._figures, self._rests_until = {}, 0.0

    def _write(self) -> None:
        from prometheus_client import write_to_textfile

        if self._destination.startswith(("http://", "https://")):
            self._push()
        else:
            file = Path(self._destination) / f"windrow-{self._pipeline}.prom"
            self._merge(file.read_bytes() if file.exists() else b"")
            write_to_textfile(str(file), self)

    def _push(self) -> None:
        """Reads the totals of a Pushgateway, and pushes the new ones.

        Raises:
            OSError: the figures aren't pushed.
        """
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, build_opener

        from prometheus_client import push_to_gateway

        class _NoRedirects(HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                """Makes a redirection an error."""

        def read() -> bytes:
            opener = build_opener(_NoRedirects)
            with opener.open(f"{self._destination}/metrics", timeout=TIMEOUT) as response:
                text = bytes(response.read(MOST_BYTES))
                if response.length or response.read(1):
                    raise OSError("its answer is too large, or ends too early")
                return text

        def push() -> None:
            push_to_gateway(
                self._destination,
                "windrow",
                self,
                grouping_key={"pipeline": self._pipeline},
                timeout=TIMEOUT,
            )

        try:
            self._merge(run_in_time(read, TIMEOUT))
            run_in_time(push, TIMEOUT)
        except HTTPError as error:
            error.close()  # it holds a connection
            raise

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
                        key = name, tuple(labels.get(label, "") for label in FIGURES[name][1])
                        if name.endswith("_total") or all(
                            name != seen_figure for seen_figure, _ in self._figures
                        ):
                            self._merged[key] = value + self._figures.get(key, 0.0)

    def collect(self) -> Iterator[Any]:
        """Yields the figures in the form that Prometheus's client needs."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (description, label_names) in FIGURES.items():
            make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = make(name, description, labels=["pipeline", *label_names])
            for (figure, labels), value in self._merged.items():
                if figure == name:
                    family.add_metric([self._pipeline, *labels], value)
            yield family
