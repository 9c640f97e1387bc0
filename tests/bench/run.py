"""`make bench`: the whole path beside Spark's own Kafka source, in turns, on the same topic and the same broker.

Prints ratios of pairs that ran one after the other: on a shared machine a single time says little. Exits with 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from tests.bench.orders import fill

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".windrow" / "bench"
MAX_RATIO = 0.6
MAX_WORKER_MB = 600
MAX_GROWTH = 1.15
"""Of a fresh worker's peak with four times the messages. Not 1: two runs of the same window differ by some percent."""
PARTITIONS = 4


class Side:
    """A process that does its work once per line it is given, and answers with its figures."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        msg = f"{self._process.args} ended without an answer:\n{self._log.read_text()[-3000:]}"
        raise RuntimeError(msg)

    def once(self, topic: str) -> dict[str, float]:
        """One run."""
        assert self._process.stdin is not None
        self._process.stdin.write(topic + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """No more lines."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def peer_environment() -> tuple[Path, Path]:
    """The peer's own Python and jars, made once."""
    python, jars = CACHE / "venv" / "bin" / "python", CACHE / "jars"
    if not (CACHE / "ready").exists():
        print("Setting up the peer: pyspark 4.0.0 and its Kafka connector ...", flush=True)
        venv.create(CACHE / "venv", with_pip=True, clear=True)
        uv = Path(sys.executable).parent / "uv"
        lock = str(HERE / "peer-requirements.lock")
        subprocess.run([uv, "pip", "sync", "-q", "--python", python, "--require-hashes", lock], check=True, timeout=3600)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(["mvn", "-B", "-q", "-f", str(HERE / "peer-pom.xml"), *goal], check=True, timeout=3600)
        (CACHE / "ready").touch()
    return python, jars


def line(name: str, n: int, figures: list[dict[str, float]]) -> str:
    """Median figures of one side."""
    seconds = statistics.median(f["seconds"] for f in figures)
    cpu = statistics.median(f["cpu_seconds"] for f in figures)
    peak = max(f["worker_mb"] for f in figures)
    memory = f", at most {peak:.0f} MB in a Python worker" if peak else ""
    return f"{name:42s} {seconds:6.2f} s  {n / seconds / 1e3:6.0f} k rows/s  {cpu / n * 1e6:5.2f} CPU s per million rows{memory}"


def compare(bootstrap: str, n: int, pairs: int, scratch: Path) -> list[str]:
    """Run both sides in turns; the broken limits."""
    small, large = f"bench.orders.{n // 4}", f"bench.orders.{n}"
    for topic, count in ((small, n // 4), (large, n)):
        print(
            f"{topic}: {count:,} messages of {fill(bootstrap, topic, count, PARTITIONS):.0f} bytes in {PARTITIONS} topic-partitions",
            flush=True,
        )
    python, jars = peer_environment()
    fresh = Side(scratch / "small.log", sys.executable, str(HERE / "ours.py"), bootstrap, str(scratch / "small"))
    of_small = fresh.once(small)
    fresh.end()
    ours = Side(scratch / "ours.log", sys.executable, str(HERE / "ours.py"), bootstrap, str(scratch / "ours"))
    peer = Side(scratch / "peer.log", str(python), str(HERE / "peer_spark.py"), bootstrap, large, str(jars), str(scratch / "peer"))
    of_large = ours.once(large)
    peer.once(large)  # the first run of each warms up
    results = []
    for pair in range(pairs):
        a, b = ours.once(large), peer.once(large)
        results.append((a, b))
        print(
            f"pair {pair + 1}: windrow {a['seconds']:.2f} s, Spark {b['seconds']:.2f} s, ratio {a['seconds'] / b['seconds']:.2f}",
            flush=True,
        )
        assert a["rows"] == b["rows"] == n, (a, b)
    ours.end(), peer.end()
    print(line("windrow: strict JSON, pandera, Delta commit", n, [a for a, _ in results]))
    print(line("Spark's Kafka source, from_json, Parquet", n, [b for _, b in results]))
    ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in results)
    peaks = of_small["worker_mb"], of_large["worker_mb"], max(a["worker_mb"] for a, _ in results)
    print(f"median ratio of time {ratio:.2f} (limit {MAX_RATIO})")
    print(f"peak of a fresh Python worker {peaks[0]:.0f} MB with {n // 4:,} messages, {peaks[1]:.0f} MB with {n:,}; "
          f"{peaks[2]:.0f} MB after {pairs + 1} windows (limit {MAX_WORKER_MB} MB)")  # fmt: skip
    broken = [f"ratio {ratio:.2f} > {MAX_RATIO}"] if ratio > MAX_RATIO else []
    broken += [f"a Python worker took {p:.0f} MB" for p in peaks if p > MAX_WORKER_MB]
    return broken + ([f"memory grows with the window: {peaks[0]:.0f} MB, {peaks[1]:.0f} MB"] if peaks[1] > MAX_GROWTH * peaks[0] else [])


def main() -> None:
    """Parse, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch, EmbeddedBroker(Path(scratch) / "kafka", find_jars()) as broker:
        broken = compare(broker.bootstrap, options.messages, options.pairs, Path(scratch))
    if broken:
        sys.exit("limits broken: " + "; ".join(broken))


if __name__ == "__main__":
    main()
