"""Cells of notebooks that ranks run, in real kernels, with JAX."""

import asyncio
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import PROGRAMS, Jobs
from remote import FAKE_SSH

# Gloo waits so long for ranks that do not come.
HANGS_S = 45

# The cells of JAX's guide to multi-controller programs. The axis types of the matmul's mesh are added:
# since jax 0.9 make_mesh has others by default, with which the guide's line raises. Its matrices are
# eight times as long.
GUIDE = [
    (PROGRAMS / "guide" / "toy.py").read_text(),
    """
print("process id =", jax.process_index())
print("global devices =", jax.devices())
print("local devices =", jax.local_devices())
""",
    """
import jax
jax.distributed.initialize()
if jax.process_index() == 0:
  print(jax.devices())
""",
    """
from jax.sharding import Mesh
mesh = Mesh(jax.devices(), ('a',))

# in this case, the same as
mesh = jax.make_mesh((jax.device_count(),), ('a',))  # use this in practice
""",
    """
arr = jax.device_put(jnp.ones((32, 32)), NamedSharding(mesh, P('a')))
if jax.process_index() == 0:
  jax.debug.visualize_array_sharding(arr)
""",
    """
mesh = jax.make_mesh((jax.device_count() // 2, 2), ('a', 'b'),
                     axis_types=(jax.sharding.AxisType.Auto,) * 2)

def device_put(x, spec):
  return jax.device_put(x, NamedSharding(mesh, spec))

# construct global arrays by sharding over the global mesh
x = device_put(jnp.ones((512, 256)), P('a', 'b'))
y = device_put(jnp.ones((256, 512)), P('b', None))

# run a distributed matmul
z = jax.nn.relu(x @ y)

# inspect the sharding of the result
if jax.process_index() == 0:
  jax.debug.visualize_array_sharding(z)
  print()
  print(z.sharding)
""",
    """
w = device_put(z, P(None, None))
if jax.process_index() == 0:
  print(w)
""",
    """
num_devices = jax.device_count() // 2
mesh = jax.make_mesh((num_devices,), ('a',),
                     devices=jax.devices()[num_devices:],
                     axis_types=(jax.sharding.AxisType.Explicit,))
sharding = NamedSharding(mesh, P('a'))

data = np.arange(64).reshape((8, 8))
x = jax.device_put(data, sharding)

# inspect the sharding of the result
if jax.process_index() == 0:
  jax.debug.visualize_array_sharding(x)
  print()
  print(x.sharding)

# inspect the data local to each host
print(f"Devices attached to process {jax.process_index()}: {jax.local_devices()}")
print(f"Addressable data for process {jax.process_index()}:")
for shard in x.addressable_shards:
  print(f"device {shard.device} has local data {shard.data}")
""",
    """
result = jnp.sum(jnp.sin(x))
print(f"process={jax.process_index()} got result: {result}")
""",
]


HOSTS = f" --hosts a:2,b:2 --via {shlex.quote(FAKE_SSH)} --mtls off"


@pytest.mark.notebook
@pytest.mark.parametrize("hosts", ["", pytest.param(HOSTS, marks=pytest.mark.nightly, id="hosts")])
def test_guide_runs_as_a_notebook(jobs: Jobs, hosts: str) -> None:
    begin = f"%mcjax -n 4 -d 2{hosts} -- {{process_id}} {{num_processes}}"
    cells = [f"%%mcjax\n{text}" for text in GUIDE]
    pytest.importorskip("rich")  # draws shardings
    shown = run_notebook("%load_ext mcjax_launch", begin, *cells, "%%mcjax 0\nw", "%mcjax stop")
    host = " [ab]" if hosts else ""
    large = r"Array\(shape=\(512, 512\)"  # all that newer versions of JAX print
    assert shown[1].startswith("4 ranks run: %mcjax -n 4 -d 2")
    for rank in range(4):
        line = rf"^\[{rank}{host}\] process={rank} got result: -0.1239"
        assert re.search(line, shown[2], re.M), shown
    assert re.search(rf"^\[0{host}\] NamedSharding\(mesh=Mesh\('a': 4, 'b': 2", shown[7], re.M)
    assert re.match(rf"\[0{host}\] (\[\[256\. 256\.|{large})", shown[8])
    assert re.search(rf"^\[2{host}\] process=2 got result: ", shown[10], re.M)
    assert re.match(rf"Array\(\[\[256\.|{large}", shown[11])


@pytest.mark.notebook
def test_cells_of_a_notebook(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks have the options of the project, too."""
    (tmp_path / "pyproject.toml").write_text("[tool.mcjax-launch]\nnum-processes = 2\n")
    monkeypatch.chdir(tmp_path)
    shown = run_notebook(
        "%load_ext mcjax_launch",
        "%%mcjax\n1",
        "%mcjax -d 1",
        "%mcjax -n 3",
        "%%mcjax\nimport jax\nprint('hi')\njax.process_index() % 1",
        "%%mcjax 1\ndef fails():\n    return jax.numpy.ones(2) + jax.numpy.ones(3)\nfails()",
        "%%mcjax\nclass Rich:\n    def _repr_html_(self):\n        return '<b>rich</b>'\nRich()",
        "%mcjax restart",
        "%%mcjax\n'jax' in globals()",
        "%mcjax stop",
        "%mcjax",
    )
    none = "no ranks run; %mcjax -n 4 starts ranks\n"
    assert shown[1] == f"mcjax-launch: {none}"
    assert shown[2] == "2 ranks run: %mcjax -d 1\n"
    assert shown[3] == "mcjax-launch: 2 ranks run: %mcjax -d 1; %mcjax stop ends them first\n"
    assert shown[4] == "[0-1] hi\n[0-1] 0\n"
    assert re.findall(r'File "(<cell \d>)", line (\d)', shown[5]) == [
        ("<cell 2>", "3"),
        ("<cell 2>", "2"),
    ]
    assert "site-packages" not in shown[5]
    assert shown[6] == "[0-1] \n<b>rich</b>"
    assert shown[7:] == ["2 ranks run: %mcjax -d 1\n", "[0-1] False\n", "", none]


@pytest.mark.notebook
def test_wrong_words_of_a_notebook_are_told_in_a_line(jobs: Jobs) -> None:
    shown = run_notebook(
        "%load_ext mcjax_launch",
        "%mcjax -n 2 'open",
        "%mcjax restrat",
        "%mcjax --max-restarts 1",
        "%mcjax -n 2 -d 1 -x 'WORDS=a b'",
        "%mcjax --version",
        "%%mcjax\nimport os\nos.environ['WORDS']",
        "%%mcjax\nos.getpid();",
        "%%mcjax 1\nos.kill(os.getpid(), 9)",
        "%%mcjax\n1",
        "%mcjax restart",
        "%mcjax --num-proceses 2",
    )
    assert shown[1:3] == [
        "mcjax-launch: -n 2 'open: no closing quotation\n",
        "mcjax-launch: restrat: neither an option nor a word of %mcjax; did you mean restart?\n",
    ]
    assert shown[3] == (
        "mcjax-launch: --max-restarts is not for notebooks: %mcjax restart starts the ranks again, "
        "without their state\n"
    )
    assert re.fullmatch(r"mcjax-launch \S+\n", shown[5])
    assert shown[6:8] == ["[0-1] 'a b'\n", ""]
    over = "rank 1 failed: killed by SIGKILL"
    assert shown[8].count(f"mcjax-launch: {over}") == 2
    assert shown[9].startswith(f"mcjax-launch: the ranks have ended: {over}")
    assert shown[9].endswith("; %mcjax restart starts new ranks\n")
    assert shown[9].count("\n") == 1
    assert shown[10].startswith("2 ranks run: ")
    near = "--num-proceses: no such option; did you mean --num-processes?"
    assert shown[11] == f"mcjax-launch: {near}\n"


GLOBAL = """
import asyncio, jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",))
def spread(spec):
    return jax.device_put(jnp.arange(8.0), NamedSharding(mesh, spec))
x, whole, own = spread(P("i")), spread(P()), {"number": jnp.ones(1) * jax.process_index()}
x.sum()
"""


@pytest.mark.notebook
def test_values_pass_between_a_notebook_and_its_ranks(jobs: Jobs) -> None:
    """A program that needs the other ranks is refused in a cell of some, and nothing hangs."""
    began = time.monotonic()
    shown = run_notebook(
        "%load_ext mcjax_launch",
        "%mcjax -n 2 -d 2",
        "%%mcjax 0\nimport jax\njax.devices()",
        f"%%mcjax{GLOBAL}",
        "%%mcjax 0\nx.sum()",
        "%%mcjax 0\nfloat(whole[3])",
        "_ + 1",
        "%mcjax pull x",
        "%mcjax pull own",
        "own",
        "%mcjax pull whole 1\n",
        "whole.shape\n",
        "add = lambda number: number + 1",
        "%mcjax push add 1",
        "%%mcjax 1\nawait asyncio.sleep(0.01, add(6))",
        "ranks = %mcjax session\nranks.exec('x.shape')",
        "%%mcjax\n%timeit -n 2 -r 3 x.sum().block_until_ready()",
        "%%mcjax\n%%time\nx.shape",
        "%%mcjax\nx.sum()",
    )
    assert "needs all ranks, and only rank 0 would come" in shown[2]
    assert shown[3] == "[0-1] Array(28., dtype=float32)\n"
    assert shown[4].endswith(
        "RuntimeError: x spans ranks 0-1, and this runs in rank 0 alone: run it in ranks 0-1, or "
        "use x.addressable_data(0)\n"
    )
    assert shown[5:7] == ["3.0", "4.0"]
    assert shown[7].startswith("mcjax-launch: pull: ranks 0-1 raised ValueError: x spans ranks: ")
    assert shown[9].split() == (
        "[{'number': array([0.], dtype=float32)}, {'number': array([1.], dtype=float32)}]".split()
    )
    assert [shown[11], shown[14], shown[15]] == ["(8,)", "7", "[(8,), (8,)]"]
    assert shown[16].count(" per loop (mean ± std. dev. of 3 runs, 2 loops each)\n") == 2
    assert re.fullmatch(r"\[0-1\] \(8,\)\nWall time: [\d.]+ m?s\n", shown[17])
    assert shown[18] == shown[3]
    assert time.monotonic() - began < HANGS_S


@pytest.mark.notebook
def test_mistakes_in_cells_are_the_users(jobs: Jobs) -> None:
    shown = run_notebook(
        "%load_ext mcjax_launch",
        "%mcjax -n 2 -d 1",
        "%%mcjax\nx = (1",
        "%%mcjax\n  y = 1\n z = 2",
        "%%mcjax\n!ls",
        "%%mcjax\n%cd /",
        "%%mcjax\nraise ValueError(await __import__('asyncio').sleep(0, 7))",
    )
    told = [text.splitlines() for text in shown[2:]]
    assert told[0] == [
        '[0-1]   File "<cell 1>", line 1',
        "[0-1]     x = (1",
        "[0-1]         ^",
        "[0-1] SyntaxError: '(' was never closed",
    ]
    assert told[1][-1].startswith("[0-1] IndentationError: ") and "mcjax_launch" not in shown[3]
    why = (
        "magics, ! and ? work in the notebook's own process, without %%mcjax; in ranks, a whole "
        "cell may be %time, %%time, %timeit or %%timeit"
    )
    assert told[2:4] == [[f"mcjax-launch: !ls: {why}"], [f"mcjax-launch: %cd /: {why}"]]
    assert [line for line in told[4] if "File" in line] == [
        '[0-1]   File "<cell 3>", line 1, in <module>'
    ]


@pytest.mark.notebook
def test_figures_that_a_cell_shows_are_pictures(jobs: Jobs) -> None:
    pytest.importorskip("matplotlib")
    plot = "import matplotlib.pyplot as plt\nfor _ in 'ab':\n    plt.plot([1, 2])\n    plt.show()"
    outputs = run_cells("%load_ext mcjax_launch", "%mcjax -n 1", f"%%mcjax\n{plot}")[2]
    assert [output.data.keys() for output in outputs if output.output_type == "display_data"] == [
        {"text/plain", "image/png"}
    ] * 2


@pytest.mark.notebook
def test_tab_completes_in_every_cell(jobs: Jobs) -> None:
    """In those of the ranks by their names, in others as without the extension."""
    client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    printed: list[str] = []

    def hear(message: Any) -> None:
        printed.extend(message["content"].get("text", "").splitlines())

    async def main() -> None:
        manager, kernel = await client.manager.start_new_async_kernel()

        async def complete(code: str) -> list[str]:
            matches: list[str] = (await kernel.complete(code, reply=True))["content"]["matches"]
            return matches

        try:
            for cell in ("%load_ext mcjax_launch", "%mcjax -n 2 -d 1", "%%mcjax\ntheirs = 3"):
                await kernel.execute_interactive(cell, output_hook=hear)
            assert await complete("import os\nos.getpi") == ["getpid"]
            assert await complete("%%mcjax\nthei") == ["theirs"]
            assert await complete("%%mcjax 0\ny = theirs.bit_le") == ["theirs.bit_length"]
            assert await complete("%%mcj") == ["%%mcjax"]
            await kernel.execute_interactive("print('after', flush=True)", output_hook=hear)
        finally:
            kernel.stop_channels()
            await manager.shutdown_kernel()

    asyncio.run(main())
    assert printed == ["2 ranks run: %mcjax -n 2 -d 1", "after"]


@pytest.mark.notebook
def test_stop_button_interrupts_the_ranks_of_a_cell(jobs: Jobs) -> None:
    """Their state stays."""
    client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    printed: list[str] = []
    reading = asyncio.Event()

    def hear(message: Any) -> None:
        content = message["content"]
        text = "\n".join(content.get("traceback") or [content.get("text", "")])
        printed.extend(text.splitlines())
        if "[0-1] ready" in printed:
            reading.set()

    async def main() -> None:
        manager, kernel = await client.manager.start_new_async_kernel()
        try:
            for cell in ("%load_ext mcjax_launch", "%mcjax -n 2 -d 1", "%%mcjax\nkept = 7"):
                await kernel.execute_interactive(cell, output_hook=hear)
            sleeps = "%%mcjax\nimport time\nprint('ready')\ntime.sleep(1000)"
            running = asyncio.create_task(kernel.execute_interactive(sleeps, output_hook=hear))
            await asyncio.wait_for(reading.wait(), 90)
            await manager.interrupt_kernel()
            await running
            await kernel.execute_interactive("%%mcjax\nkept", output_hook=hear)
        finally:
            kernel.stop_channels()
            await manager.shutdown_kernel()

    asyncio.run(main())
    assert printed[:2] == ["2 ranks run: %mcjax -n 2 -d 1", "[0-1] ready"]
    assert "[0-1] KeyboardInterrupt" in printed[2:]
    assert printed[-1] == "[0-1] 7"


def run_notebook(*cells: str) -> list[str]:
    """Run a notebook in a real kernel; return what stands below each cell."""
    return ["".join(map(_get_text, outputs)) for outputs in run_cells(*cells)]


def run_cells(*cells: str) -> list[list[Any]]:
    """Run a notebook in a real kernel; return the outputs of each cell."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    client = nbclient.NotebookClient(notebook, timeout=120, allow_errors=True)
    asyncio.run(client.async_execute())
    return [cell.outputs for cell in notebook.cells]


def _get_text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "".join(f"{line}\n" for line in output.traceback)
    return str(output.data.get("text/html", output.data["text/plain"]))
