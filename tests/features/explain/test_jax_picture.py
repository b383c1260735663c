"""The pictures in the README and on a page show what a terminal shows today."""

import re
import shutil
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import script

TEXT = "{http://www.w3.org/2000/svg}text"


def lines(picture: Path) -> list[str]:
    """Return the lines that a picture shows, without numbers that differ between runs."""
    rows = ("".join(row.itertext()) for row in ElementTree.parse(picture).iter(TEXT))
    return [re.sub(r"\d+(\.\d+)? (s|cores|MiB)\b|(?<=hid )\d+", "N", unescape(row)) for row in rows]


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_pictures_are_what_a_terminal_shows(tmp_path: Path) -> None:
    picture = script("picture")
    picture.main([str(tmp_path)])
    drawn, kept = (lines(folder / "failing.svg") for folder in (tmp_path, picture.PICTURES))
    assert drawn[0] == kept[0] == f"$ {picture.COMMAND}"
    assert sum(row.startswith(f"[{rank}] running") for rank in range(4) for row in drawn) == 4
    failure = kept.index("[2] Traceback (most recent call last):")
    assert drawn[drawn.index(kept[failure]) :] == kept[failure:]


def test_the_picture_names_no_machine() -> None:
    text = (script("picture").PICTURES / "failing.svg").read_text()
    assert len(text) < 10_000
    assert set(re.findall(r"(?<![\w.<])/[\w.]+(?:/[\w.]+)*", text)) <= {
        "/tmp/demo/train.py",
        "/www.w3.org/2000/svg",
    }
