"""The pictures of `docs/dagster.md` and `docs/airflow.md`: for each the page, the texts that it
must show, and clicks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from tests.airflow.demo import start_backfill
from tests.airflow.standalone import until
from tests.screenshots.browser import Page, browser
from tests.screenshots.history import FIRST
from tests.screenshots.shop import history, shop
from windrow.ingest.model.boundary import instant

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Picture:
    """A picture.

    Attributes:
        name: name of its file.
        path: path of the page, with the names of places in braces.
        texts: texts that the page must show.
        size: width and height of the window in pixels.
        crop: pixels that are cut off at the left and at the top.
        clicks: texts to click.
        then: texts that the page must show after each click.
    """

    name: str
    path: str
    texts: tuple[str, ...]
    size: tuple[int, int] = (1280, 800)
    crop: tuple[int, int] = (240, 0)
    clicks: tuple[str, ...] = ()
    then: tuple[str, ...] = ()

    def take(self, page: Page, url: str, places: Mapping[str, str]) -> bytes:
        """Opens the page, and returns the picture."""
        page.resize(*self.size)
        page.open(url + self.path.format(**places), *self.texts)
        for text in self.clicks:
            page.click(text)
            page.wait(*self.then)
        return page.picture(*self.crop)


DAGSTER = (
    Picture(
        "lineage",
        "/locations/shop/asset-groups/shop/lineage",
        ("shop.orders", "billing_dead", "hourly_revenue", "Kafka", "Spark", "Polars"),
        (1500, 1500),
    ),
    Picture(
        "partition",
        "/assets/billing?view=partitions&partition={lost}",
        ("200 offsets lost", "rows_written", "dead_reasons", "late"),
        (1500, 860),
    ),
    Picture(
        "refused",
        "/assets/billing?view=events&partition={refused}",
        ("Refused", "limits.max_dead_ratio", "/opt/shop/billing/defs.yaml"),
        (1280, 670),
    ),
    Picture(
        "checks",
        "/assets/billing?view=checks&checkDetail=loss",
        ("completeness", "offsets lost", "They can't be read any more"),
        (1280, 715),
    ),
    Picture(
        "batches",
        "/assets/customers?view=partitions&partition=batch-000000002",
        ("batch-000000003", "rows_added", "deletes"),
        (1500, 860),
    ),
    Picture(
        "schedule",
        "/locations/shop/schedules/fraud_scores_waiting",
        ("fraud_scores_waiting", "0 runs requested"),
        (1280, 290),
        (0, 0),
        clicks=("0 runs requested",),
        then=("is paused by ann", "windrow resume"),
    ),
    Picture(
        "sensor",
        "/locations/shop/sensors/billing_complete",
        ("billing_complete", "0 runs requested"),
        (1280, 290),
        (0, 0),
        clicks=("0 runs requested",),
        then=("No window has become complete", "the watermark"),
    ),
    Picture(
        "plots",
        "/assets/kafka/shop.customers?view=overview",
        ("head", "lag_records", "lag_seconds"),
        (1280, 1010),
        clicks=("Plots",),
    ),
    Picture(
        "dead-letters",
        "/assets/billing_dead?view=checks&checkDetail=dead_letters",
        ("windrow dead show /opt/shop/billing/defs.yaml",),
        (1280, 755),
    ),
    Picture(
        "resource",
        "/locations/shop/resources/refunds_kafka",
        ("KAFKA_PASSWORD", "kafka.shop.example:9093"),
        (1500, 550),
    ),
    Picture(
        "run",
        "/runs/{scored}?levels=info%7Cevent&logs=step%3Afraud_scores",
        ("Reading window", "messages (", "left", "Materialized value fraud_scores", "STEP_SUCCESS"),
        (1280, 1500),
        (240, 577),
    ),
)

AIRFLOW = (
    Picture(
        "dag",
        "/dags/orders/runs",
        ("shop.orders", "Dag Runs", "Success", "Backfill"),
        (1400, 781),
        (64, 0),
    ),
    Picture(
        "event",
        "/dags/orders/runs/{run}/tasks/run/asset_events",
        ("Partition Key: ", "WindrowRunOperator"),
        (1400, 800),
        (64, 0),
        clicks=("codicon-folding-collapsed",),
        then=("dead_letters", "table_version", "digest"),
    ),
)


def take_all(folder: Path) -> dict[Path, bytes]:
    """Takes all pictures, with a folder for all that they need.

    Returns:
        The pictures by their path below docs.

    Raises:
        RuntimeError: the browser's console has errors.
    """
    home = folder / "home"
    home.mkdir()
    with history(home) as demo_home:
        with shop(demo_home) as dagster:
            pictures = _take("dagster", DAGSTER, dagster.url, dagster.places, folder)
        with start_backfill(demo_home) as airflow:
            until(lambda: airflow.is_backfilled("orders"), "the end of the backfill", 900)
            key = instant(demo_home.start() + timedelta(hours=FIRST))
            places = {"run": quote(airflow.runs("orders")[key]["dag_run_id"])}
            return pictures | _take("airflow", AIRFLOW, airflow.url, places, folder)


def _take(
    name: str, pictures: Sequence[Picture], url: str, places: Mapping[str, str], folder: Path
) -> dict[Path, bytes]:
    """Takes pictures with a browser whose profile is in the folder."""
    with browser(folder / name) as page:
        picture_by_path = {
            Path(name, f"{picture.name}.png"): picture.take(page, url, places)
            for picture in pictures
        }
        if page.errors:
            raise RuntimeError("\n".join(["The browser's console isn't silent:", *page.errors]))
    return picture_by_path
