"""What `--engine-option PATH=VALUE` makes of a manifest, and its YAML."""

from typing import Any

import pytest
import yaml

from mcjax_launch.errors import LaunchError
from mcjax_launch.schedulers.manifest import change, to_yaml

QUEUE = {"kueue.x-k8s.io/queue-name": "q"}


def places() -> dict[str, dict[str, Any]]:
    container: dict[str, Any] = {"name": "main", "env": [{"name": "A", "value": "1"}]}
    pod = {"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    return {"metadata": {"name": "n"}, "pod": pod, "container": container}


CHANGES: list[tuple[str, str, Any]] = [
    ("metadata.name=m", "metadata", {"name": "m"}),
    ("metadata.labels['kueue.x-k8s.io/queue-name']=q", "metadata", {"name": "n", "labels": QUEUE}),
    ('metadata.labels["kueue.x-k8s.io/queue-name"]=q', "metadata", {"name": "n", "labels": QUEUE}),
    ("metadata.labels[kueue.x-k8s.io/queue-name]=q", "metadata", {"name": "n", "labels": QUEUE}),
    ("metadata.labels.a=16", "metadata", {"name": "n", "labels": {"a": "16"}}),
    ('metadata.labels={"a": "1"}', "metadata", {"name": "n", "labels": {"a": "1"}}),
    ('metadata={"a": 1, "name": null}', "metadata", {"a": 1}),
    ("metadata.a.b.c=[1, {}]", "metadata", {"name": "n", "a": {"b": {"c": [1, {}]}}}),
    ("metadata.a=", "metadata", {"name": "n", "a": ""}),
    ("metadata.a=b=c", "metadata", {"name": "n", "a": "b=c"}),
    ("metadata.a=NaN", "metadata", {"name": "n", "a": "NaN"}),
    ("metadata.name=null", "metadata", {}),
    ("metadata.none=null", "metadata", {"name": "n"}),
    ("container.env[A].value=16", "container", {"env": [{"name": "A", "value": "16"}]}),
    ("container.env.A.value=16", "container", {"env": [{"name": "A", "value": "16"}]}),
    ("container.env[0].value=16", "container", {"env": [{"name": "A", "value": "16"}]}),
    ("container.env[A]=null", "container", {"env": []}),
    ("container.env[B]=null", "container", {"env": [{"name": "A", "value": "1"}]}),
    ("container.ports[0].containerPort=16", "container", {"ports": [{"containerPort": 16}]}),
    ("container.resources.limits.cpu=16", "container", {"resources": {"limits": {"cpu": 16}}}),
    ('container={"env": []}', "container", {"env": []}),
]


@pytest.mark.parametrize(("option", "place", "becomes"), CHANGES)
def test_changes(option: str, place: str, becomes: dict[str, Any]) -> None:
    found = places()
    change(found, option)
    assert found[place].items() >= becomes.items()
    if place == "metadata":
        assert found[place] == becomes


def test_items_of_a_list() -> None:
    found = places()
    for option in (
        "pod.volumes[data].persistentVolumeClaim.claimName=c",
        "pod.volumes[tmp].emptyDir.medium=Memory",
        "pod.tolerations[0].key=gpu",
        "pod.tolerations[1].key=spot",
        "pod.tolerations[1].operator=Exists",
        'pod.containers[main]={"image": "i"}',
        "container.tty=true",
    ):
        change(found, option)
    assert found["pod"]["volumes"] == [
        {"name": "tmp", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    assert found["pod"]["tolerations"] == [{"key": "gpu"}, {"key": "spot", "operator": "Exists"}]
    (container,) = found["pod"]["containers"]
    assert (container["image"], container["tty"]) == ("i", True)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("foo", "write PATH=VALUE, as in pod.nodeSelector.disk=ssd or "),
        ("", "write PATH=VALUE"),
        ("=x", "write PATH=VALUE"),
        ("--partition=gpu", "begin PATH with metadata, pod or container"),
        ("pod.a[=1", "write PATH=VALUE"),
        ("pod.a[]=1", "write PATH=VALUE"),
        ("pod.a['x=1", "write PATH=VALUE"),
        ("pod..a=1", "write PATH=VALUE"),
        ("spec.a=1", "begin PATH with metadata, pod or container"),
        ("pod=1", "pod is an object, so write pod.NAME=VALUE"),
        ("pod=null", "pod is an object"),
        ("metadata.name.a=1", '"n" has no a'),
        ("pod.volumes[2].name=x", "there is no item 2: the list has 1"),
        ("metadata.a=\udce4", "not UTF-8"),
    ],
)
def test_what_cannot_be_changed(option: str, words: str) -> None:
    with pytest.raises(LaunchError) as refused:
        change(places(), option)
    assert f"--engine-option {option}: " in str(refused.value) or "\udce4" in option
    assert words in str(refused.value)


def test_deep_json() -> None:
    """Text, where JSON is too deep to be read."""
    found = places()
    change(found, "metadata.a=" + "[" * 100_000)
    assert found["metadata"]["a"] == "[" * 100_000


def test_yaml() -> None:
    values: tuple[dict[str, Any], ...] = (
        {"a": {}, "b": [], "c": [{}, [], [[1]], [{"x": {}}]], "d": None},
        {"y": "yes", "true": "on", "a: b": "#", "~": "~", "1": "1", "": "", "é": "ä\n"},
        {"f": 1.5, "i": 10**20, "t": True, "s": "NaN", "n": "null", "v": "1.30", "d": "2026-01-01"},
    )
    for value in values:
        assert yaml.safe_load(to_yaml(value)) == value
