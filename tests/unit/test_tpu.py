"""TPU chips, and what a host knows of its slice: made-up trees of sysfs, and a metadata server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mcjax_launch.agent import startup
from mcjax_launch.job.devices import format_slice_order_note, format_slice_part_note, sort_by_worker
from mcjax_launch.job.hosts import Host
from mcjax_launch.wire.messages import HostFacts, Tpu

# What is on the buses of three machines: the place, the vendor and the device.
NOT_A_TPU = [
    ("0000:00:00.0", "0x8086", "0x1237"),
    ("0000:00:04.0", "0x1ae0", "0x0042"),  # Google's network card
    ("0000:00:05.1", "0x1ae0", "0x0063"),  # a second function of something
]
V5E = [(f"0000:00:{number:02x}.0", "0x1ae0", "0x0063") for number in range(5, 9)]
V4 = [(f"0000:00:{number:02x}.0", "0x1ae0", "0x005e") for number in range(4, 8)]


def machine(root: Path, *buses: list[tuple[str, str, str]]) -> str:
    """A root folder with these devices."""
    for place, vendor, device in (card for bus in buses for card in bus):
        folder = root / "sys/bus/pci/devices" / place
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    return str(root)


@contextmanager
def metadata(**attributes: str) -> Iterator[str]:
    """The address of a metadata server that knows these."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2].replace("-", "_")
            known = self.headers["Metadata-Flavor"] == "Google" and name in attributes
            assert self.path.startswith("/computeMetadata/v1/instance/attributes/")
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(attributes.get(name, "").encode())

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_chips_are_counted_as_jax_does(tmp_path: Path) -> None:
    assert startup.list_tpu_models(machine(tmp_path / "none")) == []
    assert startup.survey_tpu({}, machine(tmp_path / "other", NOT_A_TPU)) is None
    assert startup.list_tpu_models(machine(tmp_path / "v5e", NOT_A_TPU, V5E)) == ["v5e"] * 4
    assert startup.list_tpu_models(machine(tmp_path / "v4", V4)) == ["v4"] * 4


def test_tpu_worker_in_a_cluster_is_found(tmp_path: Path) -> None:
    root = machine(tmp_path, V5E)
    environ = {"TPU_WORKER_ID": "2", "TPU_WORKER_HOSTNAMES": "a.x,b.x,c.x,d.x"}
    assert startup.survey_tpu(environ, root) == Tpu(4, "v5e", 2, 4)
    environ["MEGASCALE_SLICE_ID"] = "1"
    assert startup.survey_tpu(environ, root) == Tpu(4, "v5e", 2, 4, 1)
    (tmp_path / "addresses").write_text("a:1,b:1,c:1,d:1,e:1\n")
    environ["TPU_PROCESS_ADDRESSES_PATH"] = str(tmp_path / "addresses")  # JAX reads it first
    assert startup.survey_tpu(environ, root) == Tpu(4, "v5e", 2, 5, 1)
    del environ["TPU_PROCESS_ADDRESSES_PATH"]
    environ["TPU_WORKER_ID"] = "x" * 9
    assert startup.survey_tpu(environ, root) == Tpu(4, "v5e", None, 4, 1)


def test_single_tpu_worker_is_found(tmp_path: Path) -> None:
    root = machine(tmp_path, V4)
    with metadata(
        agent_worker_number="3",
        worker_network_endpoints="a:0:10.0.0.1,b:1:10.0.0.2,c:2:10.0.0.3,d:3:10.0.0.4",
        tpu_env="ACCELERATOR_TYPE: 'v4-32'\nMEGASCALE_SLICE_ID: '1'\nZONE: 'z'\n",
    ) as server:
        assert startup.survey_tpu({"GCE_METADATA_IP": server}, root) == Tpu(4, "v4", 3, 4, 1)
        skipped = {"GCE_METADATA_IP": server, "TPU_SKIP_MDS_QUERY": "1"}
        assert startup.survey_tpu(skipped, root) == Tpu(4, "v4")
    with metadata() as server:
        assert startup.survey_tpu({"GCE_METADATA_IP": server}, root) == Tpu(4, "v4")
    assert startup.survey_tpu({"GCE_METADATA_IP": server}, root) == Tpu(4, "v4")  # which is gone


# --- the hosts of a job ---


def hosts(**places: tuple[int, int] | None) -> tuple[list[Host], dict[Host, HostFacts]]:
    """Hosts with their slices and numbers there; of slices of four."""
    named = {name: Host(name=name, slots=1) for name in places}
    answers = {
        named[name]: HostFacts("p", "/", tpu=place and Tpu(4, "v4", place[1], 4, place[0]))
        for name, place in places.items()
    }
    return list(named.values()), answers


ORDERS = {
    "cab": hosts(a=(0, 1), b=(0, 2), c=(0, 0)),
    "dbca": hosts(a=(1, 1), b=(0, 3), c=(1, 0), d=(0, 0)),
    "ab": hosts(a=(0, 1), b=None),
    "ba": hosts(b=(0, 1), a=(0, 1)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_follow_the_numbers_of_workers(order: str) -> None:
    assert "".join(host.name for host in sort_by_worker(*ORDERS[order])) == order


def test_slice_order_is_noted() -> None:
    named, _ = ORDERS["cab"]
    said = "the ranks follow the numbers of the TPU workers: hosts a, b, c"
    assert format_slice_order_note(named) == said
    assert format_slice_order_note([named[0]] * 9).endswith(", a, ...")


def part_of(named: list[Host], answers: dict[Host, HostFacts]) -> str:
    return format_slice_part_note(answers[host].tpu for host in named)


def test_partial_slice_is_noted() -> None:
    assert part_of(*hosts(a=(0, 0), b=(0, 1), c=(0, 2))) == (
        "3 of the slice's 4 workers have ranks: on TPUs JAX waits for all of them; "
        "add the others to --hosts (or -d K for CPU devices)"
    )
    whole = {f"h{n}": (n // 4, n % 4) for n in range(8)}
    assert part_of(*hosts(**whole)) == ""
    del whole["h6"]
    assert part_of(*hosts(**whole)).startswith("3 of the slice's 4 workers have ranks")
    assert part_of(*hosts(a=None)) == ""
