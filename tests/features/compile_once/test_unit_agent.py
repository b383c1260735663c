"""Folders of --compile-cache that are refused, because of what others could put into them."""

import json
import os
from pathlib import Path

import parts
import pytest

from mcjax_launch.features.compile_once.agent import CompiledFolders
from mcjax_launch.features.compile_once.messages import NoCache, ShareCompiled
from mcjax_launch.machine.loop import Loop
from mcjax_launch.machine.own_paths import explain_distrust


@pytest.mark.parametrize("mode", [None, 0o755, 0o777])
def test_ranks_share_programs_also_without_a_kept_cache(tmp_path: Path, mode: int | None) -> None:
    """It is not asked for, can be trusted, or not; twice, as for a second run."""
    kept, sent = tmp_path / "kept", list[object]()
    made = parts.agent(tmp_path, Loop(), None)
    made.link.send = sent.append
    part = CompiledFolders(made)
    if mode is not None:
        kept.mkdir()
        kept.chmod(mode)
    for _ in range(2):
        part.on_message(ShareCompiled("on", str(kept) if mode else "", 5))
        private = tmp_path / "compiled"
        used = str(kept) if mode == 0o755 else ""
        assert json.loads(part.variable) == ["on", str(private), used, 5]
        assert private.stat().st_mode & 0o777 == 0o700
    assert len(sent) == 2 * (mode == 0o777)
    for message in sent:
        assert isinstance(message, NoCache) and "every user can write" in message.reason


def test_missing_folders_are_made(tmp_path: Path) -> None:
    assert explain_distrust(str(tmp_path / "a" / "b")) == ""
    assert (tmp_path / "a" / "b").is_dir()


def test_folder_writable_by_every_user_is_not_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert "every user can write to it" in explain_distrust(str(tmp_path))
    tmp_path.chmod(0o775)
    assert explain_distrust(str(tmp_path)) == ""


def test_cache_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert explain_distrust(str(tmp_path / "file")) == "Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_folder_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert "it belongs to another user" in explain_distrust(str(tmp_path))
    tmp_path.chmod(0o770)  # a group's
    assert explain_distrust(str(tmp_path)) == ""
    os.chown(tmp_path, 1234, -1)
    assert explain_distrust(str(tmp_path)) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link away")
def test_link_made_by_another_user_is_not_trusted(tmp_path: Path) -> None:
    open_to_all, mine = tmp_path / "tmp", tmp_path / "mine"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    mine.mkdir()
    (open_to_all / "link").symlink_to(mine)
    os.chown(open_to_all / "link", 4321, -1, follow_symlinks=False)
    assert "link of user 4321" in explain_distrust(str(open_to_all / "link"))
