"""Programs that take their coordinates from their command line, by their source."""

import pytest

from mcjax_launch.features.arguments.program_arguments import find_arguments, guess_arguments

pytestmark = pytest.mark.every_jax

HEAD = "import jax, os, sys, argparse, click\nfrom absl import app, flags\nimport_done = 1\n"
INITIALIZE = "jax.distributed.initialize"

# The words that a program needs; those in capitals are no coordinates.
NEEDS = {
    # the guide's two
    "a = int(sys.argv[1])\nb = int(sys.argv[2])\nINIT('localhost:10000', b, a)": "{process_id} {num_processes}",
    "c = sys.argv[1]\na = int(sys.argv[2])\nb = int(sys.argv[3])\n"
    "INIT(coordinator_address=c, num_processes=b, process_id=a)": "{coordinator} {process_id} {num_processes}",
    # sys.argv
    "INIT(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))": "{coordinator} {num_processes} {process_id}",
    "a, b = int(sys.argv[1]), int(sys.argv[2])\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "from sys import argv\nfrom jax.distributed import initialize as go\ngo(argv[1], 2, int(argv[2]))": "{coordinator} {process_id}",
    "import jax.distributed as jd\njd.initialize(sys.argv[1])": "{coordinator}",
    "INIT(f'{sys.argv[1]}:{sys.argv[2]}', 2, int(sys.argv[3]))": "{coordinator_host} {coordinator_port} {process_id}",
    "INIT(sys.argv[1] + ':1234', 2, int(sys.argv[2]))": "{coordinator_host} {process_id}",
    "if len(sys.argv) != 3:\n  print('usage', sys.argv[0])\n  sys.exit(1)\nINIT('l:1', int(sys.argv[1]), int(sys.argv[2]))": "{num_processes} {process_id}",
    "INIT('l:1', 2, int(sys.argv[1]))\ntrain(*sys.argv[2:])": "{process_id}",
    # functions
    "def main(argv):\n  a = int(argv[1])\n  INIT('l:1', int(argv[2]), a)\nif __name__ == '__main__':\n  main(sys.argv)": "{process_id} {num_processes}",
    "def setup(addr, *, i, n=1):\n  INIT(addr, n, i)\nsetup(sys.argv[1], i=int(sys.argv[2]), n=int(sys.argv[3]))": "{coordinator} {process_id} {num_processes}",
    "def main():\n  INIT('l:1', 2, int(sys.argv[1]))\ntry:\n  main()\nexcept KeyboardInterrupt:\n  pass": "{process_id}",
    "a, b = int(sys.argv[1]), int(sys.argv[2])\nif b > 1:\n  INIT('l:1', b, a)": "{process_id} {num_processes}",
    # parsers
    "def parse(argv=None):\n  p = argparse.ArgumentParser()\n  p.add_argument('i', type=int)\n  return p.parse_args(argv)\nINIT('l:1', 2, parse().i)": "{process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('rank', type=int)\np.add_argument('--num', '-n', type=int, required=True)\n"
    "p.add_argument('--lr', type=float, default=0.1)\nargs = p.parse_args()\nINIT('l:1', args.num, args.rank)": "--num {num_processes} {process_id}",
    "def parse():\n  p = argparse.ArgumentParser()\n  g = p.add_argument_group('x')\n  g.add_argument('--n-procs', type=int, required=True, dest='n')\n"
    "  return p.parse_args(sys.argv[1:])\ndef main():\n  a = parse()\n  INIT(num_processes=a.n)\nmain()": "--n-procs {num_processes}",
    "FLAGS = flags.FLAGS\nflags.DEFINE_integer('i', None, 'x', required=True)\nN = flags.DEFINE_integer('n', None, 'x')\nflags.mark_flag_as_required('n')\n"
    "def main(argv):\n  INIT('l:1', FLAGS.n, FLAGS.i)\napp.run(main)": "--i {process_id} --n {num_processes}",
    "N = flags.DEFINE_integer('n', None, 'x', required=True)\ndef main(_):\n  INIT('l:1', N.value, 0)\napp.run(main)": "--n {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('rank', type=int)\np.add_argument('world', type=int)\na = p.parse_args()\n"
    "@functools.lru_cache(None)\ndef setup(world, rank):\n  INIT('l:1', world, rank)\nsetup(a.world, a.rank)": "{process_id} {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\na, rest = p.parse_known_args()\nINIT('l:1', 2, a.id)": "{process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('--coord', required=True)\ndef main():\n  a = p.parse_args()\n  INIT(a.coord)\n"
    "try:\n  main()\nexcept Exception:\n  raise": "--coord {coordinator}",
    "step = 0\ndef train():\n  global step\n  step += 1\nINIT('l:1', 2, int(sys.argv[1]))\ntrain()": "{process_id}",
    "assert len(sys.argv) == 2\nINIT('l:1', 2, int(sys.argv[1]))": "{process_id}",
    # in part
    "data = sys.argv[1]\nINIT('l:1', int(sys.argv[3]), int(sys.argv[2]))": "DATA {process_id} {num_processes}",
    "INIT('l:1', int(sys.argv[1]), int(sys.argv[2]) - 1)": "{num_processes} ARG2",
    "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, required=True)\nc = Config(**vars(p.parse_args()))\n"
    "def setup(cfg):\n  INIT('l:1', cfg.n, 0)\nsetup(c)": "--n {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('data')\np.add_argument('--id', type=int, required=True)\na = p.parse_args()\nINIT('l:1', 2, a.id)": "--id {process_id} DATA",
    "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, required=True)\np.add_argument('--id', type=one_less, required=True)\n"
    "a = p.parse_args()\nINIT('l:1', a.n, a.id)": "--n {num_processes} --id ID",
}  # fmt: skip

# Programs that need none, can do without, or cannot be followed: nothing is guessed.
UNKNOWN = [
    "flags.DEFINE_string(name='x', default=None)\nINIT(flags.FLAGS.x)",
    "N = 'n'\nflags.mark_flags_as_required([N])\nINIT(sys.argv[1])",
    "INIT()\nprint(sys.argv)",
    "if len(sys.argv) > 2:\n  INIT('l:1', int(sys.argv[1]), int(sys.argv[2]))\nelse:\n  INIT()",
    "a = int(sys.argv[1]) if len(sys.argv) > 1 else 0\nINIT('l:1', 2, a)",
    "try:\n  a = int(sys.argv[1])\nexcept IndexError:\n  a = 0\nINIT('l:1', 2, a)",
    "for a in sys.argv:\n  print(a)\nINIT('l:1', 2, int(sys.argv[1]))",
    "parse(sys.argv[1:])\nINIT('l:1', 2, int(sys.argv[1]))",
    "INIT('l:1', 2, int(sys.argv[-1]))",
    "import os\nif os.environ.get('X'):\n  INIT('l:1', 2, int(sys.argv[1]))\nelse:\n  INIT()\nsteps = int(sys.argv[1])",
    "try:\n  INIT()\nexcept ValueError:\n  INIT('l:1', 2, int(sys.argv[1]))",
    "if len(sys.argv) < 2:\n  train()\n  sys.exit(0)\nINIT(sys.argv[1], 2, 0)",
    "def main(argv):\n  if len(argv) < 2:\n    demo()\n    return 0\n  INIT(argv[1], 2, 0)\nsys.exit(main(sys.argv))",
    "match len(sys.argv):\n  case 1:\n    train()\n  case _:\n    INIT(sys.argv[1], 2, 0)",
    "p = argparse.ArgumentParser()\nif 'RANK' not in os.environ:\n  p.add_argument('i', type=int)\na = p.parse_args()\nINIT('l:1', 2, a.i)",
    "INIT('l:1', 2, int(sys.argv[1], 16))",
    "def f():\n  i = int(sys.argv[1])\n  def g():\n    nonlocal i\n    i -= 1\n  g()\n  INIT('l:1', 2, i)\nf()",
    "sys.argv.pop(0)\nINIT('l:1', int(sys.argv[1]), int(sys.argv[0]))",
    "sys.argv[1] = '3'\nINIT('l:1', 2, int(sys.argv[1]))",
    "p = argparse.ArgumentParser()\np.add_argument('i', type=int)\na = p.parse_args()\na.i -= 1\nINIT('l:1', 2, a.i)",
    "_, *rest = sys.argv\nINIT('l:1', 2, int(rest[0]))",
    "x = int(sys.argv[1])\nINIT('l:1', x, x)",
    "p = argparse.ArgumentParser()\np.add_argument('--id', type=int, default=0)\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int, nargs='?')\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_subparsers()\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\na = p.parse_args(['3'])\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument(NAME)\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "if len(sys.argv) > 1:\n  INIT(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))",
    "if sys.argv[1:]:\n  INIT(sys.argv[1])",
    "args = sys.argv[1:]\nif args:\n  INIT(args[0])",
    "args = sys.argv[1:]\nif not args:\n  args = ['l:1']\nINIT(args[0], 2, int(sys.argv[2]))",
    "match os.environ.get('MODE'):\n  case 'multi':\n    INIT(sys.argv[1])",
    "INIT(sys.argv[1], 2, int(os.environ.get('RANK') or sys.argv[2]))",
    "class Setup:\n  def __init__(self):\n    self.args = sys.argv\nINIT(sys.argv[1])",
    "INIT('l:1', 2, int(sys.argv[1]))\ntrain(*sys.argv[1:])",
    "a, b = [int(x) for x in sys.argv[1:] if x.isdigit()]\nINIT(sys.argv[3], a, b)",
    "async def main():\n  INIT(sys.argv[1])\nasyncio.run(main())",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\nINIT('l:1', 2, p.parse_args(sys.argv[2:]).id)",
    "INIT(sys.argv[1]",
    "\0",
]  # fmt: skip


@pytest.mark.parametrize("program", NEEDS)
def test_needed_program_arguments_are_found(program: str) -> None:
    found = find_arguments((HEAD + program.replace("INIT", INITIALIZE)).encode())
    assert found is not None
    assert " ".join(found.list_words()) == NEEDS[program]
    assert bool(found.complete(())) == (NEEDS[program] == NEEDS[program].lower())


@pytest.mark.parametrize("program", UNKNOWN)
def test_unclear_argument_checks_are_ignored(program: str) -> None:
    assert find_arguments((HEAD + program.replace("INIT", INITIALIZE)).encode()) is None


OPTIONS = {
    "--lr": "type=float",
    "--fast": "action='store_true'",
    "--size": "nargs=2",
    "-v": "action='count'",
    "--both": "action=argparse.BooleanOptionalAction",
    "--version": "action='version', version='1'",
}
PARSER = "p = argparse.ArgumentParser()\n" + "".join(
    f"p.add_argument({name!r}, {settings})\n" for name, settings in OPTIONS.items()
)


def write_program(needs: str, *, has_parser: bool) -> str:
    """Return a program that needs words: `{process_id}`, `{num_processes}` and names of others."""
    names, source, number = {"{process_id}": "i", "{num_processes}": "n"}, "", 0
    words = needs.split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name = names.get(word, word.lower())
        if not has_parser:
            number += 1
            source += f"{name} = sys.argv[{number}]\n"
        elif word.startswith("--"):
            more = ", '-i'" if word == "--id" else ""
            dest = names.get(following, following.lower())
            source += f"p.add_argument({word!r}{more}, required=True, dest={dest!r})\n"
        elif f"dest={name!r}" not in source:
            source += f"p.add_argument({name!r})\n"
    given = [("num_processes", "n", "{num_processes}"), ("process_id", "i", "{process_id}")]
    owner = "p.parse_args()." if has_parser else ""
    passed = ", ".join(f"{key}={owner}{name}" for key, name, word in given if word in words)
    return f"{HEAD}{PARSER * has_parser}{source}{INITIALIZE}({passed})\n"


IDS = "--n {num_processes} --id {process_id}"
# What is needed, what is given, and what that becomes; "" if nothing is filled in.
WORDS = [
    ("{process_id}", "", "{process_id}"),
    ("{process_id}", "--lr 3", "{process_id} --lr 3"),
    ("{process_id}", "3 --lr 3", ""),
    ("{process_id}", "3", ""),
    ("{process_id} {num_processes}", "3", ""),
    ("{process_id} {num_processes}", "{process_id}", ""),
    ("DATA {process_id}", "", ""),
    ("DATA {process_id}", "x.txt", "x.txt {process_id}"),
    ("DATA {process_id}", "--lr", ""),
    ("DATA {process_id}", "x.txt 0", ""),
    ("DATA {process_id}", "x.txt {process_id}", ""),
    ("DATA {process_id}", "{process_id}", ""),
    ("DATA {process_id} LR", "x.txt 3", ""),
    ("{process_id} {num_processes} LR", "3", "{process_id} {num_processes} 3"),
    ("{process_id} LR {num_processes}", "-3", "{process_id} -3 {num_processes}"),
]
PARSED = [
    (IDS, "--lr 3", f"{IDS} --lr 3"),
    (IDS, "data --dir out/{process_id}", f"{IDS} data --dir out/{{process_id}}"),
    (IDS, "--version", f"{IDS} --version"),
    (IDS, "--id=0", "--n {num_processes} --id=0"),
    (IDS, "-i 0 -- x", "--n {num_processes} -i 0 -- x"),
    (IDS, "-i0", "--n {num_processes} -i0"),
    (IDS, "--lr", ""),
    ("--num-processes {num_processes}", "--num 4", ""),
    (IDS, IDS, ""),
    ("--n {num_processes} --data DATA", "--lr 3", ""),
    ("--n {num_processes} --data DATA", "--data x", "--n {num_processes} --data x"),
    ("{process_id} --n {num_processes}", "", "--n {num_processes} {process_id}"),
    ("{process_id} --n {num_processes}", "0", "--n {num_processes} 0"),
    ("{process_id} --n {num_processes}", "--lr 3", "--n {num_processes} {process_id} --lr 3"),
    ("{process_id} --n {num_processes}", "--unknown 3", ""),
    ("DATA {process_id}", "--lr 3 x", "--lr 3 x {process_id}"),
    ("{process_id} DATA {num_processes}", "--fast x --size 3 4 -v", "{process_id} --fast x --size 3 4 -v {num_processes}"),
    ("{process_id} DATA", "--lr=3 --no-both x", "{process_id} --lr=3 --no-both x"),
    ("{process_id}", "--fast 0 x", ""),
]  # fmt: skip
CASES = [(*case, False) for case in WORDS] + [(*case, True) for case in PARSED]


@pytest.mark.parametrize(("needs", "given", "completed", "has_parser"), CASES)
def test_missing_arguments_are_completed(
    needs: str, given: str, completed: str, has_parser: bool
) -> None:
    found = find_arguments(write_program(needs, has_parser=has_parser).encode())
    assert found is not None
    assert " ".join(found.complete(given.split())) == completed


@pytest.mark.parametrize(
    ("needs", "given", "shown", "has_parser"),
    [
        ("DATA {process_id}", "", "DATA {process_id}", False),
        ("{process_id} {num_processes}", "0", "{process_id} {num_processes}", False),
        ("{process_id} {num_processes}", "0 1", "", False),
        ("--n {num_processes} --data DATA", "--lr 3", "--n {num_processes} --data DATA --lr 3", True),
        (IDS, "--lr 3", f"{IDS} --lr 3", True),
        (IDS, IDS, "", True),
    ],
)  # fmt: skip
def test_hint_shows_what_is_needed(needs: str, given: str, shown: str, has_parser: bool) -> None:
    found = find_arguments(write_program(needs, has_parser=has_parser).encode())
    assert found is not None
    assert " ".join(found.suggest(given.split())) == shown


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

# Arguments for a hint: the program, and modules of its own; and the arguments.
PROGRAMS = {
    "defaults": ([DEFAULTS + "if args.num_processes > 1:\n  " + COORDINATES.replace("{}", "args.")], WRITTEN),
    "a module's parser": ([f"def get():\n  {DEFAULTS.replace(chr(10), chr(10) + '  ')}return args\n", "import m\na = m.get()\n" + COORDINATES.replace("{}", "a.")], WRITTEN),
    "a module's call": (["def setup(a):\n  " + COORDINATES.replace("{}", "a."), f"{DEFAULTS}import m\nm.setup(args)"], WRITTEN),
    "a dictionary": ([f"{DEFAULTS}c = vars(args)\njax.distributed.initialize(num_processes=c['num_processes'])"], "--nprocs {num_processes}"),
    "host and port": (["p.add_argument('--host', default='a')\np.add_argument('--port', default=1)\nINIT(f'{a.host}:{a.port}', 2, 0)"], "--host {coordinator_host} --port {coordinator_port}"),
    "click": (["import click\n@click.command()\n@click.option('--rank', type=int)\n@click.option('--world', '-w', 'n', type=int)\n@click.argument('coord')\n"
              "def main(rank, n, coord):\n  INIT(coord, n, rank)\nmain()"], "{coordinator} --world {num_processes} --rank {process_id}"),
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
