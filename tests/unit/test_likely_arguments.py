"""Guesses, for hints, of the arguments by which a program gets its coordinates."""

import pytest

from mcjax_launch.request.coordinates import guess_arguments

pytestmark = pytest.mark.every_jax

COORDINATES = "jax.distributed.initialize({}coordinator, {}num_processes, {}process_id)"
PARAMETERS = "coordinator: str, num_processes: int, process_id: int, lr: float = 0.1"
MAIN = f"def main({PARAMETERS}):\n  {COORDINATES.replace('{}', '')}"
FIELDS = "@dataclass\nclass Args:\n  coordinator: str\n  num_processes: int\n  process_id: int\n"
DASHED = "--coordinator {coordinator} --num-processes {num_processes} --process-id {process_id}"
PLACES = "{coordinator} {num_processes} {process_id}"
DEFAULTS = (
    "p = argparse.ArgumentParser()\np.add_argument('--coordinator', default='localhost:1')\n"
    "p.add_argument('-n', '--nprocs', type=int, default=1, dest='num_processes')\n"
    "p.add_argument('--rank', type=int, default=0, dest='process_id')\nargs = p.parse_args()\n"
)
WRITTEN = "--coordinator {coordinator} --nprocs {num_processes} --rank {process_id}"

# The program, and modules of its own; and the arguments.
PROGRAMS = {
    "defaults": ([DEFAULTS + "if args.num_processes > 1:\n  " + COORDINATES.replace("{}", "args.")], WRITTEN),
    "a module's parser": ([f"def get():\n  {DEFAULTS.replace(chr(10), chr(10) + '  ')}return args\n", "import m\na = m.get()\n" + COORDINATES.replace("{}", "a.")], WRITTEN),
    "a module's call": (["def setup(a):\n  " + COORDINATES.replace("{}", "a."), f"{DEFAULTS}import m\nm.setup(args)"], WRITTEN),
    "a dictionary": ([f"{DEFAULTS}c = vars(args)\njax.distributed.initialize(num_processes=c['num_processes'])"], "--nprocs {num_processes}"),
    "host and port": (["p.add_argument('--host', default='a')\np.add_argument('--port', default=1)\nINIT(f'{a.host}:{a.port}', 2, 0)"], "--host {coordinator_host} --port {coordinator_port}"),
    "absl": (["from absl import flags\nN = flags.DEFINE_integer('n', 1, '')\nINIT('l:1', N.value, 0)\nprint(flags.FLAGS.n)"], "--n {num_processes}"),
    "tyro": ([f"import tyro\n{FIELDS}args = tyro.cli(Args)\n" + COORDINATES.replace("{}", "args.")], DASHED),
    "tyro, nested": (["import tyro\nc = tyro.cli(Config)\nINIT('l:1', c.dist.world_size, c.dist.rank)"], "--dist.world-size {num_processes} --dist.rank {process_id}"),
    "fire": ([f"import fire\n{MAIN}\nfire.Fire(main)"], DASHED.replace("m-p", "m_p").replace("s-i", "s_i")),
    "typer": ([f"import typer\n{MAIN}\ntyper.run(main)"], PLACES),
    "typer, more": ([f"import typer\n{MAIN.replace('main(', 'main(data: str, ')}\ntyper.run(main)"], f"DATA {PLACES}"),
    "typer, options": ([f"import typer\n{MAIN.replace(': int', ': int = 1')}\ntyper.run(main)"], "--num-processes {num_processes} --process-id {process_id} {coordinator}"),
    "hydra": (["import hydra\n@hydra.main()\ndef main(cfg):\n  " + COORDINATES.replace("{}", "cfg.dist.") + "\nmain()"], "dist.coordinator={coordinator} dist.num_processes={num_processes} dist.process_id={process_id}"),
    "variables": (["import fire\nINIT('l:1', int(os.environ['N']), int(os.environ.get('I')))"], ""),
    "a file": (["c = yaml.load(open('c.yaml'))\nINIT('l:1', c['n'], c.rank)"], ""),
    "none": (["import fire\nINIT()"], ""),
    "no Python": (["import fire\nINIT("], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_that_reach_initialize_are_guessed(name: str) -> None:
    sources, expected = PROGRAMS[name]
    head = "import jax, argparse\n"
    texts = [f"{head}{source}".replace("INIT", "jax.distributed.initialize") for source in sources]
    guessed = guess_arguments([text.encode() for text in texts])
    assert " ".join(word for words in guessed for word in words) == expected
