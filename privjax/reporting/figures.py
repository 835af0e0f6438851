"""Charts of a report: Plotly figures for the page, a PNG for documents."""

import html
import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privjax.curves import CurvePoint, Mean, format_weight
from privjax.reporting.summary import Attribute, Summary
from privjax.sweeping import History

_BLUE, _PALE, _GREY, _GOLD, _RED = "#1d5fb8", "#b5cdec", "#737b86", "#f2b705", "#c2410c"
_PAPER, _STRONGEST = "paper's attackers", "strongest attacker"
_LOWEST_R2 = -0.25  # of an axis: less would flatten the rest of a chart
_MAX_EPOCHS = 250  # of a training chart, which is not wider
_MAX_VALUES = 100_000  # of all training charts: about 1.5 MB of the page


def format_score(value: float | Mean | None) -> str:
    """Format a score, or a mean with its interval, with three digits."""
    if isinstance(value, Mean):
        ends = "" if value.interval is None else " [{}, {}]".format(*map(format_score, value.interval))
        return format_score(value.value) + ends
    return "none" if value is None else f"{value:.3f}".replace("-", "\u2212")


def curve_figure(attribute: Attribute, summary: Summary) -> dict[str, Any]:
    """Draw the trade-off of one private variable with Plotly.

    The `customdata` of a marker is its member. The last trace is empty: the page fills it with the selected
    member and the other members of its weight.
    """
    from plotly.graph_objects import Figure

    points, chosen = attribute.curve.points, attribute.curve.operating_point()
    leakage, strongest, utility = _columns(points)
    x_range, y_range = _ranges(attribute, summary)
    figure = Figure(layout=make_layout(f"leakage of {attribute.label} (test {attribute.score})"))
    figure.update_xaxes(range=x_range)
    figure.update_yaxes(range=y_range, title_text=f"utility (test {summary.utility_score})")
    for dash, (name, x) in zip(("dot", "dash"), attribute.limits.items(), strict=False):
        style = {"mode": "lines", "line": {"color": _GREY, "dash": dash, "width": 1.5}, "hoverinfo": "name+x"}
        figure.add_scatter(x=[x, x], y=y_range, name=_plain(name), **style)
    x, _, y = _columns(attribute.curve.front)
    figure.add_scatter(x=x, y=y, mode="lines", line_color=_BLUE, hoverinfo="skip", showlegend=False)
    shared = {"mode": "markers", "y": utility, "hoverinfo": "text"}
    shared |= {"customdata": list(map(int, points)), "hovertext": list(map(_hover_text, points))}
    hollow = {"color": "white", "size": 12, "line": {"color": _BLUE, "width": 1.5}}
    figure.add_scatter(x=strongest, marker=hollow, name=_STRONGEST, **shared)
    solid = {"color": _BLUE, "opacity": 1, "size": [13 if point is chosen else 9 for point in points]}
    solid["symbol"] = ["diamond" if point is chosen else "circle" for point in points]
    bars = {"error_x": _error_bars(points, "leakage"), "error_y": _error_bars(points, "utility")}
    figure.add_scatter(x=leakage, marker=solid, name=_PAPER, **bars, **shared)
    star = {"symbol": "star", "size": 17, "color": _GOLD, "line": {"color": "black", "width": 0.7}}
    x, y = _ideal(attribute)
    figure.add_scatter(x=x, y=y, mode="markers", marker=star, name="ideal", hoverinfo="name")
    ring = {"color": _RED, "opacity": 1, "line": {"color": _RED, "width": 2.5}}
    figure.add_scatter(mode="markers", marker=ring, name="selected, other seeds", hoverinfo="text")
    return figure.to_plotly_json()


def member_places(attribute: Attribute, summary: Summary) -> dict[int, dict[str, Any]]:
    """Return the coordinates and the text of each audited member in the chart."""
    places = {}
    for member, record in summary.members.items():
        found, utility = summary.find(member, attribute), record.utility.test
        leakage = None if found is None else found.leakage()
        if leakage is not None and utility is not None:
            text = f"utility {format_score(utility)}, leakage {format_score(leakage)}"
            places[member] = {
                "x": leakage,
                "y": utility,
                "text": f"member {member}, seed {record.seed}<br>{text}",
            }
    return places


def training_traces(history: History, *, members: int) -> list[list[dict[str, Any]]]:
    """Make the Plotly traces of a member's charts; with more members on the page, each has fewer epochs."""
    losses, measures = history.losses, history.measures
    epochs = len(losses.objective)
    number = min(max(_MAX_VALUES // (8 * members), 10), _MAX_EPOCHS, epochs)
    shown = np.unique(np.linspace(0, epochs - 1, number).round().astype(int))  # with the first and the last
    charts = (
        losses._asdict(),
        {"utility": measures.utility, "ridge probe": measures.probe},
        {"effective rank": measures.effective_rank, "live units": measures.live_units},
    )
    return [list(_traces(lines, shown)) for lines in charts]


def _traces(lines: Mapping[str, Any], shown: np.ndarray) -> Iterator[dict[str, Any]]:
    for name, line in lines.items():
        if isinstance(line, Mapping):
            yield from _traces({f"{name} of {key}": each for key, each in line.items()}, shown)
        elif np.any(line) or name in ("utility", "privacy", "objective"):  # the others may be unused
            values = np.asarray(line, float)[shown]
            y = [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
            yield {"name": _plain(name), "x": (shown + 1).tolist(), "y": y}


def draw_png(summary: Summary) -> bytes:
    """Draw the curves with Matplotlib; the same numbers give the same bytes."""
    from matplotlib import style
    from matplotlib.figure import Figure

    title = f"{summary.run.data.name}, {summary.run.config.objective['name']}"
    rows, columns = math.ceil(len(summary.attributes) / 2) or 1, min(2, len(summary.attributes)) or 1
    buffer = io.BytesIO()
    with style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may be in any script
        figure = Figure(figsize=(7.0 * columns, 4.9 * rows), layout="constrained")
        for number, attribute in enumerate(summary.attributes, 1):
            _draw_panel(figure.add_subplot(rows, columns, number), attribute, summary)
        figure.suptitle(_plain(title, "$") if summary.attributes else "no member is audited yet")
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _draw_panel(axes: Any, attribute: Attribute, summary: Summary) -> None:
    points = attribute.curve.points
    leakage, strongest, utility = _columns(points)
    for style, (name, x) in zip((":", "--"), attribute.limits.items(), strict=False):
        axes.axvline(x, color=_GREY, linestyle=style, linewidth=1.1, label=_plain(name, "$"))
    x, _, y = _columns(attribute.curve.front)
    axes.plot(x, y, color=_BLUE, linewidth=1.4)
    x_bars, y_bars = (_error_bars(points, name) for name in ("leakage", "utility"))
    bars = {"xerr": [x_bars["arrayminus"], x_bars["array"]], "yerr": [y_bars["arrayminus"], y_bars["array"]]}
    axes.errorbar(leakage, utility, fmt="o", color=_BLUE, ecolor=_PALE, elinewidth=1.2, label=_PAPER, **bars)
    axes.plot(strongest, utility, "o", color=_BLUE, markersize=8, fillstyle="none", label=_STRONGEST)
    star = {"markersize": 15, "markeredgecolor": "black", "markeredgewidth": 0.7, "zorder": 5}
    axes.plot(*_ideal(attribute), "*", color=_GOLD, label="ideal", **star)
    x_range, y_range = _ranges(attribute, summary)
    axes.set(xlim=x_range, ylim=y_range)
    axes.set_xlabel(_plain(f"leakage of {attribute.label} (test {attribute.score})", "$"))
    axes.set_ylabel(_plain(f"utility: {summary.utility} (test {summary.utility_score})", "$"))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)


def _columns(points: Sequence[CurvePoint]) -> list[list[float]]:
    return [[getattr(p, name).value for p in points] for name in ("leakage", "strongest", "utility")]


def _ideal(attribute: Attribute) -> tuple[list[float], list[float]]:
    """Leakage and utility of the best release: no attacker scores below a limit."""
    utility = [point.utility.value for point in attribute.curve.points]
    return ([max(attribute.limits.values())], [max(utility)]) if utility else ([], [])


def _error_bars(points: Sequence[CurvePoint], name: str) -> dict[str, Any]:
    """Error bars in Plotly's terms; 0 for a single seed."""
    means = [getattr(point, name) for point in points]
    ends = [mean.interval or (mean.value, mean.value) for mean in means]
    above = [high - mean.value for mean, (_, high) in zip(means, ends, strict=True)]
    below = [mean.value - low for mean, (low, _) in zip(means, ends, strict=True)]
    return {"array": above, "arrayminus": below, "color": _PALE, "thickness": 1.5, "width": 0}


def _ranges(attribute: Attribute, summary: Summary) -> list[list[float]]:
    """Axes around members, means and limits: the intervals of few seeds, which are wide, are cut."""
    leakage, strongest, utility = _columns(attribute.curve.points)
    places = member_places(attribute, summary).values()
    leakage += [*strongest, *attribute.limits.values(), *(place["x"] for place in places)]
    utility += [place["y"] for place in places]
    ranges = []
    for values in (leakage, utility):
        high = max(values, default=1.0)
        low = min((value for value in values if value >= _LOWEST_R2), default=high)
        margin = max(0.15 * (high - low), 0.03)
        ranges.append([low - margin, high + margin])
    return ranges


def _hover_text(point: CurvePoint) -> str:
    seeds = f"{point.utility.seeds} seed{'' if point.utility.seeds == 1 else 's'}"
    scores = {"utility": point.utility, _PAPER: point.leakage, _STRONGEST: point.strongest}
    lines = [f"{name} {format_score(score)}" for name, score in scores.items()]
    return "<br>".join([f"<b>weight {_plain(format_weight(point.privacy_weight))}</b> ({seeds})", *lines])


def make_layout(x_title: str) -> dict[str, Any]:
    """Return a Plotly layout with dark ink on a transparent ground; the page inverts it for a dark screen."""
    axis = {"gridcolor": "#eceff2", "linecolor": "#dfe3e8", "tickcolor": "#dfe3e8", "ticks": "outside"}
    axis |= {"showline": True, "zeroline": False, "fixedrange": True, "automargin": True, "nticks": 7}
    return dict(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=[_BLUE, "#0f766e", _RED, "#9333ea", _GOLD, _GREY],
        font={"family": "system-ui, Segoe UI, Roboto, sans-serif", "size": 12, "color": "#5b6470"},
        hoverlabel={"bgcolor": "white", "bordercolor": "#dfe3e8", "font_color": "#1b1f24", "align": "left"},
        hovermode="closest",
        dragmode=False,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
        margin={"l": 48, "r": 8, "t": 8, "b": 40},
        xaxis={**axis, "title_text": _plain(x_title)},
        yaxis=axis,
    )


def _plain(text: str, special: str = "") -> str:
    """Cut a name that is wider than a chart, and escape Plotly's markup or Matplotlib's mathematics."""
    text = f"{' '.join(text.split()):.60}"
    return text.replace("$", r"\$") if special else html.escape(text, quote=False)
