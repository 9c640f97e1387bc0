"""Privileges of a user in PostgreSQL, and the statements that grant them.

It works on texts only and needs no driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from windrow.ingest.errors import SpecError, Stage


class Privilege(msgspec.Struct, frozen=True):
    """A privilege that a user needs.

    Attributes:
        name: the privilege's name in SQL, or OWNER of a table. CREATE on a database is needed
            only if the schema doesn't exist, and CREATE on a schema only if the table doesn't.
            Other privileges are needed only if the schema or the table exists.
        kind: the kind of the object.
        schema: the schema; "" for the one in which the server makes tables by default.
        table: the table; "" if the privilege isn't about one.
    """

    name: str
    kind: Literal["DATABASE", "SCHEMA", "TABLE"]
    schema: str
    table: str = ""


LACKING = """
SELECT CASE WHEN p.name = 'OWNER' THEN 'ownership' ELSE p.name END || CASE p.kind
        WHEN 'DATABASE' THEN ' on the database ' || current_database()
        WHEN 'SCHEMA' THEN ' on the schema ' || p.schema
        ELSE CASE p.name WHEN 'OWNER' THEN ' of' ELSE ' on' END
            || ' the table ' || p.schema || '.' || p.relation
    END,
    CASE p.kind
        WHEN 'DATABASE' THEN
            format('GRANT %%s ON DATABASE %%I TO %%I', p.name, current_database(), current_user)
        WHEN 'SCHEMA' THEN format('GRANT %%s ON SCHEMA %%I TO %%I', p.name, p.schema, current_user)
        ELSE CASE p.name
            WHEN 'OWNER' THEN
                format('ALTER TABLE %%I.%%I OWNER TO %%I', p.schema, p.relation, current_user)
            ELSE format(
                'GRANT %%s ON TABLE %%I.%%I TO %%I', p.name, p.schema, p.relation, current_user
            )
        END
    END
FROM (
    SELECT name, kind, coalesce(nullif(schema, ''), current_schema(), 'public') AS schema, relation,
        position
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) WITH ORDINALITY
        AS u (name, kind, schema, relation, position)
) p
LEFT JOIN pg_namespace n ON n.nspname = p.schema
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.relation
WHERE CASE p.kind
    WHEN 'DATABASE' THEN n.oid IS NULL AND NOT has_database_privilege(current_database(), p.name)
    WHEN 'SCHEMA' THEN
        (p.name <> 'CREATE' OR c.oid IS NULL) AND NOT has_schema_privilege(n.oid, p.name)
    ELSE CASE p.name
        WHEN 'OWNER' THEN NOT pg_has_role(c.relowner, 'USAGE')
        ELSE NOT has_table_privilege(c.oid, p.name)
    END
END
ORDER BY p.position
"""
"""Selects the privileges that the user lacks: in words, and as the statements that grant them.

Its parameters are those of `parameters`. A privilege on what doesn't exist is null, which
counts as not lacking.
"""


def parameters(privileges: Sequence[Privilege]) -> tuple[list[str], ...]:
    """Returns the parameters of `LACKING`."""
    return tuple(
        [getattr(privilege, field) for privilege in privileges]
        for field in ("name", "kind", "schema", "table")
    )


def to_use_tables(schema: str, tables: Mapping[str, Sequence[str]]) -> Iterator[Privilege]:
    """Yields what a user needs to make tables in a schema, or to use those that are there.

    Args:
        schema: the schema.
        tables: the privileges for each table.
    """
    yield Privilege("USAGE", "SCHEMA", schema)
    for table, names in tables.items():
        yield Privilege("CREATE", "SCHEMA", schema, table)
        yield from (Privilege(name, "TABLE", schema, table) for name in names)


def lacking_error(subject: str, lacking: Iterable[Sequence[str]], stage: Stage) -> SpecError:
    """Makes the error for a user who lacks privileges, with the statements that grant them.

    Args:
        subject: what the user can't use, as the beginning of a sentence.
        lacking: the rows of `LACKING`.
        stage: the stage of the error.
    """
    words, statements = (dict.fromkeys(texts) for texts in zip(*lacking, strict=True))
    return SpecError(
        f"{subject}: this user lacks {', '.join(words)}",
        stage,
        f"Run this as the owner, or as a superuser: {'; '.join(statements)}",
    )
