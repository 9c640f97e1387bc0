"""Clusters that several pipelines share: a windrow.yaml in the spec's folder, or above it.

Only the nearest one counts. The search upwards ends at a repository's root (a folder
with .git), at the user's home, and below a folder that everybody may write to, where
the file could be anybody's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.settings_file import (
    client_mistakes,
    refusal,
    text_of,
    validated,
    written_out,
)
from windrow.ingest.settings.document import Mistake, nearest, read_document
from windrow.ingest.settings.values import ClusterName, Section, section_of

FILE = "windrow.yaml"


class SharedSpec(Section):
    """A windrow.yaml: clusters by the names that specs use."""

    clusters: Annotated[Mapping[ClusterName, ClusterSpec], Field(min_length=1)]


def find_shared(folder: Path) -> tuple[Path | None, Path]:
    """Finds the windrow.yaml of a folder (None: no file), and the last folder searched."""
    here, home = Path(os.path.realpath(folder)), Path(os.path.realpath(Path("~").expanduser()))
    for folder_ in chain([here], here.parents):
        # also if it is no file: the next one above may give the name to another cluster
        if os.path.lexists(folder_ / FILE):
            return folder_ / FILE, folder_
        if folder_ == home or (folder_ / ".git").exists() or _is_world_writable(folder_.parent):
            return None, folder_
    return None, Path(here.anchor)


def _is_world_writable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def named_cluster(name: str, folder: Path, section: str = "source") -> ClusterSpec | Mistake:
    """Finds a cluster by its name in the windrow.yaml of a spec's folder.

    If it isn't found, the result is the mistake of the spec's section that names it.
    The file's other clusters are not checked: their templates may need another
    machine's environment.

    Raises:
        SpecError: the file can't be read, or is wrong: then with all its mistakes, each
            with its line.
    """
    path, (file, last) = (section, "cluster"), find_shared(folder)
    if file is None:
        where = (
            f"{folder}" if last == folder else f"{folder} and in the folders above it, up to {last}"
        )
        return Mistake(
            path,
            f"there is no {FILE}, which would say what cluster {name} is: it was looked for in"
            f" {where}",
        )
    if not file.is_file():
        return Mistake(
            path, f"{file} is no file that can be read: it would say what cluster {name} is"
        )
    document = read_document(
        text_of(file, f"The file {file}", "See that it can be read, and is a YAML file."),
        envelope=False,
    )
    attributes = document.attributes if isinstance(document.attributes, Mapping) else {}
    clusters = section_of(attributes, "clusters")
    wrong = [
        m for m in document.mistakes if m.path[:1] != ("clusters",) or m.path[1:2] in {(), (name,)}
    ]
    if name not in clusters and clusters and not wrong:
        near = nearest(name, list(clusters))
        meant = f"; did you mean {near}?" if near else ""
        return Mistake(
            path, f"{file} has no cluster {name}: there are {', '.join(clusters)}{meant}"
        )
    found, more = _checked(name, attributes, clusters)
    more += [mistake for mistake in written_out(document) if mistake.path[:2] == ("clusters", name)]
    wrong += [mistake for mistake in more if not document.failed(mistake.path)]
    if wrong or found is None:
        raise refusal(str(file), wrong, document)
    return found


def _checked(
    name: str, attributes: Mapping[str, Any], clusters: Mapping[str, Any]
) -> tuple[ClusterSpec | None, list[Mistake]]:
    """Makes the cluster of that name, or lists the mistakes.

    These are its own, and those outside of `clusters`.
    """
    wanted = {name: clusters[name]} if name in clusters else attributes.get("clusters")
    shared, wrong = validated(
        SharedSpec, {**attributes, **({} if wanted is None else {"clusters": wanted})}
    )
    wrong += client_mistakes(section_of(clusters, name), ("clusters", name))
    return (None if shared is None else shared.clusters[name]), wrong
