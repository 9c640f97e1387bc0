"""Loads a pipeline's spec, or reports all its mistakes at once.

A spec file is Dagster's component file (its other keys beside `attributes` are
Dagster's) or the attributes alone. The command and Dagster's component both load it
here, so it means the same to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import NOT_WRITTEN, PipelineSpec
from windrow.ingest.config.settings_file import (
    client_mistakes,
    refusal,
    text_of,
    validated,
    written_out,
)
from windrow.ingest.config.windrow_yaml import named_cluster
from windrow.ingest.settings.document import Document, Mistake, read_document, read_values
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.values import CODE_REFERENCE, cluster_name, section_of
from windrow.ingest.sinks.kind import OnClusterSection

_NAMING = ("source", "sink", "dead_letters")
"""The sections that may name a cluster of windrow.yaml."""


def load_spec(path: Path | str, document: int | None = None) -> PipelineSpec:
    """Loads the spec of a YAML file.

    Args:
        path: the file. Relative paths in it are relative to its folder.
        document: which of several YAML documents (from 0), which Dagster's component
            files may have; None: the file must have one.

    Raises:
        SpecError: the file can't be read, or is wrong: then with all its mistakes, each
            with its line and dotted name.
    """
    path = Path(path)
    text = text_of(path, f"The spec {path}", "Give the path of a pipeline's YAML file.")
    return _made(read_document(text, document), path.absolute().parent, str(path)).model_copy(
        update={"spec_file": path.absolute()}
    )


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """Makes the spec of attributes that come from Python.

    `folder`: relative paths are relative to it.

    Raises:
        SpecError: with all mistakes, each with its dotted name.
    """
    return _made(read_values(attributes), folder.absolute(), "the spec")


def _made(document: Document, folder: Path, name: str) -> PipelineSpec:
    spec, wrong = _checked(document.attributes, folder)
    # a place whose template failed has no value: pydantic's mistakes there are noise
    mistakes = [
        *document.mistakes,
        *(m for m in (*wrong, *written_out(document)) if not document.failed(m.path)),
    ]
    if mistakes or spec is None:
        raise refusal(name, mistakes, document)
    return spec


def _checked(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """Makes the spec, or lists all its mistakes."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    clusters, wrong = dict[str, ClusterSpec](), list[Mistake]()
    kinds = OfItsKind.of(PipelineSpec.model_fields["sink"])
    assert kinds is not None, "the sink is a section of several kinds"
    for name in _NAMING:
        section = section_of(attributes, name)
        if name == "sink" and not issubclass(kinds.model(section), OnClusterSection):
            continue
        named = _named(section, name, folder)
        if isinstance(named, Mistake):
            wrong.append(named)
            continue
        if named is not None:
            clusters[str(section["cluster"])] = named
        wrong += client_mistakes(section, (name,), named)
    wrong += _file_mistakes(attributes, folder)
    wrong += [
        Mistake((name,), f"unknown key; {why}")
        for name, why in NOT_WRITTEN.items()
        if name in attributes
    ]
    spec, found = validated(
        PipelineSpec, {**attributes, "folder": folder, "named_clusters": clusters}
    )
    known = {mistake.path for mistake in wrong}
    wrong += [mistake for mistake in found if mistake.path not in known]
    return (None if wrong else spec), wrong


def _named(section: Mapping[str, Any], name: str, folder: Path) -> ClusterSpec | Mistake | None:
    """Finds the cluster that a section names.

    None if it names none, or if the value can't be a name, which its own field reports.
    """
    cluster = section.get("cluster")
    try:
        return (
            named_cluster(cluster_name(str(cluster)), folder, name)
            if isinstance(cluster, str | int) and not isinstance(cluster, bool)
            else None
        )
    except ValueError:
        return None


def _file_mistakes(attributes: Mapping[str, Any], folder: Path) -> list[Mistake]:
    schema = section_of(attributes, "decode").get("schema")
    if not isinstance(schema, str) or not CODE_REFERENCE.fullmatch(schema):
        return []
    file = schema.rpartition(":")[0]
    with suppress(OSError):  # a name that is too long
        if not file.endswith(".py") or (folder / file).is_file():
            return []
    return [Mistake(("decode", "schema"), f"there is no file {file} in {folder}")]
