"""A bill of materials, and the question for known vulnerabilities: `make sbom`, `make audit`.

uv does both, but reads no lock but its own. So it makes one with the versions of
requirements.lock. That needs the package index; the question needs OSV (osv.dev).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from windrow.ingest.kafka.embedded.server import JAR_HASHES

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / ".windrow" / "locked"


def pinned_project() -> str:
    """Returns windrow's pyproject.toml with the versions of requirements.lock as constraints."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^(\S+==[^\\\n]+?) *\\?$", lock, re.MULTILINE)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return f"{project}\n[tool.uv]\npackage = false\nconstraint-dependencies = {json.dumps(pins)}\n"


def lock_project() -> None:
    """Makes the uv.lock."""
    PROJECT.mkdir(parents=True, exist_ok=True)
    (PROJECT / "pyproject.toml").write_text(pinned_project(), encoding="utf-8")
    subprocess.run(["uv", "lock", "--quiet"], cwd=PROJECT, check=True)


def jar_components() -> list[dict[str, Any]]:
    """Returns CycloneDX's components of Kafka's jars, which only the embedded broker needs."""
    components = []
    for line in JAR_HASHES.read_text(encoding="utf-8").splitlines():
        digest, path = line.split()
        *group, name, version, _ = path.split("/")
        purl = f"pkg:maven/{'.'.join(group)}/{name}@{version}?type=jar"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "group": ".".join(group),
                "name": name,
                "version": version,
                "scope": "optional",
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "purl": purl,
            }
        )
    return components


def write_sbom(path: Path) -> None:
    """Writes the bill of materials: what windrow with all extras and its image install."""
    export = ["uv", "export", "--quiet", "--frozen", "--format", "cyclonedx1.5", "--all-extras"]
    command = [*export, "--no-dev", "--group", "deploy", "--preview-features", "sbom-export"]
    exported = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE)
    bill = json.loads(exported.stdout)
    bill["components"] += jar_components()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(bill, indent=2), encoding="utf-8")


def audit(project: Path, *options: str) -> int:
    """Prints the known vulnerabilities of a project's uv.lock; returns uv's exit code."""
    command = ["uv", "audit", "--frozen", "--preview-features", "audit-command", *options]
    return subprocess.run(command, cwd=project, check=False).returncode


if __name__ == "__main__":
    lock_project()
    if sys.argv[1] == "sbom":
        write_sbom(ROOT / "dist" / "sbom.json")
    else:
        sys.exit(audit(PROJECT))
