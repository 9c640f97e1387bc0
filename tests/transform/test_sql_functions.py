"""The functions that a `sql` step may call give the same results on each day and machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import islice, product

import duckdb

from tests.shape.readme import ROOT
from windrow.ingest.errors import SpecError
from windrow.ingest.transform.sql.select import locked, read_select

VALUES: dict[str, tuple[str, ...]] = {
    "VARCHAR": ("'day'", "'2026-01-05 10:00:00'", "'%Y-%m-%d'", """'{"a": [1]}'""", "'a'"),
    "JSON": ("""'{"a": [1, 2]}'::JSON""",),
    "BLOB": ("'a'::BLOB",),
    "BOOLEAN": ("true",),
    "DATE": ("DATE '2026-01-05'",),
    "TIME": ("TIME '10:00'",),
    "TIME WITH TIME ZONE": ("'10:00+02'::TIMETZ",),
    "TIMESTAMP": ("TIMESTAMP '2026-01-05 10:00'",),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ '2026-01-05 23:30+00'",),
    "INTERVAL": ("INTERVAL 1 DAY",),
    "MAP(K, V)": ("MAP {'k': 1}",),
    "STRUCT": ("{'a': 1}",),
    "ANY": ("2", "'a'", "TIMESTAMPTZ '2026-01-05 23:30+00'", "[1, 2]"),
    "LAMBDA": ("lambda x: x",),
}
"""Arguments of each type."""

OTHERS = ("2", "'a'", "[1, 2]")
"""Arguments of all other types."""


def calls() -> list[list[str]]:
    """Returns calls of each form of each allowed function, with arguments of its types."""
    with locked() as con:
        functions = con.execute(
            "SELECT DISTINCT function_name, parameter_types, varargs FROM duckdb_functions() WHERE"
            " function_type IN ('scalar', 'macro') AND regexp_full_match(function_name, '\\w+')"
        ).fetchall()
    forms = []
    for name, types, varargs in functions:
        for argument_types in {tuple(types), (*types, *[varargs] * bool(varargs))}:
            arguments = product(*(VALUES.get(kind, OTHERS) for kind in argument_types))
            form = [f"{name}({', '.join(values)})" for values in islice(arguments, 6)]
            with suppress(SpecError):
                read_select(f"SELECT {form[0]} AS value FROM rows", [], [], "sql")
                forms.append(form)
    return sorted(forms)


def answers(forms: list[list[str]]) -> dict[str, str]:
    """Returns the first two answers to each form. Arguments that don't fit have no answer."""
    answer_by_call: dict[str, str] = {}
    with locked() as con:
        for form in forms:
            count_before = len(answer_by_call)
            for call in form:
                if len(answer_by_call) < count_before + 2:
                    with suppress(duckdb.Error):
                        answer_by_call[call] = str(con.execute(f"SELECT {call}").fetchall())
    return answer_by_call


def test_what_a_step_may_call_gives_the_same_each_time() -> None:
    """Each allowed function has the same results in two processes.

    They start at different moments, in zones with different dates.
    """
    env, forms = {**os.environ, "PYTHONPATH": str(ROOT)}, json.dumps(calls())
    program = (
        f"import json, sys, {__name__} as m; print(json.dumps(m.answers(json.load(sys.stdin))))"
    )
    first, second = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                input=forms,
                env={**env, "TZ": zone},
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            ).stdout
        )
        for zone in ("Etc/GMT+12", "Pacific/Kiritimati")
    )
    assert len({call.partition("(")[0] for call in first}) > 500
    assert {
        call: (first[call], second.get(call)) for call in first if first[call] != second.get(call)
    } == {}
