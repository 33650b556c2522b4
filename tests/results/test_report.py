import json
import re
from pathlib import Path

import pytest
from tests.results.browser import Browser
from tests.results.simulated import write_own_loop, write_run

from engram.core.errors import InputError
from engram.results.report import write_report
from engram.results.runs import find_runs

NASTY = '</script><img src=x onerror="document.title=1"> & "co"'


@pytest.fixture(scope="module")
def report(runs_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(find_runs([runs_folder]), path)
    return path


@pytest.fixture(scope="module")
def text(report: Path) -> str:
    return report.read_text(encoding="utf-8")


def test_the_page_says_in_figures_what_task_ends_miss(text: str) -> None:
    section = text[text.index('id="group-0"') : text.index('id="group-1"')]
    plain = re.sub(r"<[^>]+>", "", section)
    match = re.search(
        r"The lowest accuracy .* is ([\d.]+) % at task ends and ([\d.]+) % over all evaluations", plain
    )
    assert match
    shown, lowest = map(float, match.groups())
    assert 60 < shown < 90
    assert 30 < lowest < 55
    assert re.search(
        r"while Task \d \(\d, \d\) was being learned, Task \d \(\d, \d\) fell from [\d.]+ % to", plain
    )


def test_the_metrics_table_has_mean_interval_sd_and_n_of_every_group(text: str) -> None:
    table = text[text.index('class="metrics"') : text.index("</table>", text.index('class="metrics"'))]
    assert re.findall(r'<th scope="col">([^<]*)</th>', table) == ["Metric", "er", "ewc", "finetune"]
    explained = re.findall(r'data-tip="[^"]{20,}">([^<]*)</button>', table)
    assert {"ACC", "FORG", "min-ACC", "WC-ACC", "WF10", "RAA"} <= set(explained)
    rows = {name: row for row in table.split("<tr>") for name in re.findall(r">([^<]*)</button>", row)}
    assert rows.keys() == set(explained)
    for name in ("ACC", "min-ACC"):
        assert len(re.findall(r"\(\d+\.\d … \d+\.\d\)", rows[name])) == 3
        assert len(re.findall(r"SD \d+\.\d · n = 3", rows[name])) == 3


def test_settings_and_versions_are_there(text: str) -> None:
    for part in ("optimizer.lr", "0.01", "evaluation.subset", "versions.torch", "2.13.0", "er-0, er-1, er-2"):
        assert f">{part}<" in text


def test_the_page_needs_nothing_else(text: str) -> None:
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert text.count('id="plotly"') == 1
    assert len(text.encode()) < 3_000_000


def test_the_same_runs_give_the_same_bytes(runs_folder: Path, report: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.html"
    write_report(find_runs([runs_folder]), again)
    assert again.read_bytes() == report.read_bytes()


def test_no_runs_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to report"):
        write_report([], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_redrawn_subsets_have_no_forgotten_samples(tmp_path: Path) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    write_report(find_runs([run]), tmp_path / "fixed.html")
    experiment = json.loads((run / "experiment.json").read_text())
    experiment["evaluation"]["redraw"] = True
    (run / "experiment.json").write_text(json.dumps(experiment))
    write_report(find_runs([run]), tmp_path / "redrawn.html")
    assert "Forgotten samples" in (tmp_path / "fixed.html").read_text()
    assert "Forgotten samples" not in (tmp_path / "redrawn.html").read_text()


# ---- In a real browser. ----

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
DRAWN = (
    "document.querySelectorAll('[data-figure] .plot-container .main-svg .trace, [data-figure] .bars').length"
)
PLOTS = "[...document.querySelectorAll('[data-figure]')].filter((p) => p.querySelector('.main-svg')).length"
OVERLAPS = """[...document.querySelectorAll('[data-figure]')].flatMap((plot) => {
    const parts = [...plot.querySelectorAll('.annotation-text'), ...plot.querySelectorAll('.modebar-group')];
    const boxes = parts.map((part) => part.getBoundingClientRect()).filter((box) => box.width);
    return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
}).length"""
INK = "getComputedStyle(document.querySelector('.xtick text')).fill"


@pytest.mark.parametrize(("width", "schemes"), [(1280, (False, True)), (390, (True, False))])
def test_the_page_in_a_browser(
    browser: Browser, report: Path, width: int, schemes: tuple[bool, bool]
) -> None:
    browser.look(width=width, dark=schemes[0], mobile=width < 600)
    browser.open(report)
    # The page is opened in one scheme and then follows the reader into the other.
    for dark in schemes:
        browser.look(width=width, dark=dark, mobile=width < 600)
        assert browser.problems() == []
        assert browser.requests() == [report.resolve().as_uri()]
        # Overview and bars, and for each of three methods the tasks and two probes.
        assert browser.ask(PLOTS) == 2 + 3 * 3
        assert browser.ask(DRAWN) > 3 * (5 + 5 + 5 + 1)
        assert browser.ask(OVERFLOW) == 0
        assert browser.ask(OVERLAPS) == 0
        assert (_brightness(browser.ask(INK)) > 128) is dark
        assert (_brightness(browser.ask("getComputedStyle(document.body).backgroundColor")) < 128) is dark


def _brightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_the_colours_can_be_switched_by_keyboard(browser: Browser, report: Path) -> None:
    browser.look(width=1280)
    browser.open(report)
    before = browser.ask(INK)
    browser.ask("document.getElementById('theme').focus()")
    browser.press("Enter", text="\r")
    assert browser.ask("document.documentElement.dataset.theme") == "dark"
    assert (
        browser.ask("document.getElementById('theme').getAttribute('aria-label')")
        == "Switch to light colours"
    )
    assert browser.ask(INK) != before
    browser.press("Enter", text="\r")
    assert browser.ask(INK) == before


def test_curves_can_be_hidden_and_task_ends_shown_alone(browser: Browser, report: Path) -> None:
    browser.look(width=1280)
    browser.open(report)
    count = "document.querySelector('[data-figure=\"tasks-0\"]').data.filter((t) => t.mode === '{}').length"
    both = [browser.ask(count.format(mode)) for mode in ("lines", "lines+markers")]
    # A band and a line for each of five tasks, and min-ACC; then five task-end lines.
    assert both == [11, 5]
    legend = "document.querySelector('#group-0 .legend button')"
    browser.ask(f"{legend}.click()")
    assert browser.ask(f"{legend}.getAttribute('aria-pressed')") == "false"
    assert [browser.ask(count.format(mode)) for mode in ("lines", "lines+markers")] == [9, 4]
    browser.ask("document.querySelector('#group-0 .views :checked').focus()")
    browser.press("ArrowLeft")
    assert [browser.ask(count.format(mode)) for mode in ("lines", "lines+markers")] == [0, 4]


def test_runs_with_tasks_of_other_lengths_have_their_own_boundaries(browser: Browser, tmp_path: Path) -> None:
    for method, updates in (("er", 10), ("ewc", 20), ("finetune", 20)):
        write_run(tmp_path, method, seed=0, tasks=2, updates=updates, probes=False)
    page = tmp_path / "report.html"
    write_report(find_runs([tmp_path]), page)
    assert "Runs differ in the length of their tasks" in page.read_text()
    browser.look(width=1280)
    browser.open(page)
    marks = (
        "document.querySelector('[data-figure=\"methods\"]').layout.shapes.map((s) => [s.x0, s.line.color])"
    )
    (ten, blue), (twenty, grey) = browser.ask(marks)
    assert (ten, twenty) == (10, 20)
    curve = "document.querySelector('[data-figure=\"methods\"]').data.find((t) => t.name === 'er').line.color"
    # The boundary of one curve has its colour; one that two curves share is grey.
    assert blue == browser.ask(curve) != grey
    browser.ask("document.querySelector('#overview .legend button').click()")
    assert [x for x, _ in browser.ask(marks)] == [20]
    own = "document.querySelector('[data-figure=\"tasks-0\"]').layout.annotations.length"
    assert browser.ask(own) == 2
    assert browser.problems() == []


def test_a_focused_metric_is_explained(browser: Browser, report: Path) -> None:
    browser.look(width=390, mobile=True)
    browser.open(report)
    assert browser.ask("document.getElementById('tip').hidden")
    browser.ask("document.querySelectorAll('.term')[2].focus()")
    browser.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert not browser.ask("document.getElementById('tip').hidden")
    box = browser.ask("document.getElementById('tip').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0
    assert box["right"] <= 390
    assert 0 <= box["top"] < box["bottom"] <= 844


def test_names_are_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5, label="nasty")
    experiment = json.loads((run / "experiment.json").read_text())
    experiment |= {"label": NASTY, "method": NASTY, "settings": {NASTY: NASTY}}
    experiment["scenario"] |= {"name": NASTY, "tasks": [{"name": NASTY}, {"name": "$title"}]}
    (run / "experiment.json").write_text(json.dumps(experiment))
    other = write_own_loop(tmp_path)
    write_report(find_runs([run, other]), tmp_path / "report.html")
    browser.look(width=1280)
    browser.open(tmp_path / "report.html")
    assert browser.problems() == []
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert browser.ask("document.title").startswith("engram report")
    assert NASTY in browser.ask("document.querySelector('#overview .legend').textContent")


def test_a_long_stream_fits_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path, "ewc", seed=0, tasks=24, updates=12, probes=False)
    write_report(find_runs([run]), tmp_path / "report.html")
    browser.look(width=390, mobile=True)
    browser.open(tmp_path / "report.html")
    assert browser.problems() == []
    assert browser.ask(OVERFLOW) == 0
    assert browser.ask(OVERLAPS) == 0
    assert browser.ask("document.querySelectorAll('.heat.dense td[style]').length") == 24 * 25 // 2
