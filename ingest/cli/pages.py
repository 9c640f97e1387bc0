"""`help`: pages of the documentation, from the package. Imported only when the command runs."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from windrow.ingest.cli.output import Output
from windrow.ingest.errors import SpecError


def show_page(output: Output, name: str | None) -> None:
    """Shows a page, as Markdown. Without a name, it shows the names of all pages.

    Raises:
        SpecError: there is no such page.
    """
    pages = {page.stem: page for page in (Path(__file__).parents[2] / "docs").rglob("*.md")}
    if name is not None and name not in pages:
        raise SpecError(
            f"There is no page {name}", "spec", f"There are {', '.join(sorted(pages))}."
        )
    text = "\n".join(sorted(pages)) if name is None else pages[name].read_text("utf-8")
    output.show({"page": name, "text": text}, Text(text))
