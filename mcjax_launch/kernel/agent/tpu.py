"""The TPU chips of a host, and what it knows of its slice before anything is started.

Chips are counted as JAX counts them: by the vendor and the device of what is on the PCI bus, since
Google's network cards have the same vendor. Its place in the slice is in variables (GKE), or known
to the metadata server (a TPU VM). Nothing is asked of a host without chips.
"""

from __future__ import annotations

import os

from ..wire.messages import Tpu
from ..wire.system import LINUX, text_of

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VENDOR = "0x1ae0"
# As in JAX: by the device's number on the bus.
_MODELS = {
    "0x0027": "v3",
    "0x0056": "plc",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
    "0x0083": "8i",
    "0x007c": "8t",
}
_DEVICES = "sys/bus/pci/devices"
_NUMBER, _WORKERS, _ENVIRONMENT = "agent-worker-number", "worker-network-endpoints", "tpu-env"
# The server is on the host itself.
_ANSWERS_S = 2.0
_MOST_ANSWER = 1 << 20


def look(environ: Mapping[str, str], root: str = "/") -> Tpu | None:
    """What is known of the chips of this host; None if it has none.

    Args:
        environ: of its ranks.
        root: of the file system.

    """
    found = models(root)
    if not found:
        return None
    number, workers, slice_number = environ.get("TPU_WORKER_ID"), _named(environ), "0"
    if number is not None:
        slice_number = environ.get("MEGASCALE_SLICE_ID", "0")
    elif "TPU_SKIP_MDS_QUERY" not in environ:
        ask = _metadata(environ)
        number = ask(_NUMBER)
        if number is not None:  # else there is no such server, or it knows nothing of TPUs
            workers = workers or _count(ask(_WORKERS) or "")
            slice_number = _of_slice(ask(_ENVIRONMENT) or "")
    return Tpu(len(found), found[0], _whole(number), workers, _whole(slice_number) or 0)


def models(root: str = "/") -> list[str]:
    """The model of each chip."""
    if not LINUX:
        return []
    folder = os.path.join(root, _DEVICES)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    devices = (os.path.join(folder, name) for name in names if name.endswith(".0"))
    found = (_model(device) for device in devices)
    return [model for model in found if model is not None]


def _model(device: str) -> str | None:
    if text_of(os.path.join(device, "vendor")) != _VENDOR:
        return None
    return _MODELS.get(text_of(os.path.join(device, "device")))


def _named(environ: Mapping[str, str]) -> int:
    """How many workers the variables name; 0 if they name none."""
    for name in ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"):
        if environ.get(name):
            return _count(environ[name])
    return 0


def _count(listed: str) -> int:
    return len([one for one in listed.split(",") if one.strip()])


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None


def _of_slice(tpu_env: str) -> str:
    """The number of the slice, in lines such as `MEGASCALE_SLICE_ID: '1'`."""
    for line in tpu_env.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "MEGASCALE_SLICE_ID":
            return value.strip().strip("'")
    return "0"


def _metadata(environ: Mapping[str, str]) -> Callable[[str], str | None]:
    """Asks the metadata server for an attribute of this machine; None where it has no such."""
    server = environ.get("GCE_METADATA_IP", "metadata.google.internal")

    def ask(attribute: str) -> str | None:
        import http.client  # as only hosts with chips need

        connection = http.client.HTTPConnection(server, timeout=_ANSWERS_S)
        try:
            path = f"/computeMetadata/v1/instance/attributes/{attribute}"
            connection.request("GET", path, headers={"Metadata-Flavor": "Google"})
            answer = connection.getresponse()
            text = answer.read(_MOST_ANSWER).decode("utf-8", "replace").strip()
            return text if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    return ask
