"""`engram` itself: help, version, completion, `-q` and `-v`, and what a mistake gets."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Engram
from typer.main import get_command

import engram as package
from engram.cli import main
from engram.cli.app import app
from engram.cli.output import is_verbose, stderr
from engram.cli.verbs import LazyVerb, Verbs, first_paragraph

VERBS = (
    *("run", "sweep", "protocol", "reproduce", "report", "compare", "audit", "metrics"),
    *("explain", "list", "data", "verify", "demo"),
)


def test_version(engram: Engram) -> None:
    done = engram("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"engram {package.__version__}\n", "")


def test_alone_it_prints_its_help(engram: Engram) -> None:
    done = engram()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == engram("--help").stdout == engram("-h").stdout
    for verb in VERBS:
        assert f" {verb} " in done.stdout
    for panel in ("Train and evaluate", "Look at results", "Look things up"):
        assert f"\n{panel}:\n" in done.stdout
    for group in ("protocol", "verify"):
        alone = engram(group)
        assert (alone.returncode, alone.stderr) == (0, "") and "Usage: engram" in alone.stdout


def test_every_option_of_run_is_under_a_heading(engram: Engram) -> None:
    others = engram("run", "--help").stdout.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert "--help" in others and others.count("--") == 1


@pytest.mark.parametrize("verb", [*VERBS, "protocol grid", "protocol causal", "verify isolation"])
def test_every_verb_has_help(verb: str, engram: Engram) -> None:
    done = engram(*verb.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: engram {verb}" in done.stdout


def lazy_verbs(group: Verbs, *path: str) -> list[tuple[str, LazyVerb, Any]]:
    """The verbs that are imported when they are called, with the commands that they become."""
    verbs = []
    for name, lazy in group.lazy.items():
        command = lazy.load(name)
        verbs.append((" ".join([*path, name]), lazy, command))
        if isinstance(command, Verbs):
            verbs += lazy_verbs(command, *path, name)
    return verbs


def test_the_table_of_verbs_says_what_their_help_says() -> None:
    root = get_command(app)
    assert isinstance(root, Verbs)
    verbs = lazy_verbs(root)
    assert {*VERBS, "protocol grid"} <= {path for path, _, _ in verbs}
    for path, lazy, command in verbs:
        assert command.name == path.split()[-1]
        assert lazy.summary == first_paragraph(command), path


def test_a_verb_is_imported_when_it_is_called() -> None:
    program = (
        "import sys\nfrom engram.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "loaded = {'engram.cli.run', 'engram.engine', 'pydantic'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_options_of_run_come_in_groups(engram: Engram) -> None:
    shown = engram("run", "--help").stdout
    panels = ["Scenario", "Network", "Training", "Evaluation", "Execution", "Output"]
    places = [shown.index(f"\n{panel}:\n") for panel in panels]
    assert places == sorted(places)
    for option, panel in (("--hidden", "Network"), ("--lr", "Training"), ("--every", "Evaluation")):
        place = shown.index(f"\n  {option} ")
        assert max((at, name) for at, name in zip(places, panels, strict=True) if at < place)[1] == panel


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'? `engram --help` shows all"),
        (["zzz"], "unknown command 'zzz'; `engram --help` shows all"),
        (["verify", "isolatoin"], "unknown command 'isolatoin'; did you mean 'isolation'?"),
        (["run"], "missing argument 'SCENARIO'; see `engram run --help`"),
        (["run", "split-digits", "er", "--seed", "3"], "no such option --seed; did you mean --seeds"),
        (
            ["run", "split-digits", "er", "--lr"],
            "option '--lr' requires an argument; see `engram run --help`",
        ),
        (["protocol", "causal", "split-digits", "er", "--quick"], "see `engram protocol causal --help`"),
        (["--nothing"], "no such option --nothing; see `engram --help`"),
        (
            ["run", "split-digits", "ERR"],
            "unknown method 'ERR'; did you mean 'er'? `engram list methods` shows",
        ),
        (["run", "SPLIT-MNIST", "er"], "unknown scenario 'SPLIT-MNIST'; did you mean 'split-mnist'"),
        (["explain", "EWC-"], "unknown name 'EWC-'; did you mean 'ewc'"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: list[str], message: str, engram: Engram
) -> None:
    done = engram(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and message in done.stderr and done.stderr.count("\n") == 1


def test_a_wrong_name_does_not_get_every_name(engram: Engram) -> None:
    for arguments in (["run", "split-digits", "xyz"], ["run", "xyz", "er"], ["data", "xyz"]):
        assert len(engram(*arguments).stderr) < 120


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "split-dig"], {"split-digits"}),
        (["run", "split-digits", "naive"], {"naive-rehearsal", "naive-rehearsal-c"}),
        (["run", "split-digits", "er", "--model", "resnet"], {"resnet18", "resnet50"}),
        (["protocol", "grid", "split-digits", "er", "--metric", "WC"], {"WC-ACC"}),
        (["protocol", "forward-transfer", "split-digits", "er,gem,ew"], {"er,gem,ewc"}),
        (["protocol", "c"], {"causal"}),
        (["list", "me"], {"methods", "metrics"}),
        (["data", "fash"], {"fashion-mnist"}),
        (["explain", "caus"], {"causality"}),
        (["reproduce", "002-table2"], {"002-table2"}),
    ],
)
def test_names_are_completed(
    words: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_ENGRAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["engram", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out.split()
    assert set(shown) == expected


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom engram.cli import main\ntry:\n    main([])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'scipy', 'polars', 'numpy'} & set(sys.modules)"
    )
    words = {
        "_ENGRAM_COMPLETE": "complete_bash",
        "COMP_WORDS": "engram run split-digits e",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **words}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ewc" in done.stdout.split()


def test_quiet_prints_results_and_errors_only(tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "finetune", "--updates", 2, "--out", tmp_path]
    done = engram(*command, "-q")
    assert done.returncode == 0 and "ACC" in done.stdout and done.stderr == ""
    assert engram("-q", *command).stderr == ""
    assert "scenario" in engram(*command).stderr
    wrong = engram("run", "split-digits", "nothing", "-q")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
    assert engram("list", "models").returncode == 0 and not stderr.quiet


def test_verbose_shows_where_an_error_comes_from(tmp_path: Path, engram: Engram) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("value = 1\nvalue / 0\n")
    command = ("list", "methods", "--plugin", plugin)
    assert "Traceback" not in engram(*command).stderr
    said = engram(*command, "-v").stderr
    assert (
        "Traceback" in said and f'{plugin}", line 2' in said and said.splitlines()[-1].startswith("error: ")
    )
    assert engram("list", "models").returncode == 0 and not is_verbose()


def test_starting_up_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'sklearn', 'plotly', 'scipy', 'polars', 'pandas', 'numpy'}"
    program = f"import sys, engram, engram.cli\nheavy = {heavy} & set(sys.modules)\nassert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
