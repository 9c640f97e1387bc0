"""Counts the mutants of the pure modules that the tests notice: mutmut on each module, judged
by the module's own tests.

`python -m tests.mutants.run` runs all modules, `python -m tests.mutants.run model/grid plan`
those whose path contains one of the words. Each module has its own folder in
`.windrow/mutants`, with copies of the code and the tests, so the working tree doesn't change.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.modules import EQUIVALENT, judges_of, modules

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".windrow" / "mutants"
AT_ONCE = 2
GOAL = 95
LONGEST_SECONDS = 1200
KILLED = {"killed", "timeout", "segfault"}

_CONFIG = """
[tool.mutmut]
source_paths = ["windrow"]
only_mutate = ["windrow/{module}"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
also_copy = ["conftest.py"]
timeout_multiplier = 5
timeout_constant = 1
track_dependencies = false
use_git_change_detection = false
"""
_CONFTEST = '''"""Fixed examples only: whether a mutant lives must not be chance."""

import gc

from hypothesis import Phase, settings

settings.register_profile("mutants", phases=[Phase.explicit], database=None, deadline=None)


def pytest_sessionstart() -> None:
    """A mutant's process is a copy of one that has all modules; pytest collects garbage at its end: that of these tests is enough."""
    gc.freeze()
'''  # noqa: E501
_RESULTS = """\
import json, sys
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

module, *killed = sys.argv[1:]
data = SourceFileMutationData(path=module)
data.load()
statuses = {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}
print(json.dumps({name: [status, "" if status in killed else get_diff_for_mutant(name, path=module)] for name, status in statuses.items()}))
"""  # as `mutmut results` and `mutmut show` do, which takes a process for each  # noqa: E501
_STRING = re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class Score:
    """The results of a module's mutants.

    Attributes:
        module: path of the module.
        mutants: number of mutants.
        wording: number of survivors that change only the words of a sentence.
        equivalent: number of survivors that are listed as equivalent.
        alive: diffs of the other survivors.
        stale: listed diffs that aren't among the survivors.
        seconds: duration in seconds.
    """

    module: str
    mutants: int
    wording: int
    equivalent: int
    alive: tuple[str, ...]
    stale: tuple[str, ...]
    seconds: float

    @property
    def counted(self) -> int:
        """Number of mutants, without equivalent ones and those that change only the words of a
        sentence.
        """
        return self.mutants - self.wording - self.equivalent

    @property
    def killed(self) -> int:
        """Returns the number of mutants that a test noticed."""
        return self.counted - len(self.alive)


def measure(module: str) -> Score:
    """Runs one module's mutants against its tests."""
    begun = time.monotonic()
    folder = PLACE / module.removesuffix(".py").replace("/", ".")
    prepare(folder, module)
    output(folder, "mutmut", "run", "--max-children", "1")
    alive, wording, equivalent = [], 0, []
    results: dict[str, list[str]] = json.loads(
        output(folder, sys.executable, "-c", _RESULTS, f"windrow/{module}", *sorted(KILLED))
    )
    for name, (status, diff) in results.items():
        if status in KILLED:
            continue
        change = changed_lines(diff)
        if is_wording(change):
            wording += 1
        elif change in EQUIVALENT.get(module, {}):
            equivalent.append(change)
        else:
            alive.append(f"{name}: {status}\n{change}")
    stale = tuple(EQUIVALENT.get(module, {}).keys() - set(equivalent))
    return Score(
        module,
        len(results),
        wording,
        len(equivalent),
        tuple(alive),
        stale,
        time.monotonic() - begun,
    )


def prepare(folder: Path, module: str) -> None:
    """Makes a folder like the repository's root, with copies."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("windrow", "tests"):  # links in it become folders
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    config = _CONFIG.format(module=module, tests=list(judges_of(module)))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + config)
    (folder / "conftest.py").write_text(_CONFTEST)


def output(folder: Path, *command: str) -> str:
    """Runs a command, and returns what it prints. A failure ends the program."""
    # a time zone far from UTC, so that a mix-up of both is noticed
    environment = os.environ | {"PYTHONPATH": "", "TZ": "<+0545>-5:45"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[:2]} in {folder}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def changed_lines(diff: str) -> str:
    """Returns the lines that a diff removes and adds, without their indentation."""
    lines = [
        line
        for line in diff.splitlines()
        if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}
    ]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def is_wording(change: str) -> bool:
    """Returns whether a change affects only the words of a sentence: a string with a space in
    it.
    """
    old_line, _, new_line = change.partition("\n+ ")
    olds, news = _STRING.findall(old_line), _STRING.findall(new_line)
    differing = [(a, b) for a, b in zip(olds, news, strict=False) if a != b]
    return (
        len(olds) == len(news)
        and len(differing) == 1
        and " " in differing[0][0]
        and _plain(old_line[2:]) == _plain(new_line)
    )


def _plain(line: str) -> str:
    return line.replace("XX", "").casefold()


def tell(score: Score) -> None:
    """Prints the survivors and the stale entries."""
    for change in score.alive:
        print(change, end="\n\n", flush=True)
    for change in score.stale:
        print(
            f"{score.module}: listed as equivalent, and not among the survivors any"
            f" more:\n{change}\n",
            flush=True,
        )


def report(scores: Sequence[Score]) -> bool:
    """Prints one line for each module and one for all, and returns whether the goal is reached."""
    print(f"{'module':40}{'mutants':>9}{'counted':>9}{'killed':>8}{'score':>8}{'seconds':>9}")
    totals = [
        (
            "all",
            *(
                sum(column)
                for column in zip(
                    *((s.mutants, s.counted, s.killed, s.seconds) for s in scores), strict=True
                )
            ),
        )
    ]
    for name, mutants, counted, killed, seconds in [
        *((s.module, s.mutants, s.counted, s.killed, s.seconds) for s in scores),
        *totals,
    ]:
        print(
            f"{name:40}{mutants:9}{counted:9}{killed:8}{100 * killed / max(1, counted):7.1f}%{seconds:9.0f}"  # noqa: E501
        )
    return 100 * sum(s.killed for s in scores) >= GOAL * sum(s.counted for s in scores) and not any(
        s.stale for s in scores
    )


def main(words: Sequence[str]) -> int:
    """Runs the chosen modules, and returns the exit code: 0 if the goal is reached, 1 if not."""
    chosen = [
        module for module in modules(ROOT) if not words or any(word in module for word in words)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        scores = []
        for score in pool.map(measure, chosen):
            scores.append(score)
            tell(score)
    return 0 if report(scores) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
