"""Clusters in a windrow.yaml: where the file is searched, overrides by a spec, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.load import find_shared, load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.client_properties import consumer_properties

SECRET = "hunter2-C4nary"
SHARED = """\
clusters:
  prod:
    bootstrap_servers: "one:9092,two:9092"
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: me
      sasl.password: "{{ env.SHARED_PASSWORD }}"
      client.rack: a
    tuning: {batch_messages: 5}
  staging: {bootstrap_servers: "127.0.0.1:1"}
"""
SPEC = """\
id: orders
source:
  topic: shop.orders
  SOURCE
window: {grid: batch}
decode: {schema: "my.schemas:Order"}
sink: {path: lake}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a spec; the windrow.yaml is two levels above it."""
    monkeypatch.setenv("SHARED_PASSWORD", SECRET)
    (tmp_path / "windrow.yaml").write_text(SHARED)
    spec_folder = tmp_path / "pipelines" / "orders"
    spec_folder.mkdir(parents=True)
    return spec_folder


def load(folder: Path, source: str = "cluster: prod") -> PipelineSpec:
    """Returns the spec with this source."""
    file = folder / "defs.yaml"
    file.write_text(SPEC.replace("SOURCE", source))
    return load_spec(file)


def refused(folder: Path, source: str = "cluster: prod") -> str:
    """Returns the error about the spec with this source."""
    with pytest.raises(SpecError) as caught:
        load(folder, source)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_a_spec_names_its_cluster(folder: Path) -> None:
    """A spec can name its cluster; address, security and tuning then come from windrow.yaml."""
    cluster = load(folder).cluster
    assert cluster.bootstrap_servers == "one:9092,two:9092"
    assert cluster.client["sasl.password"] == SECRET
    assert (cluster.client["client.rack"], cluster.tuning.batch_messages) == ("a", 5)
    attributes = {
        "id": "o",
        "window": {"grid": "batch"},
        "decode": {"schema": "a.b:C"},
        "sink": {"path": "x"},
    }
    source = {"topic": "t", "cluster": "prod"}
    assert parse_spec({**attributes, "source": source}, folder).cluster == cluster
    assert (
        parse_spec(
            {**attributes, "source": {**source, "cluster": "{{ env('NOT_SET', 'prod') }}"}}, folder
        ).cluster
        == cluster
    )


def test_a_spec_with_its_own_address_needs_no_file(tmp_path: Path) -> None:
    """A spec with its own address needs no windrow.yaml."""
    spec = load(
        tmp_path,
        "bootstrap_servers: 'a:1'\n  client: {client.id: me}\n  tuning: {batch_messages: 7}",
    )
    assert spec.named_clusters == {}
    assert (
        spec.cluster.bootstrap_servers,
        dict(spec.cluster.client),
        spec.cluster.tuning.batch_messages,
    ) == ("a:1", {"client.id": "me"}, 7)


def test_dead_letters_name_their_cluster(folder: Path) -> None:
    """Dead letters can have another cluster, whose properties the spec can override."""
    source = (
        "bootstrap_servers: 'a:1'\ndead_letters: {topic: dead, cluster: prod, client:"
        " {sasl.username: you}}"
    )
    spec = load(folder, source)
    assert spec.dead_cluster is not None
    assert (spec.cluster.bootstrap_servers, spec.dead_cluster.bootstrap_servers) == (
        "a:1",
        "one:9092,two:9092",
    )
    assert (
        spec.dead_cluster.client["sasl.username"],
        spec.dead_cluster.client["sasl.password"],
    ) == ("you", SECRET)
    both = load(folder, "cluster: staging\ndead_letters: {topic: dead, cluster: prod}")
    assert both.dead_cluster is not None
    assert (both.cluster.bootstrap_servers, both.dead_cluster.bootstrap_servers) == (
        "127.0.0.1:1",
        "one:9092,two:9092",
    )
    message = refused(
        folder, "cluster: staging\ndead_letters: {topic: dead, cluster: prod, client: {acks: '0'}}"
    )
    assert "dead_letters.client.acks: is not among the properties" in message


@pytest.mark.parametrize("section", ["source", "sink", "dead_letters"])
def test_a_spec_made_in_python_needs_the_cluster_that_it_names(
    tmp_path: Path, section: str
) -> None:
    """`PipelineSpec` reads no windrow.yaml, and the error says how to pass the cluster."""
    cluster = ClusterSpec(bootstrap_servers="other:9092")
    address: dict[str, object] = {"bootstrap_servers": "one:9092"}
    named: dict[str, object] = {"cluster": "prod"}
    where = {s: named if s == section else address for s in ("source", "sink", "dead_letters")}
    attributes = {
        "id": "orders",
        "source": {"topic": "t", **where["source"]},
        "window": {"grid": "batch"},
        "decode": {"schema": "my.schemas:Order"},
        "sink": {"kind": "kafka", "topic": "into", "staging": "staged", **where["sink"]},
        "dead_letters": {"topic": "dead", **where["dead_letters"]},
        "folder": tmp_path,
    }

    def addresses(spec: PipelineSpec) -> list[object]:
        dead = spec.dead_cluster
        return [
            spec.cluster.bootstrap_servers,
            getattr(spec.reached_sink, "bootstrap_servers", None),
            None if dead is None else dead.bootstrap_servers,
        ]

    with pytest.raises(SpecError) as lacking:
        addresses(PipelineSpec.model_validate(attributes))
    assert lacking.value.message.startswith(f"{section}.cluster names the cluster prod, and")
    assert "load_spec" in lacking.value.advice
    assert "named_clusters={'prod': ...}" in lacking.value.advice
    assert f"{section}.bootstrap_servers" in lacking.value.advice

    spec = PipelineSpec.model_validate({**attributes, "named_clusters": {"prod": cluster}})
    assert addresses(spec).count("other:9092") == 1


def test_what_the_spec_says_wins(folder: Path) -> None:
    """The spec overrides single properties and single settings of tuning."""
    cluster = load(
        folder,
        "cluster: prod\n  client: {sasl.username: you, client.rack: z}\n"
        "  tuning: {stall_timeout: 1s}",
    ).cluster
    properties = consumer_properties(cluster.bootstrap_servers, cluster.client)
    assert (
        properties["sasl.username"],
        properties["sasl.password"],
        properties["client.rack"],
    ) == (
        "you",
        SECRET,
        "z",
    )
    assert cluster.tuning.reader() == {"rows_max": 5, "stall_seconds": 1.0}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "cluster: prod\n  bootstrap_servers: 'a:1'",
            "line 5: source.bootstrap_servers: 'cluster' and 'bootstrap_servers' must not",
        ),
        (
            "isolation: read_committed",
            "line 2: source.bootstrap_servers: is missing, and so is cluster",
        ),
        ("cluster:", "line 4: source.cluster: must not be empty"),
        ("clustr: prod", "line 4: source.clustr: unknown key; did you mean cluster?"),
        ("cluster: [prod]", "line 4: source.cluster: "),
        (
            "cluster: a b",
            (
                "line 4: source.cluster: must be a cluster's name: 1 to 60 of a-z A-Z 0-9 _ -, not"
                " 'a b'"
            ),
        ),
        ("cluster: prd", "has no cluster prd: there are prod, staging; did you mean prod?"),
        ("cluster: true", "line 4: source.cluster: must be a text: put it in quotes, not True"),
        ("cluster: elsewhere", "/windrow.yaml has no cluster elsewhere: there are prod, staging"),
        (
            'cluster: "{{ env.NOT_SET_HERE }}"',
            "line 4: source.cluster: the environment variable NOT_SET_HERE is not set",
        ),
        (
            "cluster: staging\n  client: {sasl.mechanism: PLAIN}",
            "source.client.sasl.mechanism: would be ignored",
        ),
        (
            "cluster: prod\n  client: {security.protocol: PLAINTEXT}",
            "source.client: sasl.mechanism, sasl.password, sasl.username would be",
        ),
        (
            "cluster: prod\n  tuning: {batch_byte: 1}",
            "line 5: source.tuning.batch_byte: unknown key; did you mean batch_bytes?",
        ),
    ],
)
def test_a_mistake_in_the_spec(folder: Path, source: str, expected: str) -> None:
    """A mistake in the spec is reported once, with the spec's line.

    If it is about clusters, the windrow.yaml and its clusters are named.
    """
    message = refused(folder, source)
    assert expected in message
    assert message.startswith(f"1 mistake in {folder / 'defs.yaml'}:")


@pytest.mark.parametrize(
    ("replaced_text", "replacement", "expected"),
    [
        (
            "    tuning:",
            "    tunning:",
            "line 10: clusters.prod.tunning: unknown key; did you mean tuning?",
        ),
        (
            "batch_messages: 5",
            "batch_messages: soon",
            "line 10: clusters.prod.tuning.batch_messages: ",
        ),
        (
            "me\n",
            "me\n      sasl.kerberos.x: y\n",
            "line 8: clusters.prod.client.sasl.kerberos.x: is refused",
        ),
        (
            "one:9092,two:9092",
            "me:pw@one:9092",
            "line 3: clusters.prod.bootstrap_servers: must not hold a user or a password",
        ),
        (
            "SHARED_PASSWORD",
            "NOT_SET_HERE",
            (
                "line 8: clusters.prod.client.sasl.password: the environment variable NOT_SET_HERE"
                " is not set"
            ),
        ),
        (
            '"{{ env.SHARED_PASSWORD }}"',
            "[hunter2-C4nary]",
            "line 8: clusters.prod.client.sasl.password: must be a text",
        ),
        (
            "sasl.username: me",
            "sasl.username: 010",
            "line 7: clusters.prod.client.sasl.username: YAML reads this as something else",
        ),
        (
            "clusters:\n",
            "registry: x\nclusters:\n",
            "line 1: registry: unknown key; known are clusters",
        ),
        (
            "  staging:",
            "  prod: {}\n  staging:",
            "line 11: clusters.prod: is there twice, first in line 2",
        ),
        ("  staging:", " staging", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_file(
    folder: Path, replaced_text: str, replacement: str, expected: str
) -> None:
    """A mistake in the windrow.yaml is reported with that file and its line, without a secret."""
    file = folder.parents[1] / "windrow.yaml"
    file.write_text(SHARED.replace(replaced_text, replacement))
    message = refused(folder, "cluster: pro_d" if "pro_d" in replacement else "cluster: prod")
    assert expected in message
    assert f"in {file}:" in message.splitlines()[0]


@pytest.mark.parametrize("text", ["", "clusters:", "clusters: {}", "clusters: [prod]", "- a", "x"])
def test_a_file_without_clusters(folder: Path, text: str) -> None:
    """A windrow.yaml without clusters is a mistake of that file."""
    file = folder.parents[1] / "windrow.yaml"
    file.write_text(text)
    assert f"in {file}:" in refused(folder)


def test_what_is_wrong_with_another_cluster_is_not_told(folder: Path) -> None:
    """The templates of other clusters aren't resolved.

    A machine has only the secrets of the clusters that it reads.
    """
    text = SHARED.replace(
        '{bootstrap_servers: "127.0.0.1:1"}',
        '{bootstrap_servers: "{{ env.NOT_SET_HERE }}", nonsense: 1}',
    )
    (folder.parents[1] / "windrow.yaml").write_text(text)
    assert load(folder).cluster.bootstrap_servers == "one:9092,two:9092"
    assert "NOT_SET_HERE is not set" in refused(folder, "cluster: staging")


def test_the_nearest_file_counts_alone(folder: Path) -> None:
    """The nearest windrow.yaml from the spec's folder upwards is the only one that is read."""
    assert find_shared(folder)[0] == folder.parents[1] / "windrow.yaml"
    (folder.parent / "windrow.yaml").write_text('clusters: {here: {bootstrap_servers: "a:1"}}')
    assert load(folder, "cluster: here").cluster.bootstrap_servers == "a:1"
    assert "has no cluster prod: there are here" in refused(folder)


@pytest.mark.parametrize("file_kind", ["a folder", "a link to nowhere"])
def test_the_nearest_counts_whatever_it_is(folder: Path, file_kind: str) -> None:
    """A windrow.yaml that isn't a readable file is refused instead of skipped.

    The next one above may mean another cluster by the same name.
    """
    near = folder / "windrow.yaml"
    if file_kind == "a folder":
        near.mkdir()
    else:
        near.symlink_to(folder / "nowhere")
    assert (
        f"line 4: source.cluster: {near} is no file that can be read: it would say what cluster"
        " prod is" in refused(folder)
    )


@pytest.mark.parametrize("root", [".git", "home", "anybody's"])
def test_where_the_search_ends(folder: Path, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at a repository's root, at the home directory, and below a shared folder.

    Any user could have put a file into a shared folder. The error says where the search ended.
    """
    assert find_shared(folder)[0] is not None
    if root == ".git":
        (folder.parent / ".git").write_text("gitdir: elsewhere")
    elif root == "home":
        monkeypatch.setenv("HOME", str(folder.parent))
    else:
        folder.parents[1].chmod(0o777)
    assert find_shared(folder) == (None, folder.parent)
    message = refused(folder)
    assert (
        "line 4: source.cluster: there is no windrow.yaml, which would say what cluster prod is: it"
        " was looked for in" in message
    )
    assert f"up to {folder.parent}" in message


def test_a_key_of_the_loader_is_unknown(folder: Path) -> None:
    """A key that only the loader sets is refused in a file."""
    file = folder / "defs.yaml"
    file.write_text(
        SPEC.replace("SOURCE", "cluster: prod")
        + "named_clusters: {prod: {bootstrap_servers: 'a:1'}}\n"
    )
    with pytest.raises(
        SpecError, match="line 8: named_clusters: unknown key; a cluster of windrow"
    ):
        load_spec(file)
