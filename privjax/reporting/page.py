"""The files of a report: a page, a Markdown table and a PNG."""

import base64
import json
import math
import os
import re
import shlex
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from privjax.auditing import Attack, load_reports
from privjax.curves import format_weight
from privjax.exporting import describe
from privjax.extras import import_optional
from privjax.files import replacing
from privjax.reporting import figures
from privjax.reporting.summary import Summary, baseline_given_y, constant_guess, summarise
from privjax.sweeping import load_history, load_results


def report(workdir: str | os.PathLike[str], *, to: str | os.PathLike[str] | None = None) -> Path:
    """Write a report of a sweep: `report.html`, `report.md` and `report.png`.

    The page is one file that needs no network. It shows the trade-off curve and, for the member that its
    reader selects, the audit, the training and the command that exports the encoder. A sweep can be reported
    on while it runs and before it is audited. The same results give the same files.

    Args:
      workdir: The sweep's folder.
      to: The folder to write into. If None, `report` in the sweep's folder.

    Returns:
      The path of the page.

    Example:
      >>> import tempfile, privjax
      >>> with tempfile.TemporaryDirectory() as workdir:
      ...     _ = privjax.sweep("digits", privacy_weights=[0.0], num_epochs=1, workdir=workdir)
      ...     print(privjax.report(workdir).name)
      report.html
    """
    for module in ("jinja2", "plotly.offline", "matplotlib.figure"):
        import_optional(module, extra="report")
    summary = _read(workdir)
    png = figures.draw_png(summary)
    texts = {"report.html": render_html(summary, png), "report.md": render_markdown(summary)}
    folder = (Path(workdir) / "report" if to is None else Path(to)).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"to must be a folder, but {folder} is a file: give another path.") from None
    # A name with a lone surrogate cannot be encoded.
    contents = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    for name, content in {"report.png": png, **contents}.items():
        with replacing(folder / name) as part:
            part.write_bytes(content)
    return folder / "report.html"


def render_html(summary: Summary, png: bytes = b"", *, plotly: str | None = None) -> str:
    """Render the page as one file, with the PNG for readers without scripts and the source of plotly.js."""
    from plotly.offline import get_plotlyjs

    return _render(
        _asset("page.html"),
        summary,
        autoescape=True,
        png=base64.b64encode(png).decode(),
        content=_content(summary),
        settings=_settings(summary),
        plotly=get_plotlyjs() if plotly is None else plotly,
        script=_asset("page.js"),
    )


def render_markdown(summary: Summary) -> str:
    """Render a table for each private variable, with one row for each privacy weight."""
    return _render(_MARKDOWN, summary, autoescape=False)


def _read(workdir: str | os.PathLike[str]) -> Summary:
    run = load_results(workdir)
    if not run.members:
        raise ValueError(f"{workdir} has no finished member yet: report on it once it has one.")
    histories, header = {}, None
    for record in run.members:
        try:
            histories[record.member] = load_history(workdir, record.member)
            header = header or describe(workdir, record.member)
        except (ValueError, OSError):  # damaged, or a user's own networks: the report does not need it
            continue
    return summarise(os.fspath(workdir), run, load_reports(workdir), histories, header)


def _render(template: str, summary: Summary, *, autoescape: bool, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        autoescape=autoescape, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"baseline": baseline_given_y, "guess": constant_guess}
    environment.filters |= {"ranked": partial(sorted, key=_rank), "remarks": _remarks, "count": _count}
    environment.filters |= {"score": figures.format_score, "weight": format_weight, "digits": _digits}
    environment.filters["plain"] = _escape_markdown
    values |= {"workdir": shlex.quote(summary.workdir), "command": lambda member: _command(summary, member)}
    return environment.from_string(template).render(**values, summary=summary, run=summary.run)


def _content(summary: Summary) -> dict[str, Any]:
    """Content for the script of the page."""
    attributes = [
        {
            "picks": attribute.picks,
            "figure": figures.curve_figure(attribute, summary),
            "places": figures.member_places(attribute, summary),
        }
        for attribute in summary.attributes
    ]
    training = {
        member: figures.training_traces(history, members=len(summary.members))
        for member, history in summary.histories.items()
    }
    return {
        "start": summary.start,
        "weights": [
            {"label": format_weight(records[0].privacy_weight), "members": [r.member for r in records]}
            for records in summary.weights
        ],
        "seeds": {member: record.seed for member, record in summary.members.items()},
        "attributes": attributes or [{"picks": [records[0].member for records in summary.weights]}],
        "training": training,
        "trainingLayout": figures.make_layout("epoch"),
    }


def _settings(summary: Summary) -> str:
    """Everything that the numbers depend on, as JSON."""
    settings = {name: value for name, value in summary.run.to_dict().items() if name != "members"}
    reports = summary.reports.values()
    settings["splits"] = {f"seed {record.seed}": record.content_hash for record in summary.run.members}
    settings["audits"] = {
        "seeds": sorted({report.seed for report in reports}),
        "seconds": sum(report.seconds for report in reports),
    }
    return json.dumps(settings, indent=1, ensure_ascii=False)


def _command(summary: Summary, member: int) -> str:
    """Command that exports a member."""
    if summary.run.config.networks["kind"] == "own":
        return f"privjax.load_encoder({summary.workdir!r}, {member}, networks=networks)"
    return f"privjax export {shlex.quote(summary.workdir)} --member {member} --to encoder.onnx"


def _rank(attack: Attack) -> float:
    value = attack.value()
    return math.inf if value is None else -value


def _remarks(attack: Attack) -> str:
    settings = ", ".join(f"{name} {_digits(value)}" for name, value in attack.settings.items())
    paper = "the paper's" if attack.group == "paper" else ""
    return "; ".join(filter(None, (paper, settings, *attack.notes)))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _digits(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "none" if value is None else str(value)


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|$&~])", r"\\\1", " ".join(text.split()))


def _asset(name: str) -> str:
    return resources.files("privjax.reporting").joinpath(name).read_text(encoding="utf-8")


_MARKDOWN = """\
{% set score = "test " ~ summary.utility_score %}
# {{ run.data.name|plain }}, {{ run.config.objective.name|plain }}

![Utility against leakage](report.png)

{% for attribute in summary.attributes %}
## Leakage of {{ attribute.label|plain }} (test {{ attribute.score }})

| weight | utility ({{ score }}) | the paper's attackers | strongest of all | seeds | on the front |
| --- | --- | --- | --- | --- | --- |
{% for point in attribute.curve.points %}
| {{ point.privacy_weight|weight|plain }} | {{ point.utility|score }} | {{ point.leakage|score }} \
| {{ point.strongest|score }} | {{ point.utility.seeds }} | {{ "yes" if point in attribute.curve.front }} |
{% endfor %}

{% for name, limit in attribute.limits.items() %}
An attacker without z scores {{ limit|score }} ({{ name|plain }}).
{% endfor %}
{% if attribute.chosen is not none %}
Member {{ attribute.chosen }} is chosen on validation rows:

    {{ command(attribute.chosen) }}
{% endif %}

{% else %}
No member is audited yet:

    privjax audit {{ workdir }}

| member | weight | seed | status | utility ({{ score }}) |
| --- | --- | --- | --- | --- |
{% for number, member in summary.members.items() %}
| {{ number }} | {{ member.privacy_weight|weight|plain }} | {{ member.seed }} | {{ member.status|plain }} \
| {{ member.utility.test|score }} |
{% endfor %}

{% endfor %}
An audit is a lower bound on leakage. Intervals are 95 % over seeds.
"""
