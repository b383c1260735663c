"""JAX's private names that the hook uses: each is there, and `--check` says what is lost if not."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from jobs import Jobs

from mcjax_launch import features
from mcjax_launch.hook import jax_internals
from mcjax_launch.hook.jax_internals import INTERNALS, JAXLIB, Internal, is_found

PACKAGE = Path(features.__file__).parent.parent
HOOKS = [*PACKAGE.glob("hook/*.py"), *PACKAGE.glob("features/*/hook*/**/*.py")]
HOOKS += PACKAGE.glob("features/*/hook.py")
SOURCE = "\n".join(path.read_text() for path in HOOKS if path.stem != "jax_internals")
# Those that came after 0.6; --compile-once does nothing without them.
SINCE = {
    "backend_compile_and_load": (0, 7),
    **dict.fromkeys(("_run_python_pjit", "_cpp_pjit", "jit_p.impl"), (0, 11)),
}
GONE = "CliDebugger.run"  # which the sum does not need


@pytest.mark.every_jax
@pytest.mark.parametrize("internal", INTERNALS, ids=str)
def test_internal_of_jax_exists(internal: Internal) -> None:
    """In every jax from 0.6.0 on, unless the table says that it came later."""
    if tuple(map(int, version("jax").split(".")[:2])) < SINCE.get(internal.name, (0, 6)):
        pytest.skip("newer than this jax")
    assert is_found(internal), f"gone from JAX: {internal}; lost: {internal.lost}"


@pytest.mark.parametrize("internal", INTERNALS, ids=str)
def test_internal_of_jax_is_used_by_the_hook(internal: Internal) -> None:
    """The list holds what the hook's source has, and nothing else."""
    for name in re.findall(r"\w+", internal.name):
        assert re.search(rf"\b{name}\b", SOURCE), f"{name} is not used by the hook any more"


def test_each_internal_module_in_use_is_listed() -> None:
    listed = {internal.module for internal in INTERNALS}
    used = set(re.findall(r"(?<!logging )[\"'](jax\._src\.[\w.]+)[\"']", SOURCE))
    # Loggers, whose names are no names in modules.
    assert used - listed == {"jax._src.callback", "jax._src.debugging"}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("jax._src.pjit", "no_such_name"),
        ("jax._src.no_such_module", "name"),
        (JAXLIB, "Device.no_such_attribute"),
        ("jax._src.interpreters.pxla", "MeshExecutable.__call__"),  # a class, whose class has one
        (JAXLIB, "get_distributed_runtime_client(no_such_argument)"),
    ],
)
def test_missing_internal_is_detected(module: str, name: str) -> None:
    assert not is_found(Internal(module, name, ""))


def test_check_names_missing_internals(jobs: Jobs, tmp_path: Path) -> None:
    [gone] = [internal for internal in jax_internals.INTERNALS if internal.name == GONE]
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nif 'MCJAX_JOB_ID' in os.environ:\n"
        f"    import jax._src.debugger.cli_debugger as debugger\n    del debugger.{GONE}\n"
    )
    ended = jobs.run("--check", "-n", 1, "-d", 1, "-x", f"PYTHONPATH={tmp_path}")
    assert ended.status == 0, ended.stdout
    text = " ".join(ended.stdout.split())
    assert f"without {gone}: {gone.lost} - another version of jax may" in text
