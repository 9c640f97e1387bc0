"""The pictures of Dagster's and Airflow's pages: a browser sees what the docs promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.screenshots.pictures import AIRFLOW, DAGSTER, DOCS, take_all


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(2400)
def test_pages_show_what_their_pictures_do(tmp_path: Path) -> None:
    """Each page of a picture has its texts, and the browser's console has no errors."""
    for data in take_all(tmp_path).values():
        assert data.startswith(b"\x89PNG")


def test_pictures_are_shown() -> None:
    """The docs show exactly the pictures that the command makes, and together they are small."""
    picture_files = {f"dagster/{picture.name}.png" for picture in DAGSTER}
    picture_files |= {f"airflow/{picture.name}.png" for picture in AIRFLOW}
    files = {
        f"{folder}/{path.name}": path.stat().st_size
        for folder in ("dagster", "airflow")
        for path in (DOCS / folder).iterdir()
    }
    docs = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("**/*.md"))
    assert picture_files == set(files) == {name for name in files if f"{name})" in docs}
    assert sum(files.values()) < 1_500_000
