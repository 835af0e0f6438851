"""Draw every picture and table from the committed results, in seconds.

    make figures

The pictures show utility against leakage: one panel for methods, one for objectives, one for methods with a
changed part. Error bars are 95 % intervals over splits, where there are at least three. Solid markers are the
best of the paper's four attackers, hollow markers the strongest of all nine. Faint markers have fewer splits
than the method's other points.
"""

import json
import pathlib
import sys
import textwrap
from collections.abc import Iterator, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import claims  # noqa: E402
from run import summary  # noqa: E402

PANELS = {"methods": "Methods", "objectives": "Privacy objectives", "parts": "One part changed"}
FIGURES = {
    "": ("methods", "objectives"),
    "_parts": ("parts",),
}  # panels by the end of a name
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#7F3C8D",
    "#444444",
    "#8C564B",
    "#7A9A01",
    "#00868B",
    "#B0413E",
    "#BCBD22",
    "#1F3A93",
    "#9C755F",
    "#E377C2",
)
MARKERS = "osD^vPX*<>hpd8H"
HEADLINES = {"har": "HAR", "hapt": "HAPT frames", "yaleb": "YaleB", "cmu_faces": "CMU faces"}
TICKS = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
DEPTH = 0.2  # drawn range of the utility; a collapsed run would flatten all others
BEGIN, END = "<!-- written by make figures -->", "<!-- end -->"
# The picture of the project's README: method, label, where the label goes, colour.
OVERVIEW = (
    ("full-dimensional", "x, the raw features", (0, 9), "center", "#444444"),
    ("linear erasure", "linear erasure", (0, -16), "center", "#CC79A7"),
    ("PCA", "principal components", (0, -16), "center", "#CC79A7"),
    ("DUCA", "DUCA", (-8, -12), "right", "#CC79A7"),
    ("NN-MMD", "z, the paper's linear encoder", (14, -14), "left", "#0072B2"),
    ("NN-MMD, two layers, scale-free", "z, two layers and a scale-free kernel", (10, -2), "left", "#D55E00"),
)


def main() -> None:
    """Draw the results of the default folder, or of the one given."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    results = read(folder)
    for content in results.values():
        for figure, panels in figures(content):
            draw(content, folder / figure, panels)
            print(f"drew {figure}")
    title = (
        "# Results\n\n`make figures` writes this page from the JSON files beside it. Minutes are wall-clock "
        "times on a machine that often ran other work; some runs were paused."
    )
    parts = [title, claims.table(results), *map(table, results.values())]
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if folder == HERE / "results":
        draw_overview(results["har"], folder / "har_overview.png")
        readme = HERE / "README.md"
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        readme.write_text(f"{before}{BEGIN}\n{headline(results)}\n{END}{after}", encoding="utf-8")


def read(folder: pathlib.Path) -> dict[str, dict]:
    """Read the results of a folder, by file name."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: _best_first(json.loads(path.read_text(encoding="utf-8"))) for path in paths}


def _best_first(content: dict) -> dict:
    """Order the methods by their best points."""
    gains = {method: _gain(row) for method, row in best_points(content).items()}
    methods = sorted(
        content["methods"].items(), key=lambda item: gains.get(item[1]["label"], -1.0), reverse=True
    )
    return content | {"methods": dict(methods)}


def best_points(content: dict) -> dict[str, dict]:
    """Return, for each method, the point with the best utility minus leakage.

    Only points with the most splits count, because a single split may be lucky.
    """
    by_method: dict[str, list[dict]] = {}
    for row in summary(content):
        if None not in _place(row):
            by_method.setdefault(row["method"], []).append(row)
    return {
        method: max(rows, key=lambda row: (row["splits"], _gain(row))) for method, rows in by_method.items()
    }


def _gain(row: dict) -> float:
    return row["utility"] - row["strongest"]


def figures(content: dict) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of an experiment's pictures, with their panels."""
    held = [panel for entry in content["methods"].values() for panel in entry["panels"]]
    for end, panels in FIGURES.items():
        # A single method has no comparison.
        if own := [panel for panel in panels if held.count(panel) > 1 or panel != "parts" and panel in held]:
            yield f"{content['name']}{end}.png", own


def draw(content: dict, path: pathlib.Path, panels: Sequence[str]) -> None:
    """Draw one figure, with a panel for each kind of comparison."""
    labels = [e["label"] for e in content["methods"].values() if set(panels) & set(e["panels"])]
    rows = [row for row in summary(content) if row["method"] in labels]
    size = (6.2 * len(panels), 4.8)
    figure, axes = plt.subplots(
        1, len(panels), figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    floor = [row["label_alone"] for row in rows if row["label_alone"] is not None]
    majority = [row["majority"] for row in rows if row["majority"] is not None]
    best = max((row["utility"] for row in rows if row["utility"] is not None), default=1.0)
    # Methods of several panels come first and keep their colour.
    shared = [entry["label"] for entry in content["methods"].values() if len(entry["panels"]) > 1]
    for axis, panel in zip(axes[0], panels, strict=True):
        below = []
        entries = [entry for entry in content["methods"].values() if panel in entry["panels"]]
        own = [entry["label"] for entry in entries if entry["panels"] == [panel]]
        for entry in entries:
            number = (shared + own).index(entry["label"])
            points = [row for row in rows if row["method"] == entry["label"] and None not in _place(row)]
            points.sort(key=lambda row: row["adversary"])
            below += [row for row in points if row["utility"] < best - DEPTH]
            _curve(
                axis, points, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], entry["label"]
            )
        _mark_limits(axis, floor, majority, best)
        axis.set_title(PANELS[panel])
        texts = [f"{row['method']} {row['utility']:.2f} at {row['adversary']:.3f}" for row in below]
        texts = list(dict.fromkeys(texts))  # collapsed points are often equal
        axis.set_xlabel(
            ("leakage: attackers' test accuracy on s" if majority else "attackers' R²")
            + (textwrap.fill(f"\nbelow: {'; '.join(texts)}", 95, replace_whitespace=False) if texts else ""),
            fontsize=8,
        )
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="best")
    axis = axes[0][0]  # all panels share its limits
    shown = [row["utility"] for row in rows if None not in _place(row) and row["utility"] >= best - DEPTH]
    margin = 0.06 * max(best - min(shown, default=best), 0.02)
    # Limits follow the points; an interval of few splits may reach beyond 1.
    axis.set_ylim(min(shown, default=best) - margin, best + margin)
    if majority:  # curves differ at the private end, a small part of the range
        axis.set_xscale("log")
        leaks = [row[name] for row in rows if None not in _place(row) for name in ("adversary", "strongest")]
        low = 0.8 * max(min(leaks + majority), 0.01)  # a logarithmic axis has no 0
        high = 1.15 * max(leaks + majority)
        axis.set_xlim(low, high)
        ticks = [t for t in TICKS if low <= t <= high]
        axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axis.set_xticks([], minor=True)
    axis.set_ylabel("utility (test accuracy)" if majority else "utility (R²)")
    figure.suptitle(f"{content['title']} ({_splits(rows)})")
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def draw_overview(content: dict, path: pathlib.Path) -> None:
    """Draw the README's picture: a few methods, with labels beside the points instead of a legend."""
    rows = [row for row in summary(content) if None not in _place(row) and row["utility"] > 0.9]
    most = max(row["splits"] for row in rows)
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    for method, label, offset, side, colour in OVERVIEW:
        points = [row for row in rows if row["method"] == method and row["splits"] == most]
        points.sort(key=lambda row: row["strongest"])
        x, y = ([row[name] for row in points] for name in ("strongest", "utility"))
        axis.plot(x, y, "o-", color=colour, markersize=6, linewidth=1.5)
        at = -1 if "two layers" in method else len(points) // 2
        axis.annotate(
            label,
            (x[at], y[at]),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            color=colour,
            fontsize=9,
        )
    majority = max(row["majority"] for row in rows)
    axis.axvline(majority, color="0.5", linestyle=":", linewidth=1)
    axis.annotate("largest user", (majority, 0.951), rotation=90, xytext=(-11, 0), textcoords="offset points",
                  color="0.4", fontsize=8)  # fmt: skip
    axis.set_xlabel("user, named by the strongest of nine attackers (accuracy): lower is more private")
    axis.set_ylabel("activity (accuracy)")
    axis.set_xlim(0, 1)
    axis.set_ylim(0.95, 1.0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    axis.set_title(f"{content['title']}, mean of {most} splits", fontsize=10)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _mark_limits(axis, floor: list[float], majority: list[float], best: float) -> None:
    """Draw lines at the floors of leakage, and a star at the best possible point."""
    if majority:
        axis.axvline(max(majority), color="0.5", linestyle=":", linewidth=1, label="largest class of s")
    if floor:
        axis.axvline(max(floor), color="0.5", linestyle="--", linewidth=1, label="baseline given y")
        # No attacker does worse than the larger of the two floors.
        axis.plot(max(*floor, *majority, 0.0), best, marker="*", markersize=15, color="gold",
                  markeredgecolor="k", linestyle="none", label="ideal", zorder=5)  # fmt: skip


def _place(row: dict) -> tuple:
    return row["utility"], row["adversary"], row["strongest"]


def _curve(axis, rows: list[dict], colour: str, marker: str, label: str) -> None:
    """Join the points with the most splits; draw those with fewer faintly, as their means do not compare."""
    most = max((row["splits"] for row in rows), default=0)
    fewer = [row for row in rows if row["splits"] < most]
    rows = [row for row in rows if row["splits"] == most]
    axis.plot([row["adversary"] for row in fewer], [row["utility"] for row in fewer], color=colour,
              marker=marker, markersize=4, alpha=0.35, linestyle="none")  # fmt: skip
    x, y = [row["adversary"] for row in rows], [row["utility"] for row in rows]
    halves = [[_half(row, name) or 0.0 for row in rows] for name in ("adversary", "utility")]
    axis.errorbar(x, y, xerr=halves[0], yerr=halves[1], color=colour, marker=marker, markersize=5,
                  linewidth=1.2, elinewidth=0.7, capsize=2, label=label)  # fmt: skip
    strongest = [row["strongest"] for row in rows]
    axis.plot(strongest, y, color=colour, marker=marker, markersize=5, fillstyle="none", linestyle="none")


def headline(results: dict[str, dict]) -> str:
    """Return the table of the best point of each method, without those that change one part."""
    lines = [
        "| data | released | privacy weight | splits | utility | the paper's four | strongest of nine |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (name for name in HEADLINES if name in results):
        best = best_points(results[name])
        for entry in results[name]["methods"].values():
            if entry["panels"] == ["parts"] or entry["label"] not in best:
                continue
            row = best[entry["label"]]
            weight = f"{row['privacy_weight']:.4g}" if row["privacy_weight"] else ""
            cells = [_plus_minus(row, key) for key in ("utility", "adversary", "strongest")]
            line = [HEADLINES[name], row["method"], weight, str(row["splits"]), *cells]
            lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines)


def table(content: dict) -> str:
    """Return the summary as Markdown."""
    lines = [
        f"## {content['title']}",
        "",
        *(f"![{content['title']}]({figure})\n" for figure, _ in figures(content)),
        "| method | weight | splits | utility | the paper's four | strongest of all | given y |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in summary(content):
        cells = [_plus_minus(row, name) for name in ("utility", "adversary", "strongest")]
        floor = "" if row["label_alone"] is None else f"{row['label_alone']:.3f}"
        cells = [row["method"], f"{row['privacy_weight']:.4g}", str(row["splits"]), *cells, floor]
        lines.append(f"| {' | '.join(cells)} |")
    cost = [
        "",
        "| method | splits | points | minutes of training | minutes in all | cores | peak memory, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in content["methods"].values():
        runs = entry["runs"].values()
        points = sum(len(done["points"]) for done in runs)
        cores = " or ".join(sorted({done["machine"].split()[0] for done in runs}))
        minutes = [sum(done["seconds"][kind] for done in runs) / 60 for kind in ("training", "all")]
        peak = max((done["peak_megabytes"] or 0 for done in runs), default=0)
        cells = [entry["label"], len(runs), points, *(f"{m:.1f}" for m in minutes), cores, peak]
        cost.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines + cost)


def _half(row: dict, name: str) -> float | None:
    """Return half the width of an interval; None for two splits, where it is nine times their distance."""
    return row[f"{name}_half"] if row["splits"] >= 3 else None


def _plus_minus(row: dict, name: str) -> str:
    half = _half(row, name)
    if row[name] is None:
        return "none"
    return f"{row[name]:.3f}" + ("" if half is None else f" ± {half:.3f}")


def _splits(rows: list[dict]) -> str:
    counts = sorted({row["splits"] for row in rows})
    if counts == [1]:
        return "one split"
    return f"{counts[0]} splits" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} splits"


if __name__ == "__main__":
    main()
