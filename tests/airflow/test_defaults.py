"""The defaults of a DAG for settings that a pipeline's file leaves out, without Airflow."""

from __future__ import annotations

import ast

from pydantic import TypeAdapter

from tests.shape.readme import ROOT
from windrow.ingest.config.window import MicroBatches, TimeWindows
from windrow.ingest.model.grid import NAMED
from windrow.ingest.settings.values import Duration


def test_a_dag_goes_by_the_defaults_of_a_run() -> None:
    """The provider and windrow have the same names of grids, delay and ticks.

    The provider can't import windrow. With other defaults, runs would come too early or too
    late.
    """
    dags = ast.parse((ROOT / "airflow" / "windrow_airflow" / "dags.py").read_text("utf-8"))
    (named,) = (
        node.value
        for node in dags.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMED"
    )
    assert ast.literal_eval(named) == NAMED
    defaults = dict(
        map(ast.literal_eval, node.args)
        for node in ast.walk(dags)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "window.get"
    )
    delay = TypeAdapter(Duration).validate_python(defaults.pop("delay"))
    assert delay == TimeWindows.model_fields["delay"].default
    assert defaults == {"every": MicroBatches.model_fields["every"].default}
