"""report.html: what it holds, and what it says when something is missing."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import emu
from emu.errors import DataError
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.analysis.link_load import sum_rates
from emu.prediction.analysis.throughput import pace
from emu.prediction.simulation import simulate
from emu.problem import Outages
from emu.report.explanation_tables import moves_line
from emu.report.html import markup
from emu.report.html import page as sections
from emu.report.html.chart_data import (
    chart_data,
    rates_by_bytes,
    thin,
    training_data,
)
from emu.report.html.page import report_page, write_report
from emu.report.lanes import pack, pack_lanes
from emu.report.terminal import plain_table
from emu.runs.recorded_run import RecordedRun, load_run
from emu.testing import two_machine_example
from emu.units import format_duration
from tests import draws
from tests.browser import Browser, needs_browser
from tests.integration.scenarios import custom, flow, read
from tests.report.drawn_run import write_run

times = arrays(np.float64, st.integers(0, 40), elements=st.floats(0, 100, width=16))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@given(times, st.floats(0.01, 10))
def test_lanes_keep_bars_apart_and_are_as_few_as_bars_overlap(
    start: np.ndarray[Any, Any], length: float
) -> None:
    end = start + length
    lanes, count = pack_lanes(start, end)
    for lane in range(count):
        mine = np.sort(start[lanes == lane])
        assert np.all(np.diff(mine) >= length - 1e-9)
    together = [int(np.sum((start <= at) & (at < end))) for at in start]
    assert count == max(together, default=0)


@given(st.integers(1, 300), st.integers(2, 50), st.integers(0, 9))
def test_a_thinned_curve_keeps_its_area(steps: int, points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    time, rate = np.cumsum(rng.random(steps)), rng.random(steps)
    end = float(time[-1]) + 0.5
    at, level = thin(time, rate, end, points)
    assert len(at) == min(steps, points)
    area = float(np.sum(rate * np.diff([*time, end])))
    assert np.sum(level * np.diff([*at, end])) == pytest.approx(area, rel=1e-9)


def test_moved_rates_amount_to_the_bytes_that_arrived(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    schedule = load_run(run).emulated
    assert schedule is not None
    assert schedule.rates is not None
    late = replace(schedule, rates=schedule.rates)
    late.flow_end[...] += 0.25  # every flow arrives later than its rates say
    moved = replace(late, rates=rates_by_bytes(late, schedule.rates))
    curves = sum_rates(moved)
    assert curves is not None
    through = [float(np.sum(rate[:-1] * np.diff(time))) for time, rate in curves]
    expected = np.zeros(len(through))
    for e, n in late.flows():
        expected[list(late.problem.hops[e])] += late.flow_bytes[e, n]
    np.testing.assert_allclose(through, expected, rtol=1e-9)


def test_edges_of_a_page_lead_where_their_names_say(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    data = chart_data(load_run(run))
    tasks = [task["name"] for task in data["tasks"]]
    ways = [f"{tasks[source]}->{tasks[target]}" for source, target, _ in data["edges"]]
    assert ways == [name for *_, name in data["edges"]]


def test_the_page_is_whole_and_escapes_what_it_shows(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    page = write_report(run).read_text()
    assert not re.search(r'(src|href)="(?!data:)', page)
    named = page.replace("http://www.w3.org/2000/svg", "")  # what saved SVG is called
    assert "http" not in re.sub(r'http-equiv="', "", named)
    assert "two &lt;machines&gt; &amp; more" in page
    assert "<machines>" not in page
    assert 'id="missing"' not in page.replace("id=missing", 'id="missing"')


def test_the_title_says_that_what_failed_was_drawn(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    path = run / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "failures": {"m1": 2}}))

    assert "failures: 2 drawn, m1 2" in report_page(run)


def test_the_page_says_first_what_most_of_the_run_was_spent_on(tmp_path: Path) -> None:
    """Show the run itself, not its simulation beside it."""
    run, _ = write_run(tmp_path)
    emulated = load_run(run).emulated
    assert emulated is not None
    told = sections.story(emulated)
    page = report_page(run)

    assert "of the time" in told
    assert page.count(told) == 1
    assert page.index(told) < page.index('id="doubt"')


def test_causes_of_a_path_have_their_shares_of_the_makespan(tmp_path: Path) -> None:
    """A column of the run, and one of its simulation."""
    run, _ = write_run(tmp_path)
    shown = sections.chain_table(load_run(run))

    shares = [float(text) for text in re.findall(r"\(([\d.]+)%\)", shown)]
    for column in (shares[::2], shares[1::2]):
        assert sum(column) == pytest.approx(100, abs=0.5)


def test_a_verdict_is_shown_with_its_reasons(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    page = report_page(run)
    assert "degraded" in page
    assert "the end is off by up to 3.4 %, 2 % may be" in page
    assert "<li>set emulation.time_scale to 5</li>" in page


def section_of(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_what_would_help_is_what_explain_says(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    recorded = load_run(run)
    explanation = recorded.explain()
    page = report_page(run, helpful=True)
    moves = section_of(page, "moves")
    assert moves_line(explanation) in html.unescape(moves)
    found = explanation.improvements_then or explanation.improvements
    stated = [one for one in found if one.change.edit is not None]
    first = (stated or found)[0]
    rows = section_of(page, "helps").split("<tr>")[2:]
    assert 0 < len(rows) <= sections.SHOWN
    assert first.change.what in html.unescape(rows[0])
    assert format_duration(first.makespan, 6) in rows[0]


def test_a_page_draws_what_the_run_knows_and_searches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = write_run(tmp_path)
    asked: list[Path] = []
    explain = RecordedRun.explain

    def note(of: RecordedRun, **how: bool) -> Explanation:
        asked.append(of.path)
        return explain(of, **how)

    monkeypatch.setattr(RecordedRun, "explain", note)
    page = report_page(run)
    assert "emu report --explain" in section_of(page, "helps")
    assert 'id="moves"' not in page
    assert not asked
    report_page(run, helpful=True)
    assert asked == [run]


def test_where_the_two_parted_sums_to_the_difference(tmp_path: Path) -> None:
    run, result = write_run(tmp_path)
    result["error_budget"] = {"shaping": 0.25, "clock": -0.125, "loop lag": 0.0}
    (run / "result.json").write_text(json.dumps(result))
    apart = section_of(report_page(run), "apart")
    whole = result["makespan"] - result["replayed_makespan"]
    assert f">+{format_duration(whole)}</td>" in apart.split("sum")[1]
    assert re.search(r">shaping</td><td [^>]*>\+250 ms</td>", apart)
    assert re.search(r">clock</td><td [^>]*>-125 ms</td>", apart)
    assert "loop lag" not in apart
    (run / "simulated.json").unlink()
    assert "shaping" in section_of(report_page(run), "apart")


def test_every_bar_of_both_runs_is_in_the_page(tmp_path: Path) -> None:
    run, result = write_run(tmp_path)
    data = data_of(report_page(run))
    assert [one["name"] for one in data["runs"]] == ["emulated", "simulated"]
    assert data["runs"][0]["makespan"] == result["makespan"]
    recorded = load_run(run)
    for one, made in zip(
        data["runs"], (recorded.emulated, recorded.simulated), strict=True
    ):
        assert made is not None
        for end in ("start", "end"):
            shown = np.frombuffer(base64.b64decode(one["tasks"][end]), "<f4")
            np.testing.assert_allclose(
                shown, getattr(made, f"task_{end}")[made.bars()], rtol=1e-6
            )
        assert len(one["tasks"]["start"]) == 4 * -(-4 * len(result["tasks"]) // 3)
        assert len(one["flows"]["start"]) == 4 * -(-4 * len(result["flows"]) // 3)
        chain = one["chain"]
        assert chain[0]["start"] == pytest.approx(0.0)
        assert chain[-1]["end"] == pytest.approx(one["makespan"])


@pytest.mark.parametrize(
    "name", ["result.json", "simulated.json", "rates.npz", "training.csv"]
)
@pytest.mark.parametrize("harm", ["missing", "cut short"])
def test_what_is_missing_is_named_and_the_rest_is_shown(
    tmp_path: Path, name: str, harm: str
) -> None:
    run, _ = write_run(tmp_path)
    if harm == "missing":
        (run / name).unlink()
    else:
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: len(whole) // 2])
    page = report_page(run)
    assert data_of(page)["runs"]
    if (name, harm) == ("training.csv", "cut short"):
        assert len(data_of(page)["training"][0]["points"]) in {2, 3}
    else:
        missing = page[page.index("id=missing") :]
        assert name in missing[: missing.index("</section>")]


def test_a_directory_without_a_problem_still_shows_the_headline(
    tmp_path: Path,
) -> None:
    run, result = write_run(tmp_path)
    (run / "problem.json").unlink()
    page = report_page(run)
    assert "problem.json" in page
    assert f"{result['makespan']:.6g} s" in page
    assert data_of(page)["runs"] == []


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    run, result = write_run(tmp_path)
    del result["ports"][0]["used"]
    (run / "result.json").write_text(json.dumps(result))
    page = report_page(run)
    assert "no usable ports" in page
    assert 'id="kinds-table"' in page


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run directory"):
        write_report(tmp_path / "nothing")
    # Nor is a page of nothing left in a folder of something else.
    (tmp_path / "job.yaml").touch()
    with pytest.raises(DataError, match="not a run directory"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_training_is_averaged_per_iteration(tmp_path: Path) -> None:
    path = tmp_path / "training.csv"
    path.write_text(
        "time,task,iteration,figure,value\n"
        "1.0,w0,0,loss,4\n1.5,w1,0,loss,2\n1.5,w1,0,edges,2\n2.0,w0,1,loss,1\n2.5,w1,1,l"
    )
    (loss,) = training_data(path)
    assert loss["means"] == [[1.5, 3.0], [2.0, 1.0]]


def test_losses_stand_before_accuracies_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "training.csv"
    figures = ["valid_accuracy", "test_accuracy", "loss", "train_accuracy"]
    lines = [f"1.0,w0,0,{figure},0.5" for figure in figures]
    path.write_text("\n".join(["time,task,iteration,figure,value", *lines]))
    names = [row["figure"] for row in training_data(path)]
    assert names == ["loss", "valid_accuracy", "test_accuracy", "train_accuracy"]


@needs_browser
async def test_in_a_browser_bars_are_drawn_and_zoom_works(tmp_path: Path) -> None:
    run, result = write_run(tmp_path)
    report = write_report(run)
    async with Browser() as browser:
        page = await browser.open(report.as_uri())
        await page.until("document.documentElement.dataset.drawn")
        shown = await page.value("""Object.fromEntries(
            [...document.querySelectorAll("[data-key]")].map(
                found => [found.dataset.key, found.textContent]))""")
        assert shown["makespan"] == f"{result['makespan']:.6g} s"
        assert shown["replay_error"] == f"{100 * result['replay_error']:+.3g} %"

        bars = 2 * (len(result["tasks"]) + len(result["flows"]))
        flows_twice = bars + 2 * len(result["flows"])  # once out, once in
        assert await page.value("gantt.drawn") == flows_twice
        colours = await page.value("""new Set(new Uint32Array(gantt.canvas
            .getContext("2d").getImageData(0, 0, gantt.canvas.width,
            gantt.canvas.height).data.buffer)).size""")
        assert colours > len(range(4))

        place = await page.value("gantt.canvas.getBoundingClientRect().toJSON()")
        x, y, width = place["x"], place["y"] + 60, place["width"]
        await page.drag((x + 0.4 * width, y), (x + 0.6 * width, y))
        low, high = await page.value("view.range")
        whole = await page.value("view.whole[1]")
        assert 0 < low < high < whole
        assert await page.value("gantt.drawn") < flows_twice
        await page.value("view.reset()")
        await page.frame()
        assert await page.value("gantt.drawn") == flows_twice
        assert page.complaints == []


@needs_browser
async def test_in_a_browser_a_damaged_run_is_shown_without_complaints(
    tmp_path: Path,
) -> None:
    run, _ = write_run(tmp_path)
    for name in ("result.json", "rates.npz", "training.csv"):
        (run / name).unlink()
    async with Browser() as browser:
        page = await browser.open(write_report(run).as_uri(), dark=True)
        await page.until("document.documentElement.dataset.drawn")
        assert await page.value("gantt.drawn") > 0
        assert "result.json" in await page.value(
            "document.getElementById('missing').textContent"
        )
        assert page.complaints == []


@needs_browser
@pytest.mark.parametrize("width", [320, draws.rarely(400), draws.rarely(519)])
async def test_on_a_telephone_no_column_is_cut(width: int, tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    async with Browser() as browser:
        page = await browser.open(write_report(run).as_uri())
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=True,
        )  # fmt: skip
        await page.frame()
        assert await page.value("innerWidth") == width
        assert await page.value("document.documentElement.scrollWidth") <= width
        assert await page.value("document.querySelectorAll('.scroll').length") > 3
        wide = await page.value("""[...document.querySelectorAll(".scroll")]
            .filter(found => found.scrollWidth > found.clientWidth).length""")
        assert not wide or width < 400  # there tables scroll, and break no word


def test_six_figures_come_first_and_none_is_lost(tmp_path: Path) -> None:
    run, result = write_run(tmp_path)
    text = write_report(run).read_text(encoding="utf-8")
    first, _, rest = text.partition("<details class=more>")

    assert 0 < first.count("<div class=figure>") <= 6
    shown = {key for key in result if f'data-key="{key}"' in first + rest}
    assert {"makespan", "makespan_error", "replay_error", "wall_seconds"} <= shown
    for key in ("predicted_makespan", "replayed_makespan"):
        assert f"of {result[key]:.6g} s" in first


def test_story_and_cards_count_the_same_transfers() -> None:
    """Flows that queue behind earlier ones of their edge are transfers in both."""
    document = custom(
        [{"name": name, "time": "10 ms"} for name in "ab"],
        [flow("a", "b", "100 kB")],
        {"a": "m0", "b": "m1"},
        machine={"nic": "10 Mbit/s"},
        iterations=3,
    )
    schedule = emu.simulate(read(document))

    causes = critical_path(schedule).sums(lambda link: link.cause)
    share = pace(schedule, None).critical_path["transfer"]
    assert causes[Cause.IN_ORDER] > 0
    assert f"{share:.0%} of the time the job waited for transfers" in sections.story(
        schedule
    )


def test_the_story_of_a_run_that_died_names_the_attempt_that_it_is_of() -> None:
    """Deaths take half of the time: a path of 99 % is that of the last attempt."""
    schedule = simulate(*two_machine_example(1))
    died = replace(schedule, outages=Outages(schedule.length, 0.0))

    told = sections.story(schedule)
    assert "of the time" in told
    assert sections.story(died) == told.replace("the time", "the last attempt")


def test_what_stands_below_a_table_stands_below_it_on_the_page() -> None:
    shown = plain_table("What limits them", "system", ">memory")
    shown.add_row("dgtp", "1 MB + 2 MB")
    assert markup.table(shown).endswith("</table></div>")

    shown.caption = "memory: of the fullest machine, & of its GPUs"
    remark = "memory: of the fullest machine, &amp; of its GPUs"
    assert markup.table(shown).endswith(f"</div><p class=remark>{remark}</p>")


def test_the_page_names_latency_where_it_is_the_cause() -> None:
    schedule = emu.simulate(
        read(
            custom(
                [{"name": name, "kind": name, "time": "10 ms"} for name in "ab"],
                [flow("a", "b", "100 kB")],
                {"a": "m0", "b": "m1"},
                machine={
                    "nic": {"in": "1 Gbit/s", "out": "1 Gbit/s", "latency": "1 s"}
                },
                iterations=1,
            )
        )
    )
    text = "99% of the time the job waited for what was sent to arrive, most of it for "
    assert f"{text}a -&gt; b." in sections.story(schedule)


def test_a_time_beyond_single_precision_is_drawn_as_without_end() -> None:
    """A damaged run had one of 1e300 s; the warning of the cast ended its report."""
    found = np.frombuffer(base64.b64decode(pack([1.5, 1e300], "f4")), "<f4")

    assert found.tolist() == [1.5, np.inf]


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_run_whose_training_diverged_has_a_page(value: str, tmp_path: Path) -> None:
    """Its last loss is no number, which no chart can show: the report was refused."""
    run, _ = write_run(tmp_path)
    path = run / "training.csv"
    path.write_text(f"{path.read_text()}70.0,w0,9,loss,{value}\n")
    (loss, *_) = data_of(report_page(run))["training"]
    assert [point[2] for point in loss["points"]] == [0, 1, 2, 3]
    assert len(loss["means"]) == 4
