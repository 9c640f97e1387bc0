"""The contract that every `ports.schema_registry.SchemaRegistry` keeps.

The suite of a registry supplies the fixtures `server` and `registry`. Schemas are registered at
`server`, and `registry` is the client under test.
"""

from __future__ import annotations

import pickle

import pytest

from tests.registry.server import RegistryServer
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.writer_schema import MOST_CHARACTERS, WriterSchema
from windrow.ingest.ports.schema_registry import SchemaRegistry


def named(name: str, *refers: str) -> str:
    """Returns an Avro record that has a field for each type that it refers to."""
    fields = ", ".join(
        f'{{"name": "f{i}", "type": "{referred}"}}' for i, referred in enumerate(refers)
    )
    return f'{{"type": "record", "name": "{name}", "fields": [{fields}]}}'


def refers_to(*names: str, version: int = 1) -> list[dict[str, object]]:
    """Returns references to one version of each subject; subject and schema have the same name."""
    return [{"name": name, "subject": name, "version": version} for name in names]


class SchemaRegistryContract:
    """The promises of a schema registry."""

    def test_a_subjects_versions(self, server: RegistryServer, registry: SchemaRegistry) -> None:
        """A subject's versions come with the newest first, at most as many as asked for.

        The subject's name may have any characters. A subject that doesn't exist has no
        versions.
        """
        texts = [named(f"R{n}") for n in range(4)]
        ids = [str(server.register("a/b ü-value", text)) for text in texts]
        versions = registry.of_subject("a/b ü-value", 3)
        assert (
            versions
            == [WriterSchema(id_, "AVRO", text) for id_, text in zip(ids, texts, strict=True)][
                :0:-1
            ]
        )
        assert registry.of_subject("nothing", 3) == []

    def test_a_schema_by_its_id(self, server: RegistryServer, registry: SchemaRegistry) -> None:
        """A schema is found by its number or by its GUID, and has that as its id.

        A schema that doesn't exist is None.
        """
        id_ = server.register("s", "message M {}", "PROTOBUF")
        assert registry.schema(str(id_)) == WriterSchema(str(id_), "PROTOBUF", "message M {}")
        assert registry.schema(server.guid(id_)) == WriterSchema(
            server.guid(id_), "PROTOBUF", "message M {}"
        )
        assert registry.schema("4294967295") is None
        assert registry.schema("00000000-0000-0000-0000-000000000001") is None

    def test_a_schema_with_all_that_it_refers_to(
        self, server: RegistryServer, registry: SchemaRegistry
    ) -> None:
        """A schema comes with all schemas that it refers to, also with those that were deleted.

        Each referenced schema comes once, after the schemas that it refers to itself.
        """
        server.register("D", named("D"))
        server.register("B", named("B", "D"), references=refers_to("D"))
        server.register("C", named("C", "D"), references=refers_to("D"))
        id_ = server.register("A", named("A", "B", "C"), references=refers_to("B", "C"))
        server.answer("DELETE", "/subjects/D", {}, None)
        schema = registry.schema(str(id_))
        assert schema is not None
        assert schema.references == (
            ("D", named("D")),
            ("B", named("B", "D")),
            ("C", named("C", "D")),
        )

    def test_references_without_an_end(
        self, server: RegistryServer, registry: SchemaRegistry
    ) -> None:
        """References in a circle, and too many references, raise RefusedError with the schema's
        id.
        """
        circle = server.register("A", named("A", "B"), references=refers_to("B"))
        server.register("B", named("B", "A"), references=refers_to("A"))
        wide = server.register(
            "many", named("M"), references=refers_to(*(f"S{n}" for n in range(201)))
        )
        for n in range(201):
            server.register(f"S{n}", named(f"S{n}"))
        for id_ in (circle, wide):
            with pytest.raises(RefusedError, match=f"schema id {id_} "):
                registry.schema(str(id_))

    def test_a_giant(self, server: RegistryServer, registry: SchemaRegistry) -> None:
        """A schema that is too large, alone or with its references, is refused."""
        server.register("half", '"' + "a" * (MOST_CHARACTERS // 2) + '"')
        ids = [
            server.register("g", '"' + "b" * MOST_CHARACTERS + '"'),
            server.register("h", '"' + "c" * 40 * MOST_CHARACTERS + '"'),
            server.register(
                "i", '"' + "d" * (MOST_CHARACTERS // 2) + '"', references=refers_to("half")
            ),
        ]
        for id_ in ids:
            with pytest.raises(RefusedError, match=f"schema id {id_} with more than"):
                registry.schema(str(id_))

    def test_long_schemas_count_each_by_itself(
        self, server: RegistryServer, registry: SchemaRegistry
    ) -> None:
        """The limit of size counts for each version of a subject separately.

        A schema to which two references lead counts once.
        """
        third = MOST_CHARACTERS // 3
        server.register("shared", '"' + "s" * third + '"')
        for name in ("left", "right"):
            server.register(name, named(name), references=refers_to("shared"))
        ids = [
            str(
                server.register(
                    "long-value",
                    '"' + letter * third + '"',
                    references=refers_to("left", "right"),
                )
            )
            for letter in "abc"
        ]
        assert [schema.id for schema in registry.of_subject("long-value", 3)] == ids[::-1]

    def test_it_travels(self, server: RegistryServer, registry: SchemaRegistry) -> None:
        """A pickled copy asks the same registry."""
        id_ = server.register("s", named("R"))
        copy = pickle.loads(pickle.dumps(registry))
        assert (copy, hash(copy)) == (registry, hash(registry))
        assert copy.schema(str(id_)) == registry.schema(str(id_))
