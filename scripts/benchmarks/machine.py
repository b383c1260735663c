"""What the numbers were measured on."""

import os
import platform
import subprocess
import time
from pathlib import Path


def description(root: Path, python: str) -> dict[str, str]:
    """Return the machine, the versions and the commit, by name.

    Args:
        root: of the repository.
        python: of the ranks.

    """
    jax = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('jax'))"],
        capture_output=True,
        text=True,
    )
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(root),
        "processor": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "jax": jax.stdout.strip(),
        "load before": load,
    }


def commit(root: Path) -> str:
    """Return the short name of the current commit, marked if files differ from it."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
