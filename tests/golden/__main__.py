"""Golden files: every form in which windrow stores, tells or names something.

    python -m tests.golden    writes the golden files anew: look at `git diff` then

A name in the code may change; what other programs, older tables and people hold may not change
with it. Each test makes a form by the product's own code, and compares it with its file here.
When a file may be written anew:

- `stored/`, what stands in users' tables, topics and ledgers: never. A form that has to change gets
  another number (`RECEIPT_VERSION`, `FORM` and their like), and then its file is made anew
  together with that number and the kind's fixture in `tests/fixtures/stores`.
- `told/`, what programs read (documents of `--json`, errors, metrics, what Dagster shows): with a
  line in CHANGELOG.md. A new key is such a line, too.
- `named/`, what users and plugins write (settings, variables, names in Python, methods of
  plugins): with a line in CHANGELOG.md; for a name that goes, the line says what to write instead.

Where each form is held, also by tests elsewhere:

- Receipts, plans, boundaries, positions; the ledger's table and rows; pages, notes, manifests;
  tables, logs, properties and places of files of each kind of sink; records, headers and ids of a
  Kafka table; columns of dead letters and metadata columns: `test_stored.py`.
- Whole stores, as this version must read them: `tests/fixtures/stores/test_stores.py`. That stores
  of other versions are refused: there, and in `tests/ledger/test_sql.py`.
- The values of checksums, which receipts hold: `tests/schema/test_checksum.py`.
- Documents of `--json`, a file for each command; errors, their stages and exit codes; reasons of
  dead letters, and their headers in a topic; metrics; what Airflow reads: `test_told.py`.
- Names, tags and metadata in Dagster: `test_dagster.py`. What each entry of an event means:
  `tests/assets/test_shown.py`.
- DAGs, their tasks, params and tags, command lines, XComs and asset events:
  `tests/airflow/test_dags.py`, in Airflow's own environment.
- Settings, commands with their options, variables, loggers and other names that begin with
  windrow's, the public names in Python with what they take, interfaces and sections of plugins,
  doubles and suites, options of DataFrames, crash points, what tasks get: `test_named.py`.
- Pages that list such names: settings in `tests/config/test_settings.py`, exit codes and commands
  in `tests/shape/test_house.py`, public names in `tests/shape/test_face.py`, examples of plugins in
  `tests/docs/test_write_your_own.py`.
- Sentences of commands and errors: the tests of each, and `tests/advice`.
"""

from __future__ import annotations

import sys

import pytest

from tests.golden.conftest import FOLDER, WRITING


class Writer:
    """A plugin of pytest, by which tests write their golden files in place of comparing them."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[WRITING] = True


if __name__ == "__main__":
    sys.exit(pytest.main([str(FOLDER), "-q", *sys.argv[1:]], plugins=[Writer()]))
