"""Programs that take their coordinates from their command line, by their source."""

import pytest

from mcjax_launch.request.program_arguments import Arguments, find_arguments

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
    "_, a, b = sys.argv\nINIT('l:1', int(b), int(a))": "{process_id} {num_processes}",
    "a, b = int(sys.argv[1]), int(sys.argv[2])\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "a, b = map(int, sys.argv[1:])\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "a, b = [int(x) for x in sys.argv[1:3]]\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "from sys import argv\nfrom jax.distributed import initialize as go\ngo(argv[1], 2, int(argv[2]))": "{coordinator} {process_id}",
    "import jax.distributed as jd\njd.initialize(sys.argv[1])": "{coordinator}",
    "INIT(f'{sys.argv[1]}:{sys.argv[2]}', 2, int(sys.argv[3]))": "{coordinator_host} {coordinator_port} {process_id}",
    "INIT(sys.argv[1] + ':1234', 2, int(sys.argv[2]))": "{coordinator_host} {process_id}",
    "if len(sys.argv) != 3:\n  print('usage', sys.argv[0])\n  sys.exit(1)\nINIT('l:1', int(sys.argv[1]), int(sys.argv[2]))": "{num_processes} {process_id}",
    "def main(argv):\n  if len(argv) != 2:\n    print('usage')\n    return 2\n  INIT('l:1', 2, int(argv[1]))\nsys.exit(main(sys.argv))": "{process_id}",
    "argc = len(sys.argv)\nif argc < 2:\n  sys.exit(f'usage: {sys.argv[0]} ID')\nINIT('l:1', 2, int(sys.argv[1]))": "{process_id}",
    "with open('x'):\n  INIT('l:1', 2, int(sys.argv[1]))": "{process_id}",
    # functions
    "def main(argv):\n  a = int(argv[1])\n  INIT('l:1', int(argv[2]), a)\nif __name__ == '__main__':\n  main(sys.argv)": "{process_id} {num_processes}",
    "def main(argv):\n  a, b = argv\n  INIT('l:1', int(b), int(a))\nmain(sys.argv[1:])": "{process_id} {num_processes}",
    "def setup(addr, *, i, n=1):\n  INIT(addr, n, i)\nsetup(sys.argv[1], i=int(sys.argv[2]), n=int(sys.argv[3]))": "{coordinator} {process_id} {num_processes}",
    "def get():\n  return int(sys.argv[1]), int(sys.argv[2])\na, b = get()\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "def main():\n  INIT('l:1', 2, int(sys.argv[1]))\ntry:\n  main()\nexcept KeyboardInterrupt:\n  pass": "{process_id}",
    "def main(addr, n, i):\n  INIT(addr, int(n), int(i))\nprint(*sys.argv)\nmain(*sys.argv[1:])": "{coordinator} {num_processes} {process_id}",
    "a, b = int(sys.argv[1]), int(sys.argv[2])\nif b > 1:\n  INIT('l:1', b, a)": "{process_id} {num_processes}",
    # parsers
    "def parse(argv=None):\n  p = argparse.ArgumentParser()\n  p.add_argument('i', type=int)\n  return p.parse_args(argv)\nINIT('l:1', 2, parse().i)": "{process_id}",
    "def parse(argv=None):\n  argv = sys.argv[1:] if argv is None else argv\n  p = argparse.ArgumentParser()\n  p.add_argument('i', type=int)\n"
    "  return p.parse_args(argv)\nINIT('l:1', 2, parse().i)": "{process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('rank', type=int)\np.add_argument('--num', '-n', type=int, required=True)\n"
    "p.add_argument('--lr', type=float, default=0.1)\nargs = p.parse_args()\nINIT('l:1', args.num, args.rank)": "{process_id} --num {num_processes}",
    "def parse():\n  p = argparse.ArgumentParser()\n  g = p.add_argument_group('x')\n  g.add_argument('--n-procs', type=int, required=True, dest='n')\n"
    "  return p.parse_args(sys.argv[1:])\ndef main():\n  a = parse()\n  INIT(num_processes=a.n)\nmain()": "--n-procs {num_processes}",
    "@click.command()\n@click.option('--rank', type=int, required=True)\n@click.option('--world', '-w', 'n', type=int, required=True)\n"
    "@click.argument('coord')\ndef main(rank, n, coord):\n  INIT(coord, n, rank)\nmain()": "--rank {process_id} --world {num_processes} {coordinator}",
    "FLAGS = flags.FLAGS\nflags.DEFINE_integer('i', None, 'x', required=True)\nN = flags.DEFINE_integer('n', None, 'x')\nflags.mark_flag_as_required('n')\n"
    "def main(argv):\n  INIT('l:1', FLAGS.n, FLAGS.i)\napp.run(main)": "--i {process_id} --n {num_processes}",
    "N = flags.DEFINE_integer('n', None, 'x', required=True)\ndef main(_):\n  INIT('l:1', N.value, 0)\napp.run(main)": "--n {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('rank', type=int)\np.add_argument('world', type=int)\na = p.parse_args()\n"
    "@functools.lru_cache(None)\ndef setup(world, rank):\n  INIT('l:1', world, rank)\nsetup(a.world, a.rank)": "{process_id} {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\na, rest = p.parse_known_args()\nINIT('l:1', 2, a.id)": "{process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\na = p.parse_known_args()[0]\nINIT('l:1', 2, a.id)": "{process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('--coord', required=True)\ndef main():\n  a = p.parse_args()\n  INIT(a.coord)\n"
    "try:\n  main()\nexcept Exception:\n  raise": "--coord {coordinator}",
    "def parse_args(argv):\n  p = argparse.ArgumentParser()\n  p.add_argument('id', type=int)\n  return p.parse_args(argv[1:])\n"
    "INIT('l:1', 2, parse_args(sys.argv).id)": "{process_id}",
    "argv: list[str] = sys.argv[1:]\na, b = (int(x) for x in argv)\nINIT('l:1', b, a)": "{process_id} {num_processes}",
    "for i, line in enumerate([]):\n  line = line.strip()\nINIT('l:1', 2, int(sys.argv[1]))": "{process_id}",
    "step = 0\ndef train():\n  global step\n  step += 1\nINIT('l:1', 2, int(sys.argv[1]))\ntrain()": "{process_id}",
    "assert len(sys.argv) == 2\nINIT('l:1', 2, int(sys.argv[1]))": "{process_id}",
    "def f(n):\n" + "".join(f"  f{i}(n)\n" for i in range(30)) + "".join(f"def f{i}(n):\n  f{i + 1}(n)\n  f{i + 1}(n)\n" for i in range(30)) + "f(1)\nINIT(sys.argv[1])": "{coordinator}",
    # in part
    "data = sys.argv[1]\nINIT('l:1', int(sys.argv[3]), int(sys.argv[2]))": "DATA {process_id} {num_processes}",
    "INIT('l:1', int(sys.argv[1]), int(sys.argv[2]) - 1)": "{num_processes} ARG2",
    "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, required=True)\nc = Config(**vars(p.parse_args()))\n"
    "def setup(cfg):\n  INIT('l:1', cfg.n, 0)\nsetup(c)": "--n {num_processes}",
    "INIT(sys.argv[1], local_device_ids=[int(sys.argv[2])])": "{coordinator} ARG2",
    "if os.environ.get('A'):\n  r = int(sys.argv[1])\nelse:\n  r = int(sys.argv[2])\nINIT('l:1', int(sys.argv[3]), r)": "R R {num_processes}",
    "p = argparse.ArgumentParser()\np.add_argument('data')\np.add_argument('--id', type=int, required=True)\na = p.parse_args()\nINIT('l:1', 2, a.id)": "DATA --id {process_id}",
    "p = argparse.ArgumentParser()\np.add_argument('--n', type=int, required=True)\np.add_argument('--id', type=one_less, required=True)\n"
    "a = p.parse_args()\nINIT('l:1', a.n, a.id)": "--n {num_processes} --id ID",
}  # fmt: skip

# Programs that need none, can do without, or cannot be followed: nothing is guessed.
UNKNOWN = [
    "flags.DEFINE_string(name='x', default=None)\nINIT(flags.FLAGS.x)",
    "N = 'n'\nflags.mark_flags_as_required([N])\nINIT(sys.argv[1])",
    "flags.mark_flags_as_required(flag_names=['n'])\nINIT(sys.argv[1])",
    "INIT()\nprint(sys.argv)",
    "if len(sys.argv) > 2:\n  INIT('l:1', int(sys.argv[1]), int(sys.argv[2]))\nelse:\n  INIT()",
    "a = int(sys.argv[1]) if len(sys.argv) > 1 else 0\nINIT('l:1', 2, a)",
    "a = len(sys.argv) > 1 and int(sys.argv[1])\nINIT('l:1', 2, a)",
    "try:\n  a = int(sys.argv[1])\nexcept IndexError:\n  a = 0\nINIT('l:1', 2, a)",
    "for a in sys.argv:\n  print(a)\nINIT('l:1', 2, int(sys.argv[1]))",
    "parse(sys.argv[1:])\nINIT('l:1', 2, int(sys.argv[1]))",
    "INIT('l:1', 2, int(sys.argv[-1]))",
    "import os\nif os.environ.get('X'):\n  INIT('l:1', 2, int(sys.argv[1]))\nelse:\n  INIT()\nsteps = int(sys.argv[1])",
    "try:\n  INIT()\nexcept ValueError:\n  INIT('l:1', 2, int(sys.argv[1]))",
    "p = argparse.ArgumentParser()\np.add_argument('rank', type=int)\np.add_argument('--multi', action='store_true')\na = p.parse_args()\n"
    "if a.multi:\n  INIT('l:1', 2, a.rank)",
    "def main():\n  if len(sys.argv) == 1:\n    single()\n    return\n  INIT(sys.argv[1], 2, 0)\nmain()",
    "if len(sys.argv) < 2:\n  train()\n  sys.exit(0)\nINIT(sys.argv[1], 2, 0)",
    "argc = len(sys.argv)\nif argc < 2:\n  train()\n  raise SystemExit\nINIT(sys.argv[1], 2, 0)",
    "def main(argv):\n  if len(argv) < 2:\n    demo()\n    return 0\n  INIT(argv[1], 2, 0)\nsys.exit(main(sys.argv))",
    "if __name__ == '__main__' and len(sys.argv) > 1:\n  INIT(sys.argv[1], 2, 0)",
    "match len(sys.argv):\n  case 1:\n    train()\n  case _:\n    INIT(sys.argv[1], 2, 0)",
    "while len(sys.argv) > 1:\n  INIT(sys.argv[1], 2, 0)",
    "p = argparse.ArgumentParser()\nif 'RANK' not in os.environ:\n  p.add_argument('i', type=int)\na = p.parse_args()\nINIT('l:1', 2, a.i)",
    "INIT('l:1', 2, int(sys.argv[1], 16))",
    "@click.command()\n@click.option('--i', type=int, required=True, envvar='I')\ndef main(i):\n  INIT('l:1', 2, i)\nmain()",
    "def f():\n  i = int(sys.argv[1])\n  def g():\n    nonlocal i\n    i -= 1\n  g()\n  INIT('l:1', 2, i)\nf()",
    "sys.argv.pop(0)\nINIT('l:1', int(sys.argv[1]), int(sys.argv[0]))",
    "del sys.argv[1]\nINIT('l:1', 2, int(sys.argv[1]))",
    "sys.argv[1] = '3'\nINIT('l:1', 2, int(sys.argv[1]))",
    "sys.argv = ['x', '3']\nINIT('l:1', 2, int(sys.argv[1]))",
    "p = argparse.ArgumentParser()\np.add_argument('i', type=int)\na = p.parse_args()\na.i -= 1\nINIT('l:1', 2, a.i)",
    "p = argparse.ArgumentParser()\np.add_argument('i', type=int)\na = p.parse_args()\na.i = (a.i + 1) % 2\nINIT('l:1', 2, a.i)",
    "INIT('l:1', 2, int(sys.argv[i]))",
    "_, *rest = sys.argv\nINIT('l:1', 2, int(rest[0]))",
    "x = int(sys.argv[1])\nINIT('l:1', x, x)",
    "def main():\n  INIT('l:1', 2, int(sys.argv[1]))",
    "rank = 0\ndef read():\n  global rank\n  rank = int(sys.argv[1])\nread()\nINIT('l:1', 2, rank)",
    "p = argparse.ArgumentParser()\np.add_argument('--id', type=int, default=0)\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int, nargs='?')\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_subparsers()\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\na = p.parse_args(['3'])\nINIT('l:1', 2, a.id)",
    "p = argparse.ArgumentParser()\np.add_argument(NAME)\na = p.parse_args()\nINIT('l:1', 2, a.id)",
    "def f(n):\n" + "".join(f"  f{i}(n)\n" for i in range(30)) + "".join(f"def f{i}(n):\n  f{i + 1}(n)\n  f{i + 1}(n)\n" for i in range(30)) + "def f30(n):\n  INIT(sys.argv[1])",
    "if len(sys.argv) > 1:\n  INIT(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))",
    "def main():\n  if len(sys.argv) > 1:\n    INIT(sys.argv[1])\nif __name__ == '__main__':\n  main()",
    "if __name__ == '__main__':\n  if len(sys.argv) > 1:\n    INIT(sys.argv[1])",
    "multi = False\nif len(sys.argv) > 1:\n  multi = True\nif multi:\n  INIT(sys.argv[1])",
    "if len(sys.argv) > 1 and sys.argv[1] == 'multi':\n  INIT(sys.argv[2])",
    "if sys.argv[1:]:\n  INIT(sys.argv[1])",
    "args = sys.argv[1:]\nif args:\n  INIT(args[0])",
    "args = sys.argv[1:]\nif not args:\n  args = ['l:1']\nINIT(args[0], 2, int(sys.argv[2]))",
    "def setup():\n  INIT(sys.argv[1])\nif os.environ.get('MULTI'):\n  setup()",
    "match os.environ.get('MODE'):\n  case 'multi':\n    INIT(sys.argv[1])",
    "INIT(sys.argv[1], 2, int(os.environ.get('RANK') or sys.argv[2]))",
    "def main():\n  INIT(sys.argv[1])\ntry:\n  main()\nexcept Exception:\n  train()",
    "def train():\n  INIT(sys.argv[2])\nDO = {'train': train}\nDO[sys.argv[1]]()",
    "if '--debug' in sys.argv:\n  debug()\nINIT(sys.argv[1])",
    "class Setup:\n  def __init__(self):\n    self.args = sys.argv\nINIT(sys.argv[1])",
    "run(*sys.argv[1:])\nINIT(sys.argv[1])",
    "run(argv=sys.argv)\nINIT(sys.argv[1])",
    "a, b = map(less, sys.argv[1:])\nINIT(sys.argv[1], a, b)",
    "a, b = [int(x) for x in sys.argv[1:] if x.isdigit()]\nINIT(sys.argv[3], a, b)",
    "async def main():\n  INIT(sys.argv[1])\nasyncio.run(main())",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\nINIT('l:1', 2, p.parse_args(sys.argv[2:]).id)",
    "p = argparse.ArgumentParser()\np.add_argument('id', type=int)\nINIT('l:1', 2, p.parse_args(shlex.split(WORDS)).id)",
    "INIT(sys.argv[1]",
    "\0",
]  # fmt: skip


@pytest.mark.parametrize("program", NEEDS)
def test_needed_program_arguments_are_found(program: str) -> None:
    found = find_arguments((HEAD + program.replace("INIT", INITIALIZE)).encode())
    assert found is not None
    assert " ".join(found.words) == NEEDS[program]
    assert (found.complete(()) is not None) == (NEEDS[program] == NEEDS[program].lower())


@pytest.mark.parametrize("program", UNKNOWN)
def test_unclear_argument_checks_are_ignored(program: str) -> None:
    assert find_arguments((HEAD + program.replace("INIT", INITIALIZE)).encode()) is None


COUNTS = {"--lr": 1, "--fast": 0, "--size": 2, "-v": 0, "--id": 1, "-i": 1}
ALIASES = {"--lr": "--lr", "-i": "--id", "--id": "--id"}
IDS = "--n {num_processes} --id {process_id}"
# What is needed, what is given, and what that becomes.
WORDS = [
    ("{process_id}", "", "{process_id}"),
    ("{process_id}", "--lr 3", "{process_id} --lr 3"),
    ("{process_id}", "3 --lr 3", None),
    ("{process_id}", "3", None),
    ("{process_id} {num_processes}", "3", None),
    ("{process_id} {num_processes}", "{process_id}", None),
    ("DATA {process_id}", "", None),
    ("DATA {process_id}", "x.txt", "x.txt {process_id}"),
    ("DATA {process_id}", "--lr", None),
    ("DATA {process_id}", "x.txt 0", None),
    ("DATA {process_id}", "x.txt {process_id}", None),
    ("DATA {process_id}", "{process_id}", None),
    ("{process_id} {num_processes} LR", "3", "{process_id} {num_processes} 3"),
    ("{process_id} LR {num_processes}", "-3", "{process_id} -3 {num_processes}"),
]
PARSED = [
    (IDS, "--lr 3", f"{IDS} --lr 3"),
    (IDS, "data --dir out/{process_id}", f"{IDS} data --dir out/{{process_id}}"),
    (IDS, "--id=0", "--n {num_processes} --id=0"),
    (IDS, "-i 0 -- x", "--n {num_processes} -i 0 -- x"),
    (IDS, "-i0", "--n {num_processes} -i0"),
    ("--num-processes {num_processes}", "--num 4", None),
    (IDS, IDS, None),
    ("--n {num_processes} --data DATA", "--lr 3", None),
    ("--n {num_processes} --data DATA", "--data x", "--n {num_processes} --data x"),
    ("{process_id} --n {num_processes}", "", "--n {num_processes} {process_id}"),
    ("{process_id} --n {num_processes}", "0", "--n {num_processes} 0"),
    ("{process_id} --n {num_processes}", "--lr 3", "--n {num_processes} {process_id} --lr 3"),
    ("{process_id} --n {num_processes}", "--unknown 3", None),
    ("DATA {process_id}", "--lr 3 x", "--lr 3 x {process_id}"),
    ("{process_id} DATA {num_processes}", "--fast x --size 3 4 -v", "--fast {process_id} x {num_processes} --size 3 4 -v"),
    ("DATA {process_id}", "--lr=3 -- x", "--lr=3 -- x {process_id}"),
    ("{process_id}", "--fast 0 x", None),
]  # fmt: skip


@pytest.mark.parametrize(("needs", "given", "completed"), WORDS)
def test_missing_words_are_completed(needs: str, given: str, completed: str | None) -> None:
    found = Arguments(tuple(needs.split())).complete(given.split())
    assert found == (tuple(completed.split()) if completed is not None else None)


@pytest.mark.parametrize(("needs", "given", "completed"), PARSED)
def test_missing_options_are_completed(needs: str, given: str, completed: str | None) -> None:
    needed = Arguments(tuple(needs.split()), COUNTS, ALIASES, is_parsed=True)
    found = needed.complete(given.split())
    assert found == (tuple(completed.split()) if completed is not None else None)


@pytest.mark.parametrize(
    ("needs", "given", "shown"),
    [
        ("DATA {process_id}", "", "DATA {process_id}"),
        ("{process_id} {num_processes}", "0", "{process_id} {num_processes}"),
        ("{process_id} {num_processes}", "0 1", None),
        ("--n {num_processes} --data DATA", "--lr 3", "--n {num_processes} --data DATA --lr 3"),
        (IDS, "--lr 3", f"{IDS} --lr 3"),
        (IDS, IDS, None),
    ],
)
def test_hint_shows_what_is_needed(needs: str, given: str, shown: str | None) -> None:
    found = Arguments(tuple(needs.split())).suggest(given.split())
    assert found == (tuple(shown.split()) if shown is not None else None)
