"""Runs that are repeated: what was there before is kept until there is something better."""

import os
from pathlib import Path

import pytest

from engram.core.files import read_json, write_json
from engram.core.folder import EXPERIMENT, FAILURE, RECORD, RESULT, TRACE
from engram.core.leases import Held, lease
from engram.record import aside
from engram.record.aside import forget, move_aside, recover, replacing, restore, set_aside


def finished(folder: Path, text: str = "old") -> None:
    folder.mkdir(exist_ok=True)
    for name in (EXPERIMENT, TRACE, "selection.json"):
        (folder / name).write_text(text)
    write_json(folder / RESULT, text)


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.fixture(params=["folder", "link"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a finished run, which may be a link to one on another disk."""
    folder = tmp_path / "run"
    if request.param == "link":
        finished(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        finished(folder)
    return folder


def test_a_new_run_takes_the_place_of_the_old(run: Path) -> None:
    is_link = run.is_symlink()
    assert set_aside(run, again=True)
    assert content(run) == {} and hidden(run) == [".before"]
    finished(run, "new")
    restore(run)
    assert content(run)[TRACE] == "new" and hidden(run) == []
    assert run.is_symlink() == is_link


def test_without_a_new_run_the_old_one_is_back(run: Path) -> None:
    before, is_link = content(run), run.is_symlink()
    assert set_aside(run, again=True)
    (run / TRACE).write_text("half")
    (run / "checkpoint.pt").write_text("half")
    restore(run)
    assert content(run) == before and hidden(run) == [] and run.is_symlink() == is_link


def test_a_failure_may_take_its_place_as_well(run: Path) -> None:
    assert set_aside(run, again=True)
    (run / "failure.json").write_text("new")
    forget(run)
    assert content(run) == {"failure.json": "new"} and hidden(run) == []


def test_an_unfinished_run_is_removed_also_behind_a_link(run: Path) -> None:
    (run / RESULT).unlink()
    assert not set_aside(run, again=True)
    assert content(run) == {} and run.is_dir()


def test_without_again_nothing_happens(run: Path, tmp_path: Path) -> None:
    before = content(run)
    assert not set_aside(run, again=False) and not set_aside(tmp_path / "absent", again=True)
    assert content(run) == before and not (tmp_path / "absent").exists()


def pretend_its_owner_died(run: Path) -> None:
    owner = run / ".before" / ".owner.json"
    write_json(owner, {**read_json(owner), "process": 2**22 + 1})


def test_what_a_killed_command_left_is_restored(run: Path) -> None:
    before = content(run)
    assert set_aside(run, again=True)
    (run / TRACE).write_text("half")
    assert not set_aside(run, again=False)
    assert hidden(run) == [".before"], "its owner is alive"
    pretend_its_owner_died(run)
    assert not set_aside(run, again=False)
    assert content(run) == before and hidden(run) == []


def test_two_that_repeat_a_run_at_once_do_not_take_it_from_each_other(run: Path) -> None:
    assert set_aside(run, again=True)
    assert not set_aside(run, again=True), "another process is repeating it now"
    with lease(run), pytest.raises(Held):
        set_aside(run, again=True)
    with lease(run):
        # The other one is still at it, so nothing is put back.
        restore(run)
        assert hidden(run) == [".before"]
    finished(run, "new")
    restore(run)
    assert content(run)[RESULT].strip() == '"new"' and hidden(run) == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(12))
def test_a_command_that_is_killed_at_any_moment_loses_nothing(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after so many changes to the disk, in setting aside or in putting back."""
    run = tmp_path / "run"
    finished(run)
    before = content(run)
    left = [step]

    def counted(patched: pytest.MonkeyPatch, name: str) -> None:
        change = getattr(os, name)

        def changing(*arguments: object, **options: object) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return change(*arguments, **options)

        patched.setattr(os, name, changing)

    with monkeypatch.context() as patched:
        for name in ("link", "unlink", "rename", "replace"):
            counted(patched, name)
        try:
            move_aside(run)
            aside.settle(run)
        except Killed:
            pass
    if (run / ".before").is_dir():
        pretend_its_owner_died(run)
    monkeypatch.setattr("engram.core.files.is_left_over", lambda name: True)
    recover(run)
    assert content(run) == before, step
    assert hidden(run) == []


def test_a_save_replaces_the_run_and_nothing_else(run: Path) -> None:
    with replacing(run):
        assert content(run).keys() == {"selection.json", "lease.json"}
        write_json(run / RESULT, "new")
    assert content(run) == {"selection.json": "old", RESULT: '"new"\n'} and hidden(run) == []


@pytest.mark.parametrize("by_save", [False, True])
def test_files_that_are_relative_links_are_put_back(by_save: bool, tmp_path: Path) -> None:
    """As tools that keep large files beside a repository make them."""
    finished(tmp_path / "objects")
    run, before = tmp_path / "run", content(tmp_path / "objects")
    run.mkdir()
    for name in before:
        (run / name).symlink_to(Path("..", "objects", name))
    if by_save:
        with pytest.raises(KeyboardInterrupt), replacing(run):
            (run / TRACE).write_text("half")
            raise KeyboardInterrupt
    else:
        assert set_aside(run, again=True)
        (run / TRACE).write_text("half")
        restore(run)
    assert content(run) == before == content(tmp_path / "objects") and hidden(run) == []


def test_a_save_that_fails_changes_nothing(run: Path) -> None:
    before = content(run)
    with pytest.raises(KeyboardInterrupt), replacing(run):
        (run / TRACE).write_text("half")
        (run / FAILURE).write_text("half")
        raise KeyboardInterrupt
    assert content(run) == before and hidden(run) == []


def test_only_one_process_saves_at_a_time(run: Path) -> None:
    before = content(run)
    with lease(run), pytest.raises(Held), replacing(run):
        pass
    assert content(run) == before


def test_a_save_that_was_killed_is_undone_by_the_next(run: Path) -> None:
    before = content(run)
    with lease(run):
        move_aside(run, to=".replaced", only=RECORD)
        (run / TRACE).write_text("half")
    (run / "weights.pt").write_text("written since")
    with pytest.raises(KeyboardInterrupt), replacing(run):
        raise KeyboardInterrupt
    assert content(run) == {**before, "weights.pt": "written since"} and hidden(run) == []


def test_what_an_earlier_version_set_aside_is_restored(tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished(tmp_path / ".run.before")
    run.mkdir()
    (run / TRACE).write_text("half")
    assert not set_aside(run, again=False)
    assert content(run)[TRACE] == "old" and (run / RESULT).is_file()
    assert not (tmp_path / ".run.before").exists()
