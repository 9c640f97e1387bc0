"""Contract suites, one for each interface that plugins implement. They need pytest.

A suite is a class of test cases. A test module subclasses it, and supplies the tested object by
fixtures or methods.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__)))
