"""Figures and tables of the report say what follows from the records."""

import dataclasses
import itertools
from typing import Any

import pytest

from kheads.blocks.site import ATTENTIONS
from kheads.lab.report.comparison import comparison_table, extra_seconds
from kheads.lab.report.distribution import agreement_figure, distribution_figure
from kheads.lab.report.drawing import Axis, Figure, Heat, Panel, Series, Table, count_axis, log_axis
from kheads.lab.report.dynamics import chosen_shares, dynamics_figures
from kheads.lab.report.efficiency import ceiling, efficiency_items, interpolate, tradeoff_figure
from kheads.lab.report.paper import TABLES, load, published
from kheads.lab.report.penalty import penalty_figure
from kheads.lab.report.quality import quality_figure, quality_table
from kheads.lab.report.results import Results
from kheads.lab.report.style import PALETTE, colour_of
from kheads.lab.report.verdicts import NO_NUMBER
from kheads.methods.look import Look
from report_results import changed, only, series
from synthetic_results import FALL, KS, LOOKS, STEPS


def test_quality_is_the_mean_over_seeds_in_percent(sweep: Results) -> None:
    line = series(quality_figure(sweep), "Joint DSP")
    values = [run.quality("mismatched") or 0 for run in sweep.of("dsp") if run.k == 12]
    mean, where = 100 * sum(values) / 3, list(line.x).index(12)
    assert len(values) == 3 and list(line.x) == sorted(KS) and line.y[where] == pytest.approx(mean)
    low, high = line.low[where], line.high[where]
    assert low is not None and high is not None and low <= mean <= high


def test_one_panel_has_every_k_on_a_log_axis_and_the_dashed_line_the_unpruned_model(sweep: Results) -> None:
    figure = quality_figure(sweep)
    assert figure and len(figure.panels) == 1
    (panel,) = figure.panels
    assert isinstance(panel, Panel) and panel.x.log and list(panel.x.ticks) == [*sorted(KS), 72]
    unpruned = series(figure, "Unpruned")
    assert unpruned.look.dash == "dash" and unpruned.y[0] == pytest.approx(82.5)
    assert {look.label for look in figure.legend()} == {LOOKS[key][0] for key in (*FALL, "none")}


def test_the_data_have_the_k_of_few_heads_once_more(sweep: Results) -> None:
    figure = quality_figure(sweep)
    assert figure and [panel.title for panel in figure.data] == ["All K", "Few heads: K up to 24"]
    whole, few = ({x for line in panel.series for x in line.x} for panel in figure.data if isinstance(panel, Panel))
    assert whole == {0, *KS, 72} and few == {0, *[k for k in KS if k <= 24]}


def test_series_at_the_same_x_are_drawn_apart_and_their_data_stay(sweep: Results) -> None:
    figure = quality_figure(sweep)
    assert figure and isinstance(figure.panels[0], Panel)
    panel = figure.panels[0]
    drawn = [x for line, x in zip(panel.series, panel.drawn_x(), strict=True) if line.look.marker]
    assert all(list(line.x) == sorted(KS) for line in panel.series if line.look.marker)
    at_twelve = [x[sorted(KS).index(12)] for x in drawn]
    assert len(set(at_twelve)) == len(FALL) and at_twelve == sorted(at_twelve)
    assert 12 / 1.3 < at_twelve[0] < 12 < at_twelve[-1] < 12 * 1.3


def test_what_is_not_nudged_is_drawn_at_its_x() -> None:
    line = Series(Look("A"), [1, 2], [0, 0])
    other = Series(Look("B", marker=""), [1, 2], [0, 0])
    assert Panel("", Axis("x"), Axis("y"), [line, line]).drawn_x() == [[1, 2], [1, 2]]
    assert Panel("", Axis("x"), Axis("y"), [line, other], nudged=True).drawn_x() == [[1, 2], [1, 2]]
    one, two = Panel("", Axis("x"), Axis("y"), [line, line], nudged=True).drawn_x()
    assert one[0] < 1 < two[0] < one[1] < 2 < two[1]


def test_ticks_leave_room_for_each_other_and_no_heads_at_all_can_be_shown() -> None:
    paper = [132, 120, 108, 96, 84, 72, 60, 48, 36, 24, *range(12, 0, -1)]
    ticks = list(count_axis("K", paper, 144).ticks)
    assert (
        ticks[-1] == 144 and ticks[0] <= 2 and all(after / before > 1.4 for before, after in itertools.pairwise(ticks))
    )
    assert not count_axis("K", [0, 12], 144).log
    axis = log_axis("λ", [1e-8, 2e-2])
    assert axis.span and axis.span[0] < 1e-8 and axis.span[1] > 0.1 and axis.powers


def test_two_seeds_are_a_range_and_say_so(sweep: Results) -> None:
    two = quality_figure(only(sweep, lambda run: run.seed < 2))
    assert two and "Bars: the range of the two seeds." in two.caption
    assert set(series(two, "STE").notes) == {"2 seeds, in brackets their range"}
    three = quality_figure(sweep)
    assert three and "95 % bootstrap interval" in three.caption and "range" not in three.caption
    assert "fewer than six seeds" in three.caption
    one = quality_figure(only(sweep, lambda run: run.seed == 0))
    assert one and "there are no bars" in one.caption


def foreign(record: dict[str, Any]) -> None:
    """STE's runs become those of a method from elsewhere, which brings no colour."""
    if record["look"]["key"] == "ste":
        record["look"] = {"key": "my.module:Mine", "label": "Mine", "rank": 50, "slot": None, "colour": None}
        record["method"] = {"name": "my.module:Mine"}
        record["run"]["method"] = "my.module:Mine"


def test_a_method_from_elsewhere_gets_a_colour_that_is_free(sweep: Results) -> None:
    results = changed(sweep, foreign)
    line = series(quality_figure(results), "Mine")
    others = {colour_of(look) for key, look in results.looks.items() if key != "my.module:Mine"}
    assert colour_of(line.look) in PALETTE and colour_of(line.look) not in others
    table = comparison_table(results)
    assert table and [row[0] for row in table.rows][-1] == "Mine"


def test_a_colour_of_its_own_wins_and_what_cannot_be_drawn_is_replaced(sweep: Results) -> None:
    def own(record: dict[str, Any]) -> None:
        foreign(record)
        if record["look"]["key"] == "my.module:Mine":
            record["look"] |= {"colour": "#123456", "slot": 99, "marker": "unicorn", "dash": "wavy"}

    look = series(quality_figure(changed(sweep, own)), "Mine").look
    assert (colour_of(look), look.marker, look.dash) == ("#123456", "circle", "solid")

    def unsafe(record: dict[str, Any]) -> None:
        foreign(record)
        record["look"]["colour"] = "red; background: url(x)"

    results = changed(sweep, unsafe)
    assert all(colour_of(look) in PALETTE for look in results.looks.values())


def test_a_record_without_a_look_is_shown_by_its_name(sweep: Results) -> None:
    def plain(record: dict[str, Any]) -> None:
        del record["look"]

    results = changed(only(sweep, lambda run: run.key in ("dsp", "ste")), plain)
    assert [look.label for look in results.looks.values()] == ["dsp", "ste"]


@pytest.mark.parametrize(
    ("option", "value", "label"),
    [("preset", "paper", "preset paper"), ("repair", True, "repair"), ("repair", False, "without repair")],
)
def test_runs_of_their_own_are_told_apart_by_their_options(
    sweep: Results, option: str, value: str | bool, label: str
) -> None:
    """Single runs, packed together, have no axes of a sweep."""

    def alone(record: dict[str, Any]) -> None:
        del record["run"]
        record["settings"]["method_options"] = {option: value} if record["settings"]["seed"] else {}

    results = changed(only(sweep, lambda run: run.key == "ste"), alone)
    assert {results.look(variant).label for variant in results.compared} == {"STE", f"STE ({label})"}


def test_runs_without_annealing_are_not_compared_with_the_others(sweep: Results) -> None:
    assert all(run.annealed for runs in sweep.compared.values() for run in runs)
    assert any(not run.annealed for run in sweep.runs)


def test_voita_is_represented_by_the_lambda_that_comes_nearest_to_k(sweep: Results) -> None:
    for chosen in [run for run in sweep.of("voita") if run.k == 12]:
        same = [run for run in sweep.runs if (run.k, run.seed) == (12, chosen.seed)]
        off = [abs(run.own_heads[1] - 12) for run in same if run.own_heads]
        assert len(off) > 1 and chosen.own_heads and abs(chosen.own_heads[1] - 12) == min(off)


def test_a_further_axis_is_a_series_of_its_own(sweep: Results) -> None:
    def label(record: dict[str, Any]) -> None:
        if record["run"]["method"] == "ste":
            record["run"]["axes"] = {"method_options.gate_lr": 0.5 if record["run"]["seed"] else 0.1}

    figure = quality_figure(changed(sweep, label))
    assert figure and {"STE (gate_lr 0.1)", "STE (gate_lr 0.5)"} <= {look.label for look in figure.legend()}


def test_recovered_models_are_shown_beside_and_not_instead(sweep: Results) -> None:
    def recover(record: dict[str, Any]) -> None:
        if record["run"]["method"] == "michel":
            record["metrics"]["recovered"] = {"mismatched": {"accuracy": 0.8}}
            record["settings"]["recover_steps"] = 100

    figure = quality_figure(changed(sweep, recover))
    assert series(figure, "Michel, 100 more steps").y == pytest.approx([80.0] * len(KS))
    assert series(figure, "Michel").y == series(quality_figure(sweep), "Michel").y


def test_the_papers_numbers_are_all_there() -> None:
    bert, translation = (load(table.file) for table in TABLES)
    assert bert["dsp"][12] == 79.74 and bert["michel"][24] == 47.54 and bert["voita"][1] == 62.09
    assert translation["dsp"][4] == 30.33 and translation["dsp-pipelined"][24] == 20.4
    assert [len(numbers) for numbers in bert.values()] == [22] * 5
    assert [len(numbers) for numbers in translation.values()] == [20] * 5
    assert all(set(table) == {"michel", "dsp-pipelined", "voita", "ste", "dsp"} for table in (bert, translation))


def test_the_papers_numbers_stand_beside_ours_only_in_its_setting(sweep: Results) -> None:
    def as_in_the_paper(record: dict[str, Any]) -> None:
        record["before"]["heads"] = 144
        record["settings"] |= {"task": "mnli", "model": "bert-base-uncased", "max_steps": -1}

    assert published(sweep)[0] is None
    same = changed(sweep, as_in_the_paper)
    assert series(quality_figure(same), "Joint DSP, paper").y[11] == 79.74
    table = quality_table(same)
    assert table and any("[79.74]" in cell for row in table.rows for cell in row)

    def shorter(record: dict[str, Any]) -> None:
        as_in_the_paper(record)
        record["settings"]["max_steps"] = 100

    theirs, why = published(changed(sweep, shorter))
    assert theirs is None and "training was not as long" in why


def test_the_staircase_has_every_lambda(sweep: Results) -> None:
    line = series(penalty_figure(sweep), "Voita")
    assert len(line.x) == 13 and list(line.x) == sorted(line.x) and line.steps
    assert penalty_figure(only(sweep, lambda run: run.key != "voita")) is None


def test_any_method_with_a_penalty_has_a_staircase(sweep: Results) -> None:
    def other(record: dict[str, Any]) -> None:
        if record["look"]["key"] == "voita":
            record["look"] |= {"key": "mine", "label": "Mine"}

    figure = penalty_figure(changed(sweep, other))
    assert figure and [look.label for look in figure.legend()] == ["Mine", "All heads"]


def test_the_ceiling_is_what_removing_that_share_of_attention_can_give() -> None:
    assert ceiling(72, 72, 1.5) == 1
    assert ceiling(0, 72, 1.5) == pytest.approx(1.5)


def test_the_most_that_k_can_give_has_a_band(sweep: Results) -> None:
    """From each mask's own measurement without attention where there is one, otherwise from the interval of that."""
    figure = efficiency_items(sweep)[0]
    assert isinstance(figure, Figure) and "estimate" in figure.caption
    line = series(figure, "Most that K can give")
    where = list(line.x).index(12)
    assert line.band and line.low[where] == ceiling(12, 72, 1.48) and line.high[where] == ceiling(12, 72, 1.52)
    rows = [{**row, "limit": 1.2 + row["mask"] / 100} for row in sweep.efficiency[0]["rows"]]
    measured = dataclasses.replace(sweep, efficiency=({**sweep.efficiency[0], "rows": rows},))
    again = efficiency_items(measured)[0]
    assert isinstance(again, Figure)
    line = series(again, "Most that K can give")
    assert (line.low[where], line.high[where]) == (1.2, 1.29) and line.y[where] == pytest.approx(1.245)


def test_efficiency_spans_the_masks(sweep: Results) -> None:
    figure, table = efficiency_items(sweep)
    assert isinstance(figure, Figure) and isinstance(table, Table)
    line = series(figure, "Random masks")
    rows = [row["speedup"] for row in sweep.efficiency[0]["rows"] if (row["k"], row["placement"]) == (12, "random")]
    where = list(line.x).index(12)
    assert (line.low[where], line.high[where]) == (min(rows), max(rows)) and len(rows) == 10
    told = dict(zip(table.columns, next(row for row in table.rows if row[0] == "12"), strict=True))
    speed = sum(rows) / len(rows)
    assert told["Speed-up"][1:] == f"{speed:.2f} ({min(rows):.2f} to {max(rows):.2f})"
    assert told["Time saved"] == f"{100 * (1 - 1 / speed):.1f} %"


def test_speed_of_another_model_is_not_taken_for_this_one(sweep: Results) -> None:
    figure = tradeoff_figure(sweep)
    assert figure and [panel.title for panel in figure.panels] == ["Speed", "Size"]
    figure = tradeoff_figure(dataclasses.replace(sweep, efficiency=({**sweep.efficiency[0], "heads": 144},)))
    assert figure and [panel.title for panel in figure.panels] == ["Size"] and "144 heads" in figure.caption


def test_between_measured_points_lies_a_straight_line_and_nothing_beyond() -> None:
    assert interpolate({2: 1.0, 4: 3.0}, 3) == 2.0
    assert interpolate({2: 1.0, 4: 3.0}, 4) == 3.0
    assert interpolate({2: 1.0, 4: 3.0}, 5) is None and interpolate({}, 1) is None


def test_the_rows_of_the_distribution_sum_to_k(translation: Results) -> None:
    figure = distribution_figure(translation)
    assert figure and len(figure.panels) == 6
    for heat in figure.panels:
        assert isinstance(heat, Heat) and heat.groups == [(kind, 6) for kind in ATTENTIONS]
        assert list(heat.columns) == [
            str(layer) for _ in ATTENTIONS for layer in range(6)
        ]  # from 0, as in `kheads heads`
        for label, row in zip(heat.rows, heat.values, strict=True):
            assert sum(value or 0 for value in row) == pytest.approx(int(label))


def test_sites_without_a_list_are_read_from_their_names(translation: Results) -> None:
    def older(record: dict[str, Any]) -> None:
        del record["before"]["sites"]
        record["kept"] = {site.replace("cross", "encoder_attn"): heads for site, heads in record["kept"].items()}

    found, listed = changed(translation, older).runs[0].columns, translation.runs[0].columns
    assert [(one.kind, one.layer, one.heads) for one in found] == [(one.kind, one.layer, one.heads) for one in listed]


def test_agreement_is_one_with_the_same_heads(sweep: Results) -> None:
    reference = {run.k: run.record["kept"] for run in sweep.of("dsp")}

    def same(record: dict[str, Any]) -> None:
        if record["run"]["k"]:
            record["kept"] = reference[record["run"]["k"]]

    figure = agreement_figure(changed(sweep, same))
    assert figure and isinstance(figure.panels[0], Heat)
    assert {value for row in figure.panels[0].values for value in row} == {1.0}


def test_the_share_of_final_heads_ends_at_one(sweep: Results) -> None:
    for run in sweep.of("dsp"):
        shares = chosen_shares(run)
        assert shares[max(shares)] == 1 and all(0 <= share <= 1 for share in shares.values())


def test_dynamics_compare_runs_with_and_without_annealing(sweep: Results) -> None:
    figures = dynamics_figures(sweep)
    assert [figure.key for figure in figures] == ["dynamics-6", "dynamics-12", "dynamics-48"]
    for figure in figures:
        assert [panel.title for panel in figure.panels] == ["With annealing", "Without annealing"]
        assert {look.label for look in figure.legend()} == {"Heads already as in the end", "Quality", "Temperature τ"}
        assert all(isinstance(panel, Panel) and panel.second and panel.second.log for panel in figure.panels)


def test_dynamics_of_several_methods_have_files_of_their_own(sweep: Results) -> None:
    """Also of a method from elsewhere, whose key and settings no file could be named after."""

    def other(record: dict[str, Any]) -> None:
        if record["look"]["key"] == "dsp" and record["settings"]["k"] == 6:
            record["look"] |= {"key": "my.module:Mine", "label": "Mine"}
            record["run"]["axes"] = {**record["run"]["axes"], "start": "a/b"}

    keys = [figure.key for figure in dynamics_figures(changed(sweep, other))]
    assert keys == ["dynamics-6-my.module-Mine-start-a-b", "dynamics-12-dsp", "dynamics-48-dsp"]


def test_dynamics_without_evaluation_say_so(sweep: Results) -> None:
    def not_evaluated(record: dict[str, Any]) -> None:
        log = record["history"].get("gates", [])
        record["history"] = {"gates": [entry for entry in log if "kept" in entry]}

    figure = dynamics_figures(changed(sweep, not_evaluated))[0]
    assert "Quality" not in {look.label for look in figure.legend()}
    assert "not evaluated while they trained" in figure.caption


def test_table_1_is_computed(sweep: Results) -> None:
    table = comparison_table(sweep)
    assert table
    rows = {row[0]: row for row in table.rows}
    assert rows["Joint DSP"][1] == "0" and rows["Pipelined DSP"][1] == "19,200"  # 600 steps of batch 32
    assert float(rows["Voita"][3]) > 0 and {row[4] for row in table.rows} == {"0"}
    michel = [run.report["extra_gradients"] for run in sweep.of("michel")]
    assert rows["Michel"][1] == f"{sum(michel) / len(michel):,.0f}" and rows["Prune and retrain"][1] == "2,000"
    retrained = sweep.of("retrain")[0]
    assert retrained.steps == STEPS
    assert extra_seconds(retrained, {retrained.seed: 600.0}) == 550 - 600 and extra_seconds(retrained, {}) is None


def test_extra_seconds_follow_from_who_trained_the_model(sweep: Results) -> None:
    unpruned = dict.fromkeys(range(3), 600.0)

    def timed(record: dict[str, Any]) -> None:
        phases = {"train": 500.0, "search-0": 30.0, "gates": 70.0, "recover": 1000.0}
        record["report"]["seconds"] = phases

    results = changed(sweep, timed)
    (joint, *_), (pipelined, *_) = results.of("dsp"), results.of("dsp-pipelined")
    assert extra_seconds(joint, unpruned) == 0.0 and extra_seconds(pipelined, unpruned) == 100.0
    assert extra_seconds(pipelined, {}) == 100.0 and extra_seconds(joint, {}) is None

    def shared(record: dict[str, Any]) -> None:
        timed(record)
        record["run"]["whole_from"] = "another"

    assert extra_seconds(changed(sweep, shared).of("dsp")[0], unpruned) is None

    def unknown(record: dict[str, Any]) -> None:
        record["report"] = {"seconds": {}, "extra_gradients": None}

    table = comparison_table(changed(sweep, unknown))
    assert table and {(row[1], row[2]) for row in table.rows} == {(NO_NUMBER, NO_NUMBER)}


def test_runs_set_apart_are_paired_with_their_own_kind(sweep: Results) -> None:
    """Dynamics of one preset are not compared with those of another, and comparisons keep the plain runs."""

    def apart(record: dict[str, Any]) -> None:
        about = record["run"]
        if about["method"] == "dsp" and about["k"] == 12 and about["seed"]:
            # Another preset is another method; how often to look is not.
            about["axes"] = {**about["axes"], "preset": "paper", "eval_steps": 28}

    results = changed(sweep, apart)
    twelve = [figure for figure in dynamics_figures(results) if figure.key.startswith("dynamics-12")]
    assert [figure.caption.partition(" with")[0] for figure in twelve] == ["Joint DSP", "Joint DSP (preset paper)"]
    assert len({figure.key for figure in twelve}) == 2
    assert {run.seed for run in results.of("dsp") if run.k == 12} == {0}
    plain, other = (series(quality_figure(results), name).look for name in ("Joint DSP", "Joint DSP (preset paper)"))
    assert colour_of(other) == colour_of(plain) and (other.marker, other.dash) != (plain.marker, plain.dash)
    table = comparison_table(results)
    assert table and [row[0] for row in table.rows].count("Joint DSP") == 1 and len(table.rows) == len(FALL)


def test_a_mean_of_the_staircase_is_over_the_same_seeds_everywhere(sweep: Results) -> None:
    """A seed that ran with one lambda alone would bend the line there."""
    alone = only(sweep, lambda run: run.seed == 0 or "weight" not in run.about["axes"])
    line = series(penalty_figure(alone), "Voita")
    assert len(line.x) == 13 and set(line.notes) == {"1 seed"}
