"""What Airflow asks a provider for; it looks for a module with the distribution's name, too."""

from __future__ import annotations


def provider_info() -> dict[str, str]:
    """The provider, as `airflow providers list` shows it."""
    return {
        "package-name": "airflow-provider-windrow",
        "name": "windrow",
        "description": "windrow: each pipeline is a DAG, each window a partition of it",
    }
