"""The Python API with JAX in the ranks: from a plain program, from asyncio, from a notebook."""

import asyncio
import os
import re
import signal
from typing import Any

import pytest
from jobs import Jobs, eventually

import mcjax_launch

pytestmark = pytest.mark.usefixtures("called")


def test_called_functions_run_in_joined_ranks(called: Any) -> None:
    # One device each: JAX's end may wait for ever for another one, whose result nobody reads.
    found = mcjax_launch.run(called.total, processes=2, cpu_devices=1)
    assert found == [(2, 2, 1.0), (2, 2, 1.0)]


def test_exception_is_raised_while_other_ranks_wait_in_a_collective(called: Any) -> None:
    with pytest.raises(ValueError, match="bad batch") as raised:
        mcjax_launch.run(called.fails_in_jax, processes=2, cpu_devices=1)
    assert raised.value.__notes__ == ["raised by fails_in_jax in rank 1 of 2"]


CELLS = {
    "value": """
import mcjax_launch
factor = 3
def f(plus):
    import jax
    print("in rank", jax.process_index())
    return jax.process_index() * factor + plus, jax.process_count()
mcjax_launch.run(f, processes=2, args=(1,), cpu_devices=1)
""",
    "error": """
def fails():
    import jax
    if jax.process_index() == 1:
        raise ValueError("bad batch")
    from jax.experimental.multihost_utils import sync_global_devices
    sync_global_devices("never")
try:
    mcjax_launch.run(fails, processes=2, cpu_devices=1, echo=False)
except ValueError as error:
    print(error, error.__notes__, str(error.__cause__).count('    raise ValueError("bad batch")'))
""",
    "await": """
import asyncio
words = ("sh", "-c", "echo hi {process_id}")
result = await asyncio.to_thread(mcjax_launch.launch, words, processes=2)
[rank.stdout for rank in result.ranks]
""",
}


@pytest.mark.notebook
def test_jobs_run_in_a_notebook(jobs: Jobs) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("cloudpickle")
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, CELLS.values())))
    asyncio.run(nbclient.NotebookClient(notebook, timeout=90).async_execute())
    told = {name: shown(cell) for name, cell in zip(CELLS, notebook.cells, strict=True)}
    assert sorted(told["value"].splitlines()) == [
        "[(1, 2), (4, 2)]",
        "[0] in rank 0",
        "[1] in rank 1",
    ]
    assert told["error"] == "bad batch ['raised by fails in rank 1 of 2'] 1\n"
    assert told["await"] == r"['hi 0\n', 'hi 1\n']"


@pytest.mark.notebook
def test_interrupting_a_cell_ends_its_job(jobs: Jobs) -> None:
    """The job ends with it; the kernel goes on."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    codes = [
        "import mcjax_launch, os; print(os.getpid())",
        "mcjax_launch.launch('sh', '-c', 'echo ready; exec sleep 1000', echo=True)",
        "print('goes on')",
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, codes)))
    client = nbclient.NotebookClient(notebook, timeout=90, allow_errors=True)

    async def main() -> None:
        async with client.async_setup_kernel():
            await client.async_execute_cell(notebook.cells[0], 0)
            kernel = int(shown(notebook.cells[0]))
            cell = asyncio.create_task(client.async_execute_cell(notebook.cells[1], 1))
            while "ready" not in shown(notebook.cells[1]):
                await asyncio.sleep(0.05)
            os.kill(kernel, signal.SIGINT)
            await cell
            await client.async_execute_cell(notebook.cells[2], 2)

    asyncio.run(main())
    errors = [output.ename for output in notebook.cells[1].outputs if output.output_type == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert shown(notebook.cells[2]) == "goes on\n"
    eventually(lambda: not jobs.left(), 10)


def shown(cell: Any) -> str:
    """What stands below a cell, without colours."""
    outputs = cell.outputs
    text = "".join(
        output.text
        if output.output_type == "stream"
        else output.get("data", {}).get("text/plain", "")
        for output in outputs
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
