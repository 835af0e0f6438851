"""The trade-off curves as a PNG, for a README or a paper."""

import io
import itertools
import math
import warnings
from typing import Any

BLUE, PALE, GREY, GOLD = "#1d5fb8", "#b5cdec", "#737b86", "#f2b705"


def make_picture(content: dict[str, Any]) -> bytes:
    """Draws a panel for each private variable; the same content gives the same bytes.

    Args:
      content: of `make_content`.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    attributes = content["attributes"] or [None]
    title = f"{content['results']['data']['name']}, {content['objective']}"
    buffer = io.BytesIO()
    with style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name may be in any script
        across = min(2, len(attributes))
        down = math.ceil(len(attributes) / across)
        figure = Figure(figsize=(7.0 * across, 4.9 * down), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).flat
        for axes, attribute in itertools.zip_longest(panels, attributes):
            if attribute is None:
                axes.set_axis_off()
            else:
                _draw(axes, attribute, content["utility"])
        if not content["attributes"]:
            figure.text(0.5, 0.5, "nothing was audited yet", ha="center", va="center", color=GREY)
        figure.suptitle(_plain(title), fontsize=12)
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _draw(axes: Any, attribute: dict[str, Any], utility: dict[str, str]) -> None:
    points = attribute["points"]
    shown = [point for point in points if point is not None]
    for line, style, label in (
        (attribute["guess"], ":", "blind guess"),
        (attribute["floor"], "--", f"what {utility['name']} alone says"),
    ):
        if line is not None:
            axes.axvline(line, color=GREY, linestyle=style, linewidth=1.1, label=_plain(label))
    x, y, z = ([point[key][0] for point in shown] for key in ("leakage", "utility", "strongest"))
    front = [points[i] for i in attribute["front"]]
    axes.plot([p["leakage"][0] for p in front], [p["utility"][0] for p in front], color=BLUE, linewidth=1.4)
    axes.errorbar(
        x,
        y,
        xerr=_bars(shown, "leakage"),
        yerr=_bars(shown, "utility"),
        color=BLUE,
        marker="o",
        markersize=6,
        linestyle="none",
        ecolor=PALE,
        elinewidth=1.2,
        label="the paper's attackers",
    )
    axes.plot(
        z,
        y,
        color=BLUE,
        marker="o",
        markersize=8,
        fillstyle="none",
        linestyle="none",
        label="strongest of all",
    )
    if attribute["ideal"] is not None:
        axes.plot(
            *attribute["ideal"],
            color=GOLD,
            marker="*",
            markersize=15,
            markeredgecolor="black",
            markeredgewidth=0.7,
            linestyle="none",
            label="ideal",
            zorder=5,
        )
    axes.set_xlim(attribute["x"])
    axes.set_ylim(attribute["y"])
    axes.set_xlabel(_plain(f"what attackers learn of {attribute['label']} (test {attribute['score']})"))
    axes.set_ylabel(_plain(f"utility: {utility['name']} (test {utility['score']})"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)


def _bars(points: list[dict[str, Any]], key: str) -> list[list[float]]:
    """Distances to the ends of the intervals, 0 where there is one seed."""
    ends = [point[key] if len(point[key]) > 1 else point[key] * 3 for point in points]
    return [[value - low for value, low, _ in ends], [high - value for value, _, high in ends]]


def _plain(text: str) -> str:
    """A name is never mathematics, and has room to be read."""
    text = " ".join(text.split())
    return (text if len(text) <= 50 else f"{text[:47]}...").replace("$", r"\$")
