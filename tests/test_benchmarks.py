"""What the benchmarks claim: fits that are right, nothing timed that is wrong, pages that say how they were made."""

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bench_export
import bench_forest
import bench_growth
import bench_tables
import growth_figure
import measure
import onnx_peer
import run
from measure import CheckFailed, Cost

PAGE = "# Benchmarks\n\n- date: long ago\n\n## Old\n\nold numbers\n\n## Gone\n\nof a benchmark that is no more\n"


def test_the_program_starts_by_its_name_alone():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = Path(run.__file__)
    shown = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True, env=environment)
    assert shown.returncode == 0, shown.stderr
    assert "--only" in shown.stdout


def grown_forest(n_classes, n_features=6):
    """scikit-learn's forest, and rows of which many lie on its thresholds."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    rows = rng.integers(-4, 5, (600, n_features)).astype(np.float32) / np.float32(10)
    labels = 3 + rng.integers(0, n_classes, 600)
    forest = ensemble.RandomForestClassifier(8, max_depth=7, random_state=0).fit(rows, labels)
    thresholds = np.concatenate([each.tree_.threshold for each in forest.estimators_]).astype(np.float32)
    return forest, np.concatenate([rows, rng.choice(thresholds, (400, n_features))])


def outcome(cpu, added, accuracy=0.9):
    cost = Cost(cpu, cpu, added, added)
    return bench_growth.Outcome(cost, cost, accuracy)


def grown_outcomes(plan, power, names=tuple(bench_growth.CONTENDERS)):
    """Costs that grow as a power of what grows."""
    outcomes = {}
    for quantity in plan.quantities:
        for value, job in zip(quantity.values, plan.jobs(quantity), strict=True):
            ratio = quantity.size(value) / quantity.size(getattr(plan.base, quantity.field))
            outcomes |= {(name, job): outcome(2 * ratio**power, 100 * ratio) for name in names}
    return outcomes


@pytest.fixture
def page(tmp_path, monkeypatch):
    """RESULTS.md in a folder of its own, written by two benchmarks; the second draws."""
    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    run.RESULTS.write_text(PAGE)
    drawn = tmp_path / "drawn" / "figure.png"
    drawn.parent.mkdir()
    drawn.write_bytes(b"drawn")
    old = SimpleNamespace(TITLE="Old", run=lambda small: "new numbers")
    other = SimpleNamespace(TITLE="Other", run=lambda small: "other numbers", FIGURE=drawn)
    monkeypatch.setattr(run, "BENCHMARKS", {"old": old, "other": other})

    def write(*options):
        monkeypatch.setattr(sys, "argv", ["run.py", *options, "--write"])
        run.main()
        return run.RESULTS.read_text()

    return write


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_the_data(power):
    sizes = [10, 40, 160, 640]
    assert measure.exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-9)


def test_the_exponent_is_the_least_squares_line_in_logarithms():
    rng = np.random.default_rng(0)
    sizes = [1, 2, 4, 8, 16]
    costs = np.exp(rng.normal(size=5))
    x, y = np.log(sizes) - np.log(sizes).mean(), np.log(costs)
    assert measure.exponent(sizes, costs) == pytest.approx((x * y).sum() / (x * x).sum())


def test_costs_that_are_noise_are_not_fitted():
    assert measure.exponent([1, 10, 100], [0.9, 10, 100], least=1.0) == pytest.approx(1)
    assert math.isnan(measure.exponent([1, 10, 100], [0.0, 0.0, 5.0]))


def test_growth_is_told_a_quantity_at_a_time():
    plan = bench_growth.PLANS[False]
    panels = bench_growth.panels_of(plan, grown_outcomes(plan, 1.5))
    assert [panel.name for panel in panels] == ["pixels of an image", "images", "trees", "depth", "classes"]
    for panel in panels:
        for line in bench_growth.growth_table(panel).splitlines()[2:]:
            assert line.split("|")[-2].strip() == ("1.50" if "CPU s" in line else "1.00")
    assert list(panels[0].sizes) == [128**2, 256**2, 512**2, 1024**2]


def test_a_missing_peer_is_said():
    plan = bench_growth.PLANS[True]
    names = (bench_growth.STACK, bench_growth.FOREST)
    panel = bench_growth.panels_of(plan, grown_outcomes(plan, 1.0, names))[0]
    lines = [line for line in bench_growth.growth_table(panel).splitlines() if "scikit-learn" in line]
    assert len(lines) == len(bench_growth.ROWS)
    assert all("not installed" in line for line in lines)


def test_the_figure_of_large_data_is_that_of_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    strokes, large = growth_figure.read_page(run.RESULTS.read_text(encoding="utf-8"))
    assert (strokes.sizes[0], large.sizes[-1]) == (25, 32768**2 / 1e6)
    for one in (strokes, large):
        assert len(one.sizes) == len(one.seconds) == len(one.megabytes) > 2
        assert max(one.megabytes) < one.promised
    growth_figure.draw_large([strokes, large], tmp_path / "large.png")
    assert (tmp_path / "large.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_is_drawn_with_and_without_the_peer(tmp_path):
    pytest.importorskip("matplotlib")
    plan = bench_growth.PLANS[False]
    for number, names in enumerate([tuple(bench_growth.CONTENDERS), (bench_growth.STACK, bench_growth.FOREST)]):
        path = tmp_path / "drawn" / f"{number}.png"
        panels = bench_growth.panels_of(plan, grown_outcomes(plan, 1.0, names))
        growth_figure.draw(panels, list(bench_growth.ROWS), list(bench_growth.CONTENDERS), path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_sizes_on_an_axis_are_short():
    assert [growth_figure.short(n) for n in (64, 16_384, 262_144, 1_048_576)] == ["64", "16k", "262k", "1M"]


@pytest.mark.parametrize("poor", [bench_growth.STACK, bench_growth.FOREST])
def test_growth_of_work_done_badly_is_refused(poor):
    job = bench_growth.PLANS[True].base
    outcomes = {(name, job): outcome(1, 1) for name in bench_growth.CONTENDERS}
    bench_growth.check_accuracy(outcomes, job, 0.05)
    with pytest.raises(CheckFailed, match=r"0\.800"):
        bench_growth.check_accuracy(outcomes | {(poor, job): outcome(1, 1, 0.8)}, job, 0.05)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_a_forest_of_scikit_learn_answers_alike_as_onnx(tmp_path, n_classes):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    forest, rows = grown_forest(n_classes)
    onnx_peer.write_forest(forest, tmp_path / "forest.onnx")
    proba = onnx_peer.answer(tmp_path / "forest.onnx", "proba", {"rows": rows})
    np.testing.assert_allclose(proba, forest.predict_proba(rows), rtol=0, atol=1e-6)


def test_onnxruntime_is_not_timed_where_its_answers_are_others(tmp_path, monkeypatch):
    table = bench_forest.Table(np.zeros((2, 3, 4), np.float32), np.zeros((3, 4), np.int32), np.arange(5))
    for name in ("channels", "target", "chosen"):
        np.save(tmp_path / f"{name}.npy", getattr(table, name))
    np.save(tmp_path / "proba.npy", np.full((12, 2), 0.5))
    np.save(tmp_path / "image.npy", np.zeros((3, 4), np.float32))
    np.save(tmp_path / "labels.npy", np.zeros((3, 4), np.uint8))
    for bench in (bench_forest, bench_export):
        monkeypatch.setattr(bench, "open_session", lambda path: pytest.fail("opened"))
        monkeypatch.setattr(bench, "measure", lambda *given: pytest.fail("timed"))
    monkeypatch.setattr(bench_forest, "answer", lambda *given: np.full((12, 2), 0.5001))
    with pytest.raises(CheckFailed, match="probabilities"):
        bench_forest.run_onnxruntime(tmp_path, 1)
    monkeypatch.setattr(bench_export, "answer", lambda *given: np.eye(3, 4))
    with pytest.raises(CheckFailed, match="3 of 12 pixels"):
        bench_export.run_onnxruntime(tmp_path, 1)


def test_tables_have_a_row_per_set_and_refuse_a_network_that_guesses(monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    monkeypatch.setattr(bench_tables, "N_FOLDS", 2)
    monkeypatch.setattr(bench_tables, "set_threads", lambda n: None)
    monkeypatch.setattr(bench_tables, "in_fresh_process", lambda work, *given: work(*given))
    header, rule, *rows = bench_tables.run(small=True).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["iris", "wine"]
    assert {line.count("|") for line in (header, rule, *rows)} == {11}
    neural = [float(row.split("|")[4].split("±")[0]) for row in rows]
    assert all(0.8 < accuracy <= 1 for accuracy in neural)
    monkeypatch.setattr("hedgerow.NeuralForestClassifier.score", lambda *given: 0.3)
    with pytest.raises(CheckFailed, match="iris"):
        bench_tables.compare("iris", 1)


def test_a_whole_run_is_kept_with_its_figure(page, tmp_path):
    text = page()
    assert [line for line in text.splitlines() if line.startswith("#")] == ["# Benchmarks", "## Old", "## Other"]
    assert "long ago" not in text
    assert text.count("- command: `python benchmarks/run.py --write`") == 1
    assert (tmp_path / "figure.png").read_bytes() == b"drawn"


def test_a_part_is_kept_with_its_own_date_and_command_and_the_rest_stays(page, tmp_path):
    head, section = page("--only", "other").split("## Other")
    assert "long ago" in head
    assert "old numbers" in head
    assert "Gone" not in head
    for output in (
        "- command: `python benchmarks/run.py --only other --write`",
        "- date: 20",
        "- versions: ",
        "other numbers",
    ):
        assert output in section
    assert (tmp_path / "figure.png").exists()
    again = page("--only", "old")
    assert again.count("## Old") == again.count("## Other") == 1
    assert "old numbers" not in again
    assert "other numbers" in again


def test_nothing_is_kept_of_a_run_that_was_refused(page, capsys):
    def refuse(small):
        raise CheckFailed("labels differ.")

    run.BENCHMARKS["old"].run = refuse
    with pytest.raises(SystemExit, match="nothing was written"):
        page()
    assert run.RESULTS.read_text() == PAGE
    assert "**Refused to time:** labels differ." in capsys.readouterr().out


def test_small_sizes_are_not_kept(page, capsys):
    with pytest.raises(SystemExit):
        page("--small")
    assert run.RESULTS.read_text() == PAGE
    assert "--small" in capsys.readouterr().err
