"""A spec file becomes a pipeline's spec, or all that is wrong with it.

A spec file is Dagster's component file (the keys beside `attributes` are Dagster's
business) or just the attributes. Values may hold `{{ env.NAME }}`, `{{ env('NAME') }}`
and `{{ env('NAME', 'default') }}`, the form that Dagster components use. All mistakes
are reported at once. The file is read here for the command and for Dagster alike, so it
means the same to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import NOT_WRITTEN, PipelineSpec
from windrow.ingest.config.reading import client_mistakes, refusal, text_of, validated, written_out
from windrow.ingest.config.shared import named_cluster
from windrow.ingest.settings.document import Document, Mistake, read_document, read_values
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.values import CODE_REFERENCE, cluster_name, section_of
from windrow.ingest.sinks.kind import OnClusterSection

_GIVEN = {
    "folder": "relative paths are relative to the spec's own folder",
    "spec_file": "it is the spec's own",
    "named_clusters": (
        "a cluster of windrow.yaml is named as the cluster of source, sink or dead_letters"
    ),
}

_NAMING: Mapping[str, tuple[str, ...]] = {
    "source": ("client", "tuning"),
    "sink": ("client",),
    "dead_letters": ("client",),
}
"""The sections that may name a cluster of windrow.yaml, and what each of them may say over it."""


def load_spec(path: Path | str, document: int | None = None) -> PipelineSpec:
    """Read the spec in a YAML file.

    Args:
        path: the file. Relative paths in it are relative to its folder.
        document: which of several documents (from 0), as Dagster's component files may
            hold; None: there must be one.

    Raises:
        SpecError: the file can't be read, or is wrong: then with all its mistakes at
            once, each with its line and dotted place.
    """
    path = Path(path)
    text = text_of(path, f"The spec {path}", "Give the path of a pipeline's YAML file.")
    return _made(read_document(text, document), path.absolute().parent, str(path)).model_copy(
        update={"spec_file": path.absolute()}
    )


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes whose templates are resolved already.

    `folder`: what relative paths are relative to.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(Document(attributes), folder.absolute(), "the spec")


def fill_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes that may hold templates, and that no file holds.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(read_values(attributes), folder.absolute(), "the spec")


def _made(document: Document, folder: Path, name: str) -> PipelineSpec:
    spec, wrong = _checked(document.attributes, folder)
    # A place whose template failed has no value yet: what pydantic says of it there is noise.
    mistakes = [
        *document.mistakes,
        *(m for m in (*wrong, *written_out(document)) if not document.failed(m.place)),
    ]
    if mistakes or spec is None:
        raise refusal(name, mistakes, document)
    return spec


def _checked(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """The spec, or everything that is wrong with it."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    clusters, wrong = dict[str, ClusterSpec](), list[Mistake]()
    for place, over in _NAMING.items():
        section = section_of(attributes, place)
        if place == "sink" and not _lies_on_a_cluster(section):
            continue
        named = _named(section, place, folder)
        if isinstance(named, Mistake):
            wrong.append(named)
            continue
        if named is not None:
            clusters[str(section["cluster"])] = named
        wrong += client_mistakes({name: section.get(name) for name in over}, (place,), named)
    wrong += _file_mistakes(attributes, folder)
    wrong += [
        Mistake((name,), f"unknown key; {_GIVEN[name]}")
        for name in NOT_WRITTEN
        if name in attributes
    ]
    spec, found = validated(
        PipelineSpec, {**attributes, "folder": folder, "named_clusters": clusters}, NOT_WRITTEN
    )
    told = {("named_clusters",), *(mistake.place for mistake in wrong)}
    wrong += [mistake for mistake in found if mistake.place not in told]
    return (None if wrong else spec), wrong


def _lies_on_a_cluster(sink: Mapping[str, Any]) -> bool:
    """Whether the sink is of a kind that says which cluster it lies on."""
    kinds = OfItsKind.of(PipelineSpec.model_fields["sink"])
    return kinds is not None and issubclass(kinds.model(sink), OnClusterSection)


def _named(section: Mapping[str, Any], place: str, folder: Path) -> ClusterSpec | Mistake | None:
    """The cluster that a section names; None if it names none, or none that can be a
    name, which its setting tells.
    """
    name = section.get("cluster")
    try:
        return (
            named_cluster(cluster_name(str(name)), folder, place)
            if isinstance(name, str | int) and not isinstance(name, bool)
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
