"""The documentation says what is so: options, links, and pages that are in the site's table."""

import ast
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import generated
import manual
import pytest
import yaml
from pages import files
from records import record_of

from mcjax_launch.cli.command import command
from mcjax_launch.machine import system
from mcjax_launch.options.options import Options
from scripts import ROOT, script

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
#: What a page can lead to: pages, and files to be downloaded.
FILES = [*PAGES, *(ROOT / "docs").glob("*.json"), *(ROOT / "docs").glob("pictures/*")]
OPTIONS = ROOT / "docs" / "reference.md"
# Of the programs and schedulers that the documentation shows beside ours, and of our pytest plugin.
FOREIGN = set(
    """
    --args --command --container-image --container-mounts --cores-per-slot --cpu --cpu-bind
    --exclusive --gpus --gpus-per-node --gpus-per-slot --gres --halt --host --hostfile --input --install
    --ipc --job-name --junitxml --kill-on-bad-exit --lf --line-buffer --listen --wait-for-client --local --max-log-requests
    --mcjax-compile-cache --mpi --nnodes --no-cache-dir --no-install-recommends --no-kill --nodes --nproc-per-node --nslots
    --ntasks-per-node --open-mode --overlap --partition --prefix --queue --requeue --rm
    --rounds --setup-only --shm-size --signal --tag --tail --time --time-limit --to-the-end --trace --type
    --wdir --worker --yes --zone
    """.split()
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The README's, which a package index shows too: where there are no other files.
REFERENCE = re.compile(r"\[([^][]+)\](?:\[([^][]+)\])?(?![(:])")
DEFINITION = re.compile(r"^\[([^]]+)\]: (\S+)$", re.MULTILINE)
CODE = re.compile(r"^    .*$|`[^`]*`", re.MULTILINE)
LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMAND = re.compile(r"^ {4,}(?:\$ )?((?:mcjax-launch|pip|pytest|python) .*)$", re.MULTILINE)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def context() -> click.Context:
    return click.Context(command, info_name="mcjax-launch", **command.context_settings)


def options() -> dict[str, click.Option]:
    """Click's options by their longest name, `--help` included."""
    found = [p for p in command.get_params(context()) if isinstance(p, click.Option)]
    return {max(names(option), key=len): option for option in found}


def names(option: click.Option) -> set[str]:
    return {*option.opts, *option.secondary_opts}


def test_the_tables_of_options_are_those_of_the_declarations() -> None:
    """Each option has a row in its group, which begins with its anchor and all its names."""
    assert script("options").page() == OPTIONS.read_text(), "run scripts/options"


def test_manual_page_matches_the_declarations() -> None:
    assert manual.page() == manual.PAGE.read_text(), "run scripts/options"


def test_stale_file_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    page = tmp_path / "page"
    page.write_text("old")
    assert generated.put({page: "new"}, ["--check"], "scripts/x") == 1
    assert (page.read_text(), capsys.readouterr().err) == ("old", "page: stale; run scripts/x\n")
    assert generated.put({page: "new"}, [], "scripts/x") == 0
    assert generated.put({page: "new"}, ["--check"], "scripts/x") == 0
    assert (page.read_text(), capsys.readouterr().err) == ("new", "")


def test_defaults_match_the_declarations() -> None:
    rows = re.findall(
        r'^\| <a id="(--[\w-]+)".*?(?<!\\)\|(.*?)(?<!\\)\|', OPTIONS.read_text(), re.MULTILINE
    )
    stated = {name: default.strip() for name, default in rows}
    for option in Options.declared.values():
        if option.kind is None:
            assert stated[option.long] == "off"
        elif option.default not in (None, ()):
            assert stated[option.long] == f"`{option.shown}`"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_mentioned_options_exist(page: Path) -> None:
    known = set().union(*map(names, options().values())) | FOREIGN
    # The flags of XLA have underscores.
    mentioned = set(LONG_OPTION.findall(re.sub(r"--xla\w+", "", page.read_text())))
    assert mentioned <= known


def test_each_field_of_the_record_is_described() -> None:
    described = json.loads((ROOT / "docs" / "record.json").read_text())
    record = record_of(4)
    attempt = record["attempts"][0]
    objects = [record, attempt, attempt["cause"], attempt["waits"][0], attempt["ranks"][0]]
    assert [set(item) for item in described.values()] == [set(item) for item in objects]


# --- links ---


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^    .*$", "", page.read_text(), flags=re.MULTILINE)
    made = [slug(heading) for heading in HEADING.findall(text)]
    assert not [name for name, count in Counter(made).items() if count > 1], page
    return set(made)


def slug(heading: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
    # Where several spaces are left, the two would disagree.
    assert "  " not in plain, heading
    return plain.replace(" ", "-")


@pytest.mark.parametrize("page", [ARCHITECTURE, *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        assert not re.match(r"\w+:|/", link), f"{link}: not relative"
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in FILES, link  # the site has no other files
        if anchor:
            assert anchor in anchors(target), link


def test_links_of_the_readme_lead_somewhere_from_anywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    here = project["urls"]["Source"] + "/blob/main/"
    text = CODE.sub("", README.read_text())
    defined = dict(DEFINITION.findall(text))
    assert LINK.findall(text) == []
    used = {label or words for words, label in REFERENCE.findall(DEFINITION.sub("", text))}
    assert used == defined.keys()
    led_to = set()
    for link in defined.values():
        assert link.startswith(here), f"{link}: not absolute"
        path, _, anchor = link.removeprefix(here).partition("#")
        assert (ROOT / path).is_file(), link
        assert not anchor or anchor in anchors(ROOT / path), link
        led_to.add(ROOT / path)
    assert {page for page in PAGES if page.name != "index.md"} <= led_to


def test_the_picture_of_the_readme_is_there() -> None:
    """An index, which has no other files of ours, gets its address (setup.py)."""
    [path] = re.findall(r'<img src="(\S+)"', README.read_text())
    assert path.startswith("docs/pictures/") and (ROOT / path).is_file()


# --- what is to be copied ---


def test_the_readme_has_the_program_of_the_guide() -> None:
    guide = (ROOT / "tests" / "programs" / "guide" / "toy.py").read_text()
    assert statements(files(README)["toy.py"]) == statements(guide)


def statements(program: str) -> list[str]:
    lines = (line for line in program.splitlines() if line and not line.startswith("#"))
    return sorted(lines)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_commands_can_be_pasted_into_zsh(page: Path) -> None:
    """It expands brackets, and takes comments for arguments."""
    for line in COMMAND.findall(page.read_text()):
        assert not re.search(r"[][?*]| #", QUOTED.sub("", line)) or "[OPTIONS]" in line


def test_the_settings_for_an_ide() -> None:
    """They are what VS Code takes, and attach to the ports that the page's command has."""
    page = (ROOT / "docs" / "failures.md").read_text()
    [text] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    settings = json.loads(text)
    ranks = settings["configurations"]
    assert settings["version"] == "0.2.0"
    for rank, configuration in enumerate(ranks):
        assert (configuration["name"], configuration["type"], configuration["request"]) == (
            f"rank {rank}",
            "debugpy",
            "attach",
        )
        assert configuration["connect"] == {"host": "127.0.0.1", "port": int(f"567{rank}")}
        assert "--listen 'localhost:567{process_id}'" in page
    [compound] = settings["compounds"]
    assert compound["configurations"] == [configuration["name"] for configuration in ranks]


@pytest.mark.only_linux("real-time signals")
def test_gdb_is_told_of_the_signal_that_ranks_get() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text()
    [signals] = re.findall(r'-ex "handle ([\w ]+) nostop noprint"', page)
    assert signals == f"SIG{system.get_question_signal()}"


def test_workflow_caches_the_launchers_folder() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text()
    workflow, steps = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    [job] = workflow["jobs"].values()
    cache, run = steps
    kept = cache["with"]
    assert f" --compile-cache {kept['path']}:" in run["run"]
    assert f"--mcjax-compile-cache {kept['path']}:" in page
    assert kept["key"].startswith(kept["restore-keys"])
    assert kept["key"].count("${{") == kept["key"].count("}}") == 3
    tests = run["run"].split()[-1]
    assert sum(tests in step.get("run", "") for step in job["steps"]) == 1  # which it replaces


# --- the site ---


def test_each_page_is_in_the_sites_table() -> None:
    def listed(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for value in entry.values():
                yield from listed(value)
        elif isinstance(entry, list):
            for value in entry:
                yield from listed(value)

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    found = sorted(listed(nav))
    assert found == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


@pytest.mark.parametrize("page", [README, ARCHITECTURE, *PAGES], ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    """Prose, that is: a table's row and what a program prints are as long as they are."""
    for line in DEFINITION.sub("", page.read_text()).splitlines():
        assert len(line) <= 110 or line.startswith(("|", "    ")), line


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_each_table_has_a_head(page: Path) -> None:
    """A blank line inside a table would make its rest plain text."""
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        assert table.split("\n")[1].startswith("|---") or "| --- |" in table, table


@pytest.mark.parametrize("folder", ["tests", "tests/programs"])
def test_each_helper_of_the_tests_says_what_it_does(folder: str) -> None:
    """There is no other index of them."""
    for path in sorted((ROOT / folder).glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert said.partition("\n")[0].endswith((".", ":")), path


def test_each_feature_is_placed() -> None:
    """A page says which folder a feature is, for whoever looks for its code."""
    folders = {path.parent.name for path in (ROOT / "mcjax_launch/features").glob("*/__init__.py")}
    placed = "".join(page.read_text() for page in PAGES)
    assert [name for name in sorted(folders) if f"`features/{name}/`" not in placed] == []
