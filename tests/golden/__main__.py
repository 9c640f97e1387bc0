"""Golden files: the forms that windrow stores, the forms that it prints, and its names.

    python -m tests.golden    writes all golden files again; read `git diff` afterwards

A name in the code may change. Forms in other programs, in older tables and in users' files may
not change with it. Each test makes a form with the product's own code, and compares it with its
file here. The folders have different rules for changes:

- `stored/` has forms in users' tables, topics and ledgers. They never change. If a new form is
  necessary, it gets a new number (`RECEIPT_VERSION`, `FORM` and similar constants). Then its file
  and the kind's fixture in `tests/fixtures/stores` are written again, in the same commit.
- `told/` has forms that programs read: documents of `--json`, errors, metrics, metadata in Dagster.
  A change needs a line in CHANGELOG.md. A new key is a change too.
- `named/` has names that users and plugins write: settings, variables, names in Python, methods of
  plugins. A change needs a line in CHANGELOG.md. If a name is removed, the line says which name
  replaces it.

The tests of each form, also in other folders:

- Receipts, plans, boundaries and positions; the ledger's table and rows; pages, notes and
  manifests; tables, logs, properties and paths of files of each kind of sink; records, headers and
  ids of a Kafka table; columns of dead letters and metadata columns: `test_stored.py`.
- Whole stores that this version must read: `tests/fixtures/stores/test_stores.py`. The refusal of
  stores of other versions: the same file, and `tests/ledger/test_sql.py`.
- The values of checksums in receipts: `tests/schema/test_checksum.py`.
- Documents of `--json`, one file for each command; errors, their stages and exit codes; reasons of
  dead letters, and their headers in a topic; metrics; what Airflow reads: `test_told.py`.
- Names, tags and metadata in Dagster: `test_dagster.py`. The meaning of each metadata entry:
  `tests/assets/test_shown.py`.
- DAGs, their tasks, params and tags, command lines, XComs and asset events:
  `tests/airflow/test_dags.py`, in Airflow's own environment.
- Settings, commands with their options, variables, loggers and other names that begin with
  windrow's, the public names in Python with their arguments, interfaces and sections of plugins,
  test doubles and suites, options of DataFrames, crash points, input of tasks: `test_named.py`.
- Pages with lists of such names: settings in `tests/config/test_settings.py`, exit codes and
  commands in `tests/shape/test_house.py`, public names in `tests/shape/test_face.py`, examples of
  plugins in `tests/docs/test_write_your_own.py`.
- Sentences of commands and errors: the tests of each, and `tests/advice`.
"""

from __future__ import annotations

import sys

import pytest

from tests.golden.conftest import FOLDER, WRITING


class Writer:
    """A plugin of pytest that makes tests write their golden files instead of comparing them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[WRITING] = True


if __name__ == "__main__":
    sys.exit(pytest.main([str(FOLDER), "-q", *sys.argv[1:]], plugins=[Writer()]))
