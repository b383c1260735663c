"""Each command that the pages show is run by a test, or named with the reason why none can."""

import re
from collections import Counter
from pathlib import Path

import documented
import pages
import pytest
from pages import PAGES, ROOT, Session, Step


def test_tables_name_only_commands_that_a_page_shows() -> None:
    shown = Counter(map(str, documented.all_sessions()))
    assert documented.listed() - shown.keys() == set()
    assert [name for name, count in shown.items() if count > 1] == []


def test_each_place_is_a_test_that_runs_what_it_is_given() -> None:
    places = {documented.place(session) for session in documented.all_sessions()} - {""}
    for place in places:
        name = next(name for name, value in vars(documented).items() if value == place)
        assert re.search(rf"documented\.at\((documented\.)?{name}\)", (ROOT / place).read_text())


def test_each_command_that_no_test_runs_has_a_reason() -> None:
    left = {str(session) for session in documented.all_sessions() if not documented.place(session)}
    assert left == documented.NOWHERE.keys()
    assert all(documented.NOWHERE.values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_that_looks_like_a_command_is_overlooked(page: Path) -> None:
    assert pages.unread(page) == []
    languages = re.findall(r"^```(\w*)$", page.read_text(), re.MULTILINE)
    assert {*languages} <= {"", "dockerfile", "json", "python", "yaml"}
    workflows = " ".join(pages.fences(page, "yaml"))
    steps = [step for session in pages.sessions(page) for step in session.steps]
    runs = [step for step in steps if step.command in " ".join(workflows.split())]
    assert len(runs) >= workflows.count("run: ")


EXAMPLE = """# A page

Type `mcjax-launch -n 2
a.py` or `python -I`, or:

    $ cat > a.py <<'END'
    mcjax-launch -n 9 in_a_file
    END

    $ mcjax-launch a.py
    [0] hello
    ...
    $ jq . x

- In a list:

        cd x && \\
            scripts/demo
        NAME=1 python b.py

Output:

    mcjax-launch: it ends

```yaml
    - run: pip install x
    - run: >-
        mcjax-launch
        -m pytest
```
"""


def test_commands_of_all_kinds_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(EXAMPLE)
    assert pages.files(page) == {"a.py": "mcjax-launch -n 9 in_a_file\n"}
    assert pages.sessions(page) == [
        Session(page, (Step("mcjax-launch a.py", "[0] hello\n...\n"), Step("jq . x", "\n"))),
        Session(page, (Step("cd x && \\\n    scripts/demo\nNAME=1 python b.py"),)),
        Session(page, (Step("pip install x"),)),
        Session(page, (Step("mcjax-launch -m pytest"),)),
        Session(page, (Step("mcjax-launch -n 2 a.py"),)),
    ]
    assert pages.unread(page) == []
    page.write_text(f"{EXAMPLE}\n    first words\n    mcjax-launch -n 3 b.py\n")
    assert pages.unread(page) == ["mcjax-launch -n 3 b.py"]
