"""The demo's folders and files, and the environment of Dagster and the command.

    ROOT/.env                      the four variables below; other lines in it are left alone
    ROOT/dagster_home              Dagster's history
    ROOT/.windrow/demo/kafka       the broker
    ROOT/.windrow/demo/lake        the tables
    ROOT/.windrow/demo/sinks       the orders in other kinds of sinks, and their specs
    ROOT/.windrow/demo/state.db    the ledger
    ROOT/.windrow/demo/manifest.parquet   the produced orders
    ROOT/.windrow/demo/customers.parquet  the produced changes of customers
    ROOT/.windrow/demo/run.log     the output of Spark and Dagster
    ROOT/.windrow/demo/ui.json     the id of the UI's process

Broker, tables, ledger and manifests belong together: without the manifests the demo
begins anew.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dotenv import dotenv_values

from windrow.ingest.model.boundary import instant

PROJECT = Path(__file__).resolve().parents[2]
ORDERS_SPEC = PROJECT / "assets" / "defs" / "orders" / "defs.yaml"
CUSTOMERS_SPEC = PROJECT / "assets" / "defs" / "customers" / "defs.yaml"
OURS = {"DAGSTER_HOME", "WINDROW_HOME", "WINDROW_BOOTSTRAP", "ORDERS_START"}
"""The demo's variables in .env."""

CLOSED_FOR = timedelta(minutes=2)
"""The last window ends at least this long ago, so that it is closed (its delay is a minute)."""


class DemoHome:
    """The folders and files below a root folder; normally the project's own."""

    def __init__(self, root: Path) -> None:
        self.demo = root / ".windrow" / "demo"
        """The folder of all that the demo can throw away."""
        self.kafka = self.demo / "kafka"
        """The broker's folder."""
        self.manifest = self.demo / "manifest.parquet"
        """The produced orders; written last, so it exists only if all were produced."""
        self.customers = self.demo / "customers.parquet"
        """The produced changes of customers; written before the manifest."""
        self.ui_file = self.demo / "ui.json"
        """The file with the id of the UI's process."""
        self.log = self.demo / "run.log"
        """The output of Spark and Dagster."""
        self.dagster_home = root / "dagster_home"
        """DAGSTER_HOME."""
        self.env_file = root / ".env"
        """The .env file that Dagster and the command read."""

    def is_set_up(self) -> bool:
        """Returns whether all messages were produced, and .env has the start of their day."""
        return (
            self.manifest.exists()
            and self.customers.exists()
            and "ORDERS_START" in self._variables()
        )

    def _variables(self) -> dict[str, str | None]:
        return dict(dotenv_values(self.env_file)) if self.env_file.exists() else {}

    def clear(self) -> None:
        """Removes the demo's files, and makes its folders."""
        shutil.rmtree(self.demo, ignore_errors=True)
        self.demo.mkdir(parents=True)
        self.dagster_home.mkdir(exist_ok=True)
        settings = self.dagster_home / "dagster.yaml"
        if not settings.exists():
            shutil.copy(PROJECT / "dagster_home" / "dagster.yaml", settings)

    def write_env(self, bootstrap: str, start: datetime) -> None:
        """Writes the demo's variables into .env, all or none of them."""
        own_lines = {
            "DAGSTER_HOME": str(self.dagster_home),
            "WINDROW_HOME": str(self.demo.parent),
            "WINDROW_BOOTSTRAP": bootstrap,
            "ORDERS_START": instant(start),
        }
        lines = [*self._other_lines(), *(f"{k}='{v}'" for k, v in own_lines.items())]
        part = self.env_file.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n")
        part.replace(self.env_file)

    def forget(self) -> None:
        """Removes the demo's variables from .env, and the file if it has nothing else."""
        others = self._other_lines()
        if others:
            self.env_file.write_text("\n".join(others) + "\n")
        else:
            self.env_file.unlink(missing_ok=True)

    def _other_lines(self) -> list[str]:
        """Returns the lines of .env that don't belong to the demo."""
        lines = self.env_file.read_text().splitlines() if self.env_file.exists() else []
        return [line for line in lines if line.partition("=")[0].strip() not in OURS]

    def start(self) -> datetime:
        """Returns the start of the demo's day."""
        return datetime.fromisoformat(str(self._variables()["ORDERS_START"]))

    def enter(self) -> None:
        """Loads .env into this process's environment. It overrides the shell's variables."""
        os.environ.update(
            {name: value for name, value in self._variables().items() if value is not None}
        )


def last_full_day(now: datetime) -> datetime:
    """Returns the start of the last 24 full hours whose windows are closed."""
    return (now.astimezone(UTC) - CLOSED_FOR).replace(
        minute=0, second=0, microsecond=0
    ) - timedelta(hours=24)
