"""windrow in Airflow 3: each window is a partition of a DAG, run by the command `windrow`.

A name is imported when it is first used. Airflow itself is imported only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow_airflow.dags import dags_from
    from windrow_airflow.operators import (
        WindrowCatchUpOperator,
        WindrowCompleteSensor,
        WindrowEventsOperator,
        WindrowMaintainOperator,
        WindrowRunOperator,
        WindrowTooEarly,
        WindrowUnreachable,
    )

__all__ = [
    "WindrowCatchUpOperator",
    "WindrowCompleteSensor",
    "WindrowEventsOperator",
    "WindrowMaintainOperator",
    "WindrowRunOperator",
    "WindrowTooEarly",
    "WindrowUnreachable",
    "dags_from",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    home = "dags" if name == "dags_from" else "operators"
    return getattr(import_module(f"windrow_airflow.{home}"), name)
