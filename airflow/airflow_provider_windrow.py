"""The description of the provider for Airflow.

Airflow also imports a module with the distribution's name.
"""

from __future__ import annotations


def provider_info() -> dict[str, str]:
    """Returns the provider as `airflow providers list` shows it."""
    return {
        "package-name": "airflow-provider-windrow",
        "name": "windrow",
        "description": "windrow: each pipeline is a DAG, each window a partition of it",
    }
