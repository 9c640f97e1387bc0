"""The files of deploy/: what they name exists, nothing runs as root, and they have no secret."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.deploy.containers import lay_out
from tests.deploy.files import (
    ASKED,
    COMPOSE,
    DEPLOY,
    IMAGE,
    ROOT,
    compose,
    copies,
    dockerfile,
    ours,
    services,
)
from windrow.ingest.config.load import load_spec

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KNOWN = {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "ENTRYPOINT"}
SECRET = re.compile(r"password|passwd|secret|token|key", re.IGNORECASE)
"""Words in the names of values that may be secret."""


def ends_as(text: str) -> tuple[str, str]:
    """Returns the user and the group in an image's USER instruction."""
    user, _, group = text.partition(":")
    return user, group


def literal_secrets(where: Any, name: str = "") -> list[str]:
    """Returns values under names of secrets, and URLs with passwords, in a document.

    The name of a file with a secret isn't returned.
    """
    if isinstance(where, dict):
        return [
            secret for key, value in where.items() for secret in literal_secrets(value, str(key))
        ]
    if isinstance(where, list):
        return [secret for value in where for secret in literal_secrets(value, name)]
    text = str(where)
    written = SECRET.search(name) and not name.endswith("_FILE") and name not in {"file", "secrets"}
    return [f"{name}: {text}"] if written or re.search(r"://[^/@\s]*:[^/@\s]*@", text) else []


# --------------------------------------------------------------------------------------------------


def test_the_dockerfile_is_made_of_known_instructions() -> None:
    """The Dockerfile has only instructions that these tests check, and begins with FROM."""
    lines = dockerfile()
    assert lines[0].word == "FROM"
    assert {line.word for line in lines} == KNOWN


def test_every_command_of_the_image_is_shell() -> None:
    """Each RUN instruction, and the script of the entry point, is valid shell."""
    texts = [line.value for line in dockerfile() if line.word == "RUN"]
    for text in [*texts, (DEPLOY / "with-password").read_text(encoding="utf-8")]:
        subprocess.run(["sh", "-n", "-c", text], check=True, timeout=60)


def test_what_the_image_copies_is_there() -> None:
    """Every file that the Dockerfile copies exists, and .dockerignore includes it."""
    let_through = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert {source for source, _ in copies()} == let_through
    assert [source for source in let_through if not (ROOT / source).exists()] == []


def test_the_image_has_the_projects_python() -> None:
    """The image's Python fits the project and the lock, and images have version tags."""
    begins = [line.value.split()[0] for line in dockerfile() if line.word == "FROM"]
    stages = {
        line.value.split()[-1]
        for line in dockerfile()
        if line.word == "FROM" and " AS " in line.value
    }
    [image] = {name for name in begins if name not in stages}
    name, _, tag = image.partition(":")
    version = tag.partition("-")[0]
    assert name == "python"
    assert version in SpecifierSet(PROJECT["requires-python"])
    assert f"--python-version {version}" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(r":\d", service["image"]) for service in services().values())


def test_the_image_has_the_locks_packages() -> None:
    """All packages of the image are pinned by the lock, with its hashes or as constraints."""
    runs = " && ".join(line.value for line in dockerfile() if line.word == "RUN")
    installs = re.findall(r"(?:pip|uv pip) install [^&]+", runs)
    assert len(installs) == 3
    assert [
        install
        for install in installs
        if not re.search(r"--require-hashes|--(build-)?constraint requirements\.lock", install)
    ] == []
    assert not re.search(r"curl|wget|git clone|--index|://", runs)


def uv_commands() -> list[list[str]]:
    """Returns the image's install commands for this environment's uv, as offline dry runs."""
    runs = " && ".join(line.value for line in dockerfile() if line.word == "RUN")
    commands = [shlex.split(command) for command in re.findall(r"tools/bin/uv [^&]+", runs)]
    path_here = {"tools/bin/uv": str(Path(sys.executable).parent / "uv"), "/opt/venv": sys.prefix}
    return [
        [*(path_here.get(word, word) for word in words), "--dry-run", "--offline"]
        for words in commands
    ]


def dry_run_of(words: list[str], folder: Path) -> str:
    """Returns what uv would do in a folder; "" if it fails."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stderr if done.returncode == 0 else ""


def test_its_packages_are_those_of_the_lock(tmp_path: Path) -> None:
    """The image installs the packages of the lock, and then the project.

    This environment has the same packages; with another lock, uv would change them. The image
    takes uv itself from the lock, with its hashes.
    """
    packages, project = uv_commands()
    assert "Would make no changes" in dry_run_of(packages, ROOT)
    assert "+ windrow-ingest @ file://" in dry_run_of(project, ROOT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (tmp_path / "requirements.lock").write_text(
        re.sub(r"^msgspec==\S+", "msgspec==0.0.1", lock, flags=re.MULTILINE)
    )
    assert dry_run_of(packages, tmp_path) == ""
    (tmp_path / "requirements.lock").write_text(lock)
    [cuts] = re.findall(
        r"sed -n [^&]+", " && ".join(line.value for line in dockerfile() if line.word == "RUN")
    )
    subprocess.run(["sh", "-c", cuts], cwd=tmp_path, check=True, timeout=60)
    pinned, *rest = (line.strip(" \\") for line in (tmp_path / "uv.lock").read_text().splitlines())
    assert re.fullmatch(r"uv==[\d.]+", pinned)
    assert {line.partition(":")[0] for line in rest if not line.startswith("#")} == {
        "--hash=sha256"
    }


def test_the_image_is_nobodys_root() -> None:
    """The image's user is a number other than root's, and no later instruction needs root."""
    words = [line.word for line in dockerfile()]
    assert words.count("USER") == 1
    assert set(words[words.index("USER") :]) <= {"USER", "WORKDIR", "ENTRYPOINT"}
    assert all(
        0 < int(number) < 60_000
        for number in ends_as(next(line.value for line in dockerfile() if line.word == "USER"))
    )


def test_a_password_comes_from_its_file(tmp_path: Path) -> None:
    """The entry script reads the password from its file; without the file it fails."""
    file = tmp_path / "password"
    file.write_text("se'cr$et\n")
    env = {"PATH": os.environ["PATH"], "PGPASSWORD_FILE": str(file)}
    command = [DEPLOY / "with-password", "sh", "-c", 'printf %s "$PGPASSWORD"']
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "se'cr$et"
    env["PGPASSWORD_FILE"] += "-gone"
    failed = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (failed.returncode != 0, failed.stdout) == (True, "")


# --------------------------------------------------------------------------------------------------


def valid(file: Path) -> bool:
    """Returns whether a file fits the schema of the Compose Specification."""
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(file),
    ]
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def test_the_compose_file_is_one(tmp_path: Path) -> None:
    """The compose file fits the schema, and one with a misspelt key doesn't."""
    assert valid(COMPOSE)
    broken = tmp_path / "compose.yaml"
    broken.write_text(COMPOSE.read_text(encoding="utf-8").replace("healthcheck:", "healthchek:", 1))
    assert not valid(broken)


def test_its_variables_must_be_told() -> None:
    """Each open variable must be set by the user, and has a reason; none has a default."""
    assert set(re.findall(r"\$\{(\w+):\?[^}]+\}", COMPOSE.read_text(encoding="utf-8"))) == set(
        ASKED
    )
    with pytest.raises(KeyError):
        services({})


def test_what_its_services_name_is_there() -> None:
    """Services, secrets, volumes and files that the compose file names exist, and all are used."""
    document = compose(COMPOSE.read_text(encoding="utf-8"), ASKED)
    services_of_file = document["services"]
    volumes = {
        volume.partition(":")[0]
        for service in services_of_file.values()
        for volume in service.get("volumes", [])
    }
    assert {name for name in volumes if not name.startswith(".")} == set(document["volumes"])
    assert [name for name in volumes if name.startswith(".") and not (DEPLOY / name).exists()] == []
    assert {
        name for service in services_of_file.values() for name in service.get("secrets", [])
    } == set(document["secrets"])
    assert {
        name for service in services_of_file.values() for name in service.get("depends_on", [])
    } <= set(services_of_file)
    waited = [
        (name, dependency)
        for name, service in services_of_file.items()
        if isinstance(service.get("depends_on"), dict)
        for dependency, options in service["depends_on"].items()
        if options["condition"] == "service_healthy"
    ]
    assert [pair for pair in waited if "healthcheck" not in services_of_file[pair[1]]] == []


def test_every_volume_belongs_to_the_images_user() -> None:
    """Each shared volume is at a folder that the image made for its user.

    Otherwise only root could write to it.
    """
    [install_line] = [line.value for line in dockerfile() if "install --directory" in line.value]
    places = {
        volume.split(":")[1]
        for service in ours().values()
        for volume in service.get("volumes", [])
        if volume[0] != "."
    }
    assert [target for target in places if f" {target} " not in install_line] == []


def test_every_program_is_in_the_image() -> None:
    """Each program of a service or a health check exists in the environment or in the image."""
    paths = {target + Path(source).name for source, target in copies()} | {
        target for _, target in copies()
    }
    begun = [service["command"] for service in ours().values()]
    begun += [
        service["healthcheck"]["test"][1:]
        for service in ours().values()
        if "healthcheck" in service
    ]
    [entry] = [line.value for line in dockerfile() if line.word == "ENTRYPOINT"]
    assert entry.strip('["]') in paths
    for program in {words[0] for words in begun}:
        assert program in paths or (Path(sys.executable).parent / program).is_file(), program
    named = {word for words in begun for word in words if word.startswith("/opt/windrow/")}
    assert named <= paths


def test_our_services_may_do_little() -> None:
    """The services have no capabilities, and ports are published on loopback only.

    Windrow's services use the image of this version.
    """
    assert {service["image"] for service in ours().values()} == {IMAGE + PROJECT["version"]}
    for service in services().values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("user", "10001") not in {"root", "0"}
        assert [
            port for port in service.get("ports", []) if not port.startswith("127.0.0.1:")
        ] == []


def test_no_secret_is_written_out() -> None:
    """No secret is in an environment, a command or a URL, and no password file is in
    the project.
    """
    document = compose(COMPOSE.read_text(encoding="utf-8"), ASKED)
    assert all(set(secret) == {"file"} for secret in document.pop("secrets").values())
    for service in document["services"].values():
        service.pop("secrets", None)
    assert literal_secrets(document["services"]) == []
    assert literal_secrets({line.word: line.value for line in dockerfile()}) == []
    tracked = subprocess.run(
        ["git", "ls-files", "deploy/secrets"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert set(tracked.stdout.split()) <= {"deploy/secrets/.gitignore"}


@pytest.mark.parametrize(
    "twin",
    [
        {"environment": {"PGPASSWORD": "hunter2"}},
        {"environment": {"WINDROW_STATE": "postgresql://windrow:hunter2@postgres/windrow"}},
        {"command": ["windrow", "postgresql://windrow:hunter2@postgres/windrow"]},
    ],
)
def test_a_secret_that_is_written_out_is_found(twin: dict[str, Any]) -> None:
    """A password in the environment, in a URL or on a command line is found."""
    assert len(literal_secrets(twin)) == 1


# --------------------------------------------------------------------------------------------------


def test_the_pipelines_have_one_name() -> None:
    """The code location has the same name in its server, its client and its project."""
    command = services()["code"]["command"]
    [code_location] = yaml.safe_load((DEPLOY / "workspace.yaml").read_text(encoding="utf-8"))[
        "load_from"
    ]
    project = tomllib.loads((DEPLOY / "project" / "pyproject.toml").read_text(encoding="utf-8"))[
        "tool"
    ]["dg"]["project"]
    served = command[command.index("--location-name") + 1]
    assert served == code_location["grpc_server"]["location_name"] == project["code_location_name"]


def test_the_pipeline_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example project's pipeline loads with its service's variables, and its
    secrets are files.
    """
    environment = {**services()["code"]["environment"]}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    spec = load_spec(DEPLOY / "project" / "src" / "pipelines" / "defs" / "orders" / "defs.yaml")
    assert spec.cluster.bootstrap_servers == ASKED["KAFKA_BOOTSTRAP"]
    assert spec.state_url() == environment["WINDROW_STATE"]
    named = set(
        re.findall(
            r"/run/secrets/([\w-]+)", (spec.folder / "defs.yaml").read_text(encoding="utf-8")
        )
    )
    assert named == {"kafka-ca", "kafka-password"}
    for name in ("code", "spark-worker"):
        assert named <= set(services()[name]["secrets"])


WORKER = "    secrets: [kafka-password, kafka-ca]\n    volumes:\n      - lake:/lake\n"
"""The secrets and volumes of workers, as they are in the compose file."""


@pytest.mark.parametrize(
    ("worker_lines", "missing_paths"),
    [
        (WORKER, set()),
        (
            WORKER.replace("[kafka-password, kafka-ca]", "[kafka-ca]"),
            {"/run/secrets/kafka-password"},
        ),
        (WORKER.replace("lake:/lake", "lake:/sea"), {"/lake/orders"}),
        (WORKER.replace("lake:/lake", "cache:/lake"), {"/lake/orders"}),
    ],
)
def test_workers_are_given_what_the_pipeline_names(
    worker_lines: str, missing_paths: set[str], tmp_path: Path
) -> None:
    """Driver and workers share each path in the pipeline's spec; a missing one is found."""
    text = COMPOSE.read_text(encoding="utf-8")
    assert text.count(WORKER) == 1
    lay_out(text.replace(WORKER, worker_lines), tmp_path, "127.0.0.1:1", {})
    [spec] = (tmp_path / "deploy" / "project").rglob("defs.yaml")
    assert (
        set(re.findall(r"not there(\S+?)}?$", spec.read_text(encoding="utf-8"), re.MULTILINE))
        == missing_paths
    )
