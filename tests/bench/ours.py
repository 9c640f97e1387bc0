"""windrow's side of the benchmark: the whole path of one daily window, fresh table and ledger each time.

python ours.py BOOTSTRAP OUT_DIR      then a topic per line on stdin; a JSON line on stdout per answer
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from meter import Meter

from ingest.assemble import assemble
from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine
from ingest.model.window import Window
from ingest.run.pipeline import Request, run
from ingest.spec.load import parse_spec
from tests.bench.orders import FIRST_MS

HERE = Path(__file__).parent


def main(bootstrap: str, out: str) -> None:
    """Answer until stdin ends."""
    session = local_session("local[2]")
    session.range(1).count()
    start = datetime.fromtimestamp(FIRST_MS / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        topic = line.strip()
        shutil.rmtree(out, ignore_errors=True)
        attributes = {
            "id": "bench", "source": {"bootstrap_servers": bootstrap, "topic": topic},
            "window": {"grid": "daily", "start": start.isoformat()},
            "decode": {"schema": "orders_schema.py:Order"}, "sink": {"kind": "delta", "path": f"{out}/table"}, "state": f"sqlite:///{out}/state.db",
        }  # fmt: skip
        Path(out).mkdir(parents=True)
        pipeline = assemble(parse_spec(attributes, HERE), SparkEngine(lambda: session))
        with Meter() as meter:
            result = run(pipeline, Window("bench", start, start + timedelta(days=1)), Request("bench"))
        rows = result.committed.receipt.counts.rows
        print(
            json.dumps({"seconds": meter.seconds, "cpu_seconds": meter.cpu_seconds, "worker_mb": meter.worker_mb, "rows": rows}),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
