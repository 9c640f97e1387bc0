"""Loads a pipeline's spec, or reports all its mistakes at once.

A spec file is Dagster's component file, or its `attributes` alone. The other keys of a
component file are Dagster's. The command and Dagster's component both load it here, so it
means the same to both.

A spec names clusters that several pipelines share. They are defined in a windrow.yaml in
the spec's folder or above it; only the nearest file counts. The search upwards ends at one
of these folders:

- a repository's root (a folder with .git)
- the user's home
- a folder directly below one that every user may write to, where any user could put the
  file
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from pydantic import Field
from pydantic.fields import FieldInfo

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.for_each import FOR_EACH, NAME, ForEachSpec
from windrow.ingest.config.pipeline import NOT_WRITTEN, PipelineSpec
from windrow.ingest.config.settings_file import (
    client_mistakes,
    refusal,
    setting_at,
    text_of,
    validate,
    written_out,
)
from windrow.ingest.config.source import SELECTING
from windrow.ingest.errors import SpecError, join_first_few
from windrow.ingest.settings.document import (
    Document,
    Mistake,
    nearest,
    read_document,
    read_values,
)
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.paths import absolute, split_spec_path
from windrow.ingest.settings.secrets import Secret, in_folder, named_secrets
from windrow.ingest.settings.values import (
    CODE_REFERENCE,
    ClusterName,
    Reference,
    Section,
    cluster_name,
    section_of,
)
from windrow.ingest.sinks.kind import OnClusterSection

_OF_ITS_SECTION = {
    *("header", "headers", "key", "kind", "message", "mode", "name", "other", "partitions", "path"),
    *(
        "quote",
        "records",
        "rules",
        "schema",
        "spark",
        "staging",
        "start",
        "table",
        "tables",
        "tags",
    ),
    *("timestamp", "topics", "unknown", "url", "value", "version", "zone"),
}
"""Keys that mean something else in another section, so no other section is suggested for them."""

_NAMING = ("source", "sink", "dead_letters")
"""The sections that may name a cluster of windrow.yaml."""


def load_spec(path: Path | str, document: int | None = None) -> PipelineSpec:
    """Loads the spec of a YAML file.

    Args:
        path: the file. Relative paths in it are relative to its folder. `FILE:ID` is the
            pipeline with this id of a file with several (`for_each`).
        document: the number (from 0) of the YAML document, because Dagster's component
            files may have several; None: the file must have exactly one.

    Raises:
        SpecError: the file can't be read, has mistakes, or has several pipelines. The
            message has all mistakes, each with its line and dotted name.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        print(spec.id, "has", spec.window.grid, "windows")
    """
    return _only(load_specs(path, document), str(path))


def _only(specs: Sequence[PipelineSpec], name: str) -> PipelineSpec:
    if len(specs) > 1:
        ids = join_first_few([spec.id for spec in specs])
        raise SpecError(
            f"{name} has {len(specs)} pipelines: {ids}",
            "spec",
            f"Name one of them, as {name}:{specs[0].id}.",
        )
    return specs[0]


def load_specs(path: Path | str, document: int | None = None) -> list[PipelineSpec]:
    """Loads all specs of a YAML file: one for each topic of `for_each`; without it, only one.

    Args:
        path: the file, or `FILE:ID`, as for `load_spec`.
        document: as for `load_spec`.

    Raises:
        SpecError: as for `load_spec`, but the file may have several pipelines.

    Example:
        import windrow

        for spec in windrow.load_specs("payments/defs.yaml"):
            print(spec.id, "reads", spec.source.topic)
    """
    file, pipeline_id = split_spec_path(Path(path))
    text = text_of(file, f"The spec {file}", "Give the path of a pipeline's YAML file.")
    folder = file.absolute().parent
    specs = _make_specs(read_document(text, document), folder, str(file), pipeline_id)
    return [spec.model_copy(update={"spec_file": file.absolute()}) for spec in specs]


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """Makes the spec from attributes of one pipeline that come from Python.

    Args:
        attributes: the attributes.
        folder: the folder that relative paths are relative to.

    Raises:
        SpecError: the attributes have mistakes. The message has all of them, each with its
            dotted name.
    """
    return _only(parse_specs(attributes, folder), "the spec")


def parse_specs(attributes: Mapping[str, Any], folder: Path) -> list[PipelineSpec]:
    """Makes specs from attributes as `parse_spec` does: one for each topic of `for_each`."""
    return _make_specs(read_values(attributes), folder.absolute(), "the spec")


def _make_specs(
    document: Document, folder: Path, name: str, pipeline_id: str | None = None
) -> list[PipelineSpec]:
    """Makes the specs of a document, or lists the mistakes of all of them.

    Args:
        document: the document.
        folder: the folder that relative paths are relative to.
        name: the name of the file in errors.
        pipeline_id: the id of the only pipeline to make; None: all.
    """
    for_each, mistakes = _for_each_of(document)
    if mistakes:
        raise refusal(name, [*document.mistakes, *mistakes], document)
    settings_by_topic = _settings_by_topic(document, for_each)
    if pipeline_id is not None and not document.mistakes:
        settings_by_topic = _choose_pipeline(settings_by_topic, pipeline_id, name)
    specs, topics_by_mistake = list[PipelineSpec](), dict[Mistake, list[str | None]]()
    with named_secrets(partial(_named_secret, folder)):
        for topic, settings in settings_by_topic.items():
            spec, spec_mistakes = _check_spec(settings, folder)
            for mistake in spec_mistakes:
                placed = mistake if topic is None else _place_mistake(mistake, topic, document)
                topics_by_mistake.setdefault(placed, []).append(topic)
            if spec is not None:
                specs.append(spec.model_copy(update={"for_each": for_each}))
    for mistake, topics in topics_by_mistake.items():
        pipelines = [
            f"{_id(settings_by_topic[t])} of topic {t}".removeprefix(" of ") for t in topics if t
        ]
        is_of_all = len(topics) == len(settings_by_topic)
        note = "" if is_of_all or not pipelines else f" ({join_first_few(pipelines)})"
        mistakes.append(msgspec.structs.replace(mistake, message=f"{mistake.message}{note}"))
    # a setting whose template failed has no value, so pydantic's mistakes about it don't matter
    mistakes = [
        *document.mistakes,
        *(m for m in (*mistakes, *written_out(document)) if not document.failed(m.path)),
    ] or (_find_duplicates(specs) if len(specs) > 1 else [])
    if mistakes:
        raise refusal(name, mistakes, document)
    return specs


def _id(settings: object) -> str:
    return str(settings.get("id", "")) if isinstance(settings, Mapping) else ""


def _settings_by_topic(
    document: Document, for_each: ForEachSpec | None
) -> Mapping[str | None, object]:
    """Returns the settings of each topic's pipeline; by None those of the only pipeline."""
    if for_each is None or not isinstance(document.attributes, Mapping):
        return {None: document.attributes}
    common = {key: setting for key, setting in document.attributes.items() if key != FOR_EACH}
    return {topic: for_each.settings_of(topic, common) for topic in for_each.topics}


def _choose_pipeline(
    settings_by_topic: Mapping[str | None, object], pipeline_id: str, name: str
) -> Mapping[str | None, object]:
    ids = {topic: _id(settings) for topic, settings in settings_by_topic.items()}
    if pipeline_id not in ids.values():
        raise SpecError(
            f"{name} has no pipeline {pipeline_id}, but {join_first_few([*ids.values()])}",
            "spec",
            f"Name one that it has, as {name}:{nearest(pipeline_id, [*ids.values()]) or 'ID'}.",
        )
    return {topic: settings_by_topic[topic] for topic in ids if ids[topic] == pipeline_id}


def _for_each_of(document: Document) -> tuple[ForEachSpec | None, list[Mistake]]:
    """Reads the section `for_each`, or lists its mistakes."""
    written = document.attributes
    if not isinstance(written, Mapping) or written.get(FOR_EACH) is None:
        return None, []
    for_each, mistakes = validate(ForEachSpec, section_of(written, FOR_EACH))
    mistakes = [msgspec.structs.replace(m, path=(FOR_EACH, *m.path)) for m in mistakes]
    chosen = {
        path: "for_each says which topic is read"
        for path in document.lines
        if path[-2:-1] == ("source",) and path[-1] in SELECTING and path[0] in ("source", FOR_EACH)
    }
    unquoted = {
        path[:-1]: 'a name must be in quotes where a value begins with it, as in "{name}"'
        for path in document.lines
        if path[-1:] == ("name",) and setting_at(document.attributes, path[:-1]) == {"name": None}
    }
    return for_each, [*mistakes, *(Mistake(*pair) for pair in {**chosen, **unquoted}.items())]


def _find_duplicates(specs: Iterable[PipelineSpec]) -> list[Mistake]:
    """Refuses one id or one table for two topics."""
    spec_by_name, mistakes = dict[tuple[str, str], PipelineSpec](), list[Mistake]()
    for spec in specs:
        for setting, name in (("id", spec.id), ("sink", spec.sink_path())):
            first = spec_by_name.setdefault((setting, name), spec)
            if first is not spec:
                topics = f"topics {first.source.topic} and {spec.source.topic}"
                noun = "id" if setting == "id" else "table"
                mistakes.append(
                    Mistake((setting,), f"{topics} have one {noun}: write {NAME} in it")
                )
    return mistakes


def _place_mistake(mistake: Mistake, topic: str, document: Document) -> Mistake:
    """Returns a mistake of a topic's settings at the setting of the file that has it."""
    own = (FOR_EACH, "topics", topic)
    for size in range(len(mistake.path), 0, -1):
        if (*own, *mistake.path[:size]) in document.lines:
            return msgspec.structs.replace(mistake, path=(*own, *mistake.path))
        if mistake.path[:size] in document.lines:
            break
    return mistake


def _check_spec(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """Makes the spec, or lists all its mistakes."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    clusters, mistakes = dict[str, ClusterSpec](), list[Mistake]()
    kinds = OfItsKind.of(PipelineSpec.model_fields["sink"])
    assert kinds is not None, "the sink is a section of several kinds"
    for name in _NAMING:
        section = section_of(attributes, name)
        if name == "sink" and not issubclass(kinds.model(section), OnClusterSection):
            continue
        named = find_cluster(section, name, folder)
        if isinstance(named, Mistake):
            mistakes.append(named)
            continue
        if named is not None:
            clusters[str(section["cluster"])] = named
        mistakes += client_mistakes(section, (name,), named)
    mistakes += _file_mistakes(attributes, folder)
    mistakes += [
        Mistake((name,), f"unknown key; {reason}")
        for name, reason in NOT_WRITTEN.items()
        if name in attributes
    ]
    spec, model_mistakes = validate(
        PipelineSpec, {**attributes, "folder": folder, "named_clusters": clusters}
    )
    mistaken_paths = {mistake.path for mistake in mistakes}
    mistakes += [
        _with_home(mistake, attributes) if mistake.message.startswith("unknown key") else mistake
        for mistake in model_mistakes
        if mistake.path not in mistaken_paths
    ]
    path = getattr(spec and spec.sink, "path", None)
    if isinstance(path, str) and folder.is_relative_to(absolute(path, folder)):
        message = (
            "is the folder of this file, or one above it: a table has a folder of its own, in which"
            " a clean-up of it (VACUUM) removes all else"
        )
        mistakes.append(Mistake(("sink", "path"), message))
    return (None if mistakes else spec), mistakes


def _with_home(mistake: Mistake, attributes: Mapping[str, Any]) -> Mistake:
    """Adds the right section to the mistake of an unknown key, if another section has the key."""
    *above, key = mistake.path
    if above[1:] or key in _OF_ITS_SECTION:
        return mistake  # in another section this key means something else
    if above and key in PipelineSpec.known_keys():
        return Mistake(mistake.path, f"belongs beside {above[0]}, not into it")
    homes = [
        name
        for name, field in PipelineSpec.model_fields.items()
        if name not in NOT_WRITTEN
        and any(key in model.known_keys() for model in _sections(field, attributes.get(name)))
    ]
    return Mistake(mistake.path, f"belongs under {' or '.join(homes)}") if homes else mistake


def _sections(field: FieldInfo, written: object) -> list[type[Section]]:
    """Returns the models of a section as it is written; none if the field isn't a section."""
    kinds, parts = OfItsKind.of(field), get_args(field.annotation) or (field.annotation,)
    return [
        model
        for model in ([kinds.model(written)] if kinds else [*parts, *chain(*map(get_args, parts))])
        if isinstance(model, type) and issubclass(model, Section)
    ]


def find_cluster(
    section: Mapping[str, Any], name: str, folder: Path
) -> ClusterSpec | Mistake | None:
    """Finds the cluster that a section names.

    None if the section names none. It is also None if the value can't be a name; the
    validation of its field then reports that.
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


# --------------------------------------------------------------------------------------------------


FILE = "windrow.yaml"


class SharedSpec(Section):
    """A windrow.yaml: clusters and secrets, by the names that specs use."""

    clusters: Annotated[Mapping[ClusterName, ClusterSpec], Field(min_length=1)] = {}
    secrets: Annotated[Mapping[ClusterName, Reference], Field(min_length=1)] = {}


def find_shared(folder: Path) -> tuple[Path | None, Path]:
    """Finds the windrow.yaml of a folder (None: no file), and the last folder searched."""
    real_folder, home = (
        Path(os.path.realpath(folder)),
        Path(os.path.realpath(Path("~").expanduser())),
    )
    for folder_ in chain([real_folder], real_folder.parents):
        # found even if it isn't a regular file, because one further up may define other clusters
        if os.path.lexists(folder_ / FILE):
            return folder_ / FILE, folder_
        if folder_ == home or (folder_ / ".git").exists() or _is_world_writable(folder_.parent):
            return None, folder_
    return None, Path(real_folder.anchor)


def _is_world_writable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def named_cluster(name: str, folder: Path, section: str = "source") -> ClusterSpec | Mistake:
    """Finds a cluster by its name in the windrow.yaml of a spec's folder.

    If it isn't found, the result is the mistake for the spec's section that names it.

    Raises:
        SpecError: the file can't be read, or has mistakes. The message has all of them,
            each with its line.
    """
    try:
        with named_secrets(partial(_named_secret, folder)):
            shared, _ = _shared_entry("clusters", name, folder)
    except ValueError as error:
        return Mistake((section, "cluster"), str(error))
    return shared.clusters[name]


def _named_secret(folder: Path, name: str) -> Secret:
    """Finds a secret by its name in the windrow.yaml of a spec's folder.

    Raises:
        ValueError: there is no such secret.
        SpecError: as `named_cluster`.
    """
    with named_secrets(None):
        shared, file = _shared_entry("secrets", name, folder)
    return in_folder(shared.secrets[name], file.parent)


def _shared_entry(
    section: Literal["clusters", "secrets"], name: str, folder: Path
) -> tuple[SharedSpec, Path]:
    """Reads the windrow.yaml of a spec's folder, with one entry of one section alone.

    The file's other entries are not checked, because their templates may need another
    machine's environment.

    Raises:
        ValueError: there is no file, or the section has no such entry.
        SpecError: as `named_cluster`.
    """
    noun, (file, last) = section.removesuffix("s"), find_shared(folder)
    if file is None:
        where = (
            f"{folder}" if last == folder else f"{folder} and in the folders above it, up to {last}"
        )
        raise ValueError(
            f"there is no {FILE}, which would say what {noun} {name} is: it was looked for in"
            f" {where}"
        )
    if not file.is_file():
        raise ValueError(f"{file} is no file that can be read: it would say what {noun} {name} is")
    document = read_document(
        text_of(file, f"The file {file}", "See that it can be read, and is a YAML file."),
        envelope=False,
    )
    attributes = document.attributes if isinstance(document.attributes, Mapping) else {}
    entries = section_of(attributes, section)
    mistakes = [
        mistake
        for mistake in document.mistakes
        if mistake.path[:1] not in {("clusters",), ("secrets",)}
        or mistake.path in {(section,), (section, name)}
        or mistake.path[:2] == (section, name)
    ]
    if name not in entries and entries and not mistakes:
        near = nearest(name, list(entries))
        meant = f"; did you mean {near}?" if near else ""
        raise ValueError(f"{file} has no {noun} {name}: there are {', '.join(entries)}{meant}")
    if section not in attributes:
        mistakes.append(Mistake((section,), f"is missing: nothing says what {noun} {name} is"))
    chosen = {section: {name: entries[name]} if name in entries else attributes.get(section)}
    others = {key: value for key, value in attributes.items() if key not in SharedSpec.model_fields}
    written = {**others, **(chosen if section in attributes else {})}
    shared, entry_mistakes = validate(SharedSpec, written, shared=True)
    entry_mistakes += [m for m in written_out(document) if m.path[:2] == (section, name)]
    if section == "clusters":
        entry_mistakes += client_mistakes(section_of(entries, name), (section, name), shared=True)
    mistakes += [mistake for mistake in entry_mistakes if not document.failed(mistake.path)]
    if mistakes or shared is None:
        raise refusal(str(file), mistakes, document)
    return shared, file
