"""Everything that works without torch, used as people would; run by tests in processes that have none.

With the argument `block`, torch and scikit-learn cannot be imported although they are installed.
"""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy as np

ABSENT = ("torch", "sklearn")


class Absent(MetaPathFinder):
    """Makes packages look as if they were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def block() -> None:
    sys.meta_path.insert(0, Absent())


def engram(*arguments: str, code: int = 0) -> str:
    """Run a command in this process; what it prints."""
    from engram.cli.entry import run_command

    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            run_command(arguments)
        except SystemExit as ended:
            exit_code = ended.code
    output = printed.getvalue()
    assert exit_code == code, f"{arguments}: {exit_code}\n{output}"
    return output


def record(folder: Path, *, seed: int) -> None:
    """A run of something that forgets, recorded."""
    import engram

    draw = np.random.default_rng([seed, len(folder.parent.name) + ord(folder.parent.name[0])])
    recorder = engram.Recorder(["cats", "dogs"])
    labels = ["small", "large"] * 100
    for step in range(6):
        learning = "cats" if step < 3 else "dogs"
        for task in ("cats", "dogs")[: 1 + step // 3]:
            right = draw.random(200) < (0.95 if task == learning else 0.6)
            answers = [label if fine else "none" for label, fine in zip(labels, right, strict=True)]
            light = ["day", "night", "day", "day"] * 50
            recorder.record(
                step, task, right, learning=learning, labels=labels, slices={"light": light}, answers=answers
            )
    assert 0.5 < recorder.metrics()["ACC"] < 1
    run = recorder.save(folder, label=folder.parent.name, seed=seed)
    assert run.confusion().counts.sum() == 400
    assert 0 < run.answers.churn(3, 5) < 1


def main() -> None:
    """Use all of it, in the current folder."""
    for label in ("old", "new"):
        for seed in (0, 1, 2):
            record(Path(label) / str(seed), seed=seed)
    assert "light=night" in engram("gate", "old/0", "new/0", "--max-drop", "90pp")
    engram("history", "old", "-o", "history.html")
    assert "ACC" in engram("compare", "old", "new")
    engram("report", "old", "new", "-o", "report.html")
    assert Path("report.html").stat().st_size > 10_000
    assert "6 done" in engram("verify", "runs", "old", "new")
    assert "FORG" in engram("metrics", "old/0")
    Path("matrix.csv").write_text("0.9,0.1\n0.6,0.8\n")
    assert "FORG" in engram("metrics", "matrix.csv")
    assert "learned" in engram("explain", "FORG")
    assert "min-ACC" in engram("list", "metrics")
    assert "split-digits" in engram("list", "scenarios")
    assert "gate" in engram("--help")
    engram("import", "--help")
    assert "no such file" in engram("import", "nowhere", code=2)
    for line in ("run split-digits er", "demo", "sweep sweep.toml", "list methods", "reproduce"):
        Path("sweep.toml").write_text("scenario = 'split-digits'\nmethod = 'er'\n")
        output = engram(*line.split(), code=2)
        assert output.count("\n") == 1, output
        assert output.startswith("error: ") and "pip install 'engram-eval[torch]'" in output, output
    assert not Path("runs").exists() and not Path("demo").exists()
    import engram as package

    try:
        package.Evaluator([])
    except ModuleNotFoundError as error:
        assert "engram-eval[torch]" in str(error)
    else:
        raise AssertionError("there should be no torch here")
    assert not set(ABSENT) & set(sys.modules)
    print("all of it works")  # noqa: T201


if __name__ == "__main__":
    os.environ |= {"COLUMNS": "120", "NO_COLOR": "1"}
    if "block" in sys.argv:
        block()
    main()
