"""DataFrames are read and written with the rights of docs/permissions.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windrow
from tests.permissions.features import KAFKA
from tests.permissions.guarded import PASSWORD, GuardedBroker
from tests.permissions.test_kafka import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_dataframes_need_no_further_right(
    spark: SparkSession, guarded: GuardedBroker, tmp_path: Path
) -> None:
    """Rows of a topic are read and written with the rights to read a topic, and of the sink."""
    (tmp_path / "password").write_text(PASSWORD)
    by_name = {feature.name: feature for feature in KAFKA}
    scene = Scene(guarded, by_name["sink_makes_control"], tmp_path)
    rights = (
        right
        for name in ("read", "sink_makes_control")
        for right in by_name[name].named(**scene.names)
    )
    client = {**guarded.user(rights), "sasl.password": {"file": str(tmp_path / "password")}}
    cluster = {"bootstrap_servers": guarded.guarded, "client": client}
    (tmp_path / "windrow.yaml").write_text(json.dumps({"clusters": {"prod": cluster}}))
    spec = tmp_path / "out.yaml"
    sink = {
        "cluster": "prod",
        "topic": scene.names["TARGET"],
        "staging": "./staging",
        "transactional_id_prefix": scene.names["PREFIX"],
    }
    spec.write_text(json.dumps({"id": "out", "sink": sink}))
    splits = json.dumps([{"topic": scene.names["TOPIC"], "partition": 0, "start": 0, "stop": 1}])
    options = {f"client.{name}": str(value) for name, value in client.items()}
    options["client.sasl.password"] = PASSWORD
    spark.dataSource.register(windrow.WindrowSource)
    spark.dataSource.register(windrow.WindrowKafka)
    frame = (
        spark.read.format("windrow")
        .option("bootstrap_servers", guarded.guarded)
        .options(**options)
        .option("splits", splits)
        .load()
    )
    assert frame.count() == 1
    rows = spark.range(1)
    rows.write.format("windrow-kafka").option("spec", str(spec)).option("batch", 1).mode(
        "append"
    ).save()
