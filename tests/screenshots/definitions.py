"""The demo's two pipelines; and one with refused and lost data, one that calls a service, and
one whose cluster needs a password.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from tests.screenshots.history import FIRST
from windrow.assets import definitions as demo
from windrow.assets.demo.place import ORDERS_SPEC
from windrow.dagster import kafka_table, partitions_of, table_key, when_complete
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.boundary import instant

SCORED = f"{Path(__file__).parent}/scored.py"


def _spec(name: str, start: datetime, **changes: Any) -> PipelineSpec:
    """Returns the orders' pipeline with another id, another table and these changes."""
    attributes = yaml.safe_load(ORDERS_SPEC.read_text(encoding="utf-8"))["attributes"]
    table = {"kind": "delta", "path": f"{os.environ['WINDROW_HOME']}/demo/lake/{name}"}
    window = {"grid": "hourly", "start": instant(start), "delay": "1m"}
    window["max_wait"] = "7d"  # the last hour is neither complete nor overdue
    sections = {"id": name, "sink": table, "window": window}
    spec = parse_spec(attributes | sections | changes, ORDERS_SPEC.parent)
    return spec.model_copy(update={"spec_file": Path(f"/opt/shop/{name}/defs.yaml")})


@dg.definitions
def defs() -> dg.Definitions:
    """Returns all pipelines, and an asset that follows a complete hour."""
    start = datetime.fromisoformat(os.environ["ORDERS_START"])
    topic = {"topic": "shop.orders", "bootstrap_servers": os.environ["WINDROW_BOOTSTRAP"]}
    shown = {"group_name": "shop", "owners": ["team:billing"]}
    billing = _spec(
        "billing",
        start + timedelta(hours=FIRST),
        source={**topic, "on_loss": "skip"},
        limits={"max_dead_ratio": 0.001},
        dagster=shown,
    )
    scores = _spec(
        "fraud_scores",
        start,
        source={**topic, "tuning": {"batch_messages": 1000}},
        window={"grid": "batch"},
        transform={"steps": [{"python": f"{SCORED}:scored", "schema": f"{SCORED}:Scored"}]},
        dagster=shown,
    )
    refunds = _spec(
        "refunds",
        start,
        source={
            "topic": "shop.refunds",
            "bootstrap_servers": "kafka.shop.example:9093",
            "client": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "billing",
                "sasl.password": {"env": "KAFKA_PASSWORD"},
            },
        },
        dagster=shown,
    )

    @dg.asset(
        deps=[table_key(billing)],
        partitions_def=partitions_of(billing),
        group_name="shop",
        kinds={"polars"},
    )
    def hourly_revenue() -> None:
        """What an hour has earned, once all of its orders are there."""

    return dg.Definitions.merge(
        demo.defs(),
        kafka_table(billing),
        kafka_table(scores),
        kafka_table(refunds),
        dg.Definitions(assets=[hourly_revenue], sensors=[when_complete(billing, [hourly_revenue])]),
    )
