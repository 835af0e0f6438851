"""The HTML page: what is fixed is written here, what depends on the point that is picked by its scripts."""

import base64
import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from privjax.reporting.facts import count, run_facts, size_words, what_was_released


def make_page(content: dict[str, Any], *, picture: bytes, plotly: str) -> str:
    """One self-contained file.

    Args:
      content: of `make_content`.
      picture: the curve as a PNG, for readers without scripts.
      plotly: the source of plotly.js.
    """
    results = content["results"]
    name, objective = results["data"]["name"], content["objective"]
    parts = {
        "title": _text(f"{name}, {objective}: privjax report"),
        "heading": _text(name),
        "lead": _text(what_was_released(content)),
        "facts": "".join(f"<li>{_text(fact)}</li>" for fact in _headline(content)),
        "notices": "".join(f'<p class="notice" role="note">{notice}</p>' for notice in _notices(content)),
        "curve": _curve(content, picture),
        "size": _text(size_words(content)),
        "points": _points(content),
        "run": _run(content),
        "style": _asset("page.css"),
        "charts": _asset("charts.js"),
        "audit": _asset("audit.js"),
        "script": _asset("page.js"),
        "plotly": plotly,
        "content": _script_json({key: value for key, value in content.items() if key != "results"}),
    }
    # In one pass, so that nothing in a name is taken for a part.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("privjax.reporting").joinpath(name).read_text(encoding="utf-8")


def _text(value: Any) -> str:
    return html.escape(str(value))


def _script_json(value: Any) -> str:
    """JSON that no name in it can end early, or turn into markup."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _command(command: str) -> str:
    return f'<span class="command"><code>{_text(command)}</code><button type="button">Copy</button></span>'


def _headline(content: dict[str, Any]) -> list[str]:
    results, members = content["results"], content["members"]
    seeds = len({member["seed"] for member in members.values()})
    rows = results["data"].get("rows") or {}
    return [
        f"objective {content['objective']}",
        f"{count(len(content['weights']), 'privacy weight')}, {count(seeds, 'seed')}",
        *(f"{number:,} {part} rows" for part, number in rows.items() if number),
    ]


def _notices(content: dict[str, Any]) -> list[str]:
    members, results = content["members"].values(), content["results"]
    notices = []
    if not results.get("complete", True):
        config = results["config"]
        wanted = len(config.get("privacy_weights", ())) * len(config.get("seeds", ()))
        of_all = f" of {wanted}" if wanted else ""
        notices.append(
            f"The sweep has not ended: {len(members)}{of_all} points are here. "
            "The call that began it goes on where it was."
        )
    missing = sum(member["audit"] is None for member in members)
    if missing:
        which = (
            "No point was" if missing == len(members) else f"{count(missing, 'point')} of {len(members)} not"
        )
        command = _command(f"privjax audit {content['folder']}")
        notices.append(f"{which} audited, so what leaks is not known. {command}")
    bad = sum(member["status"] == "diverged" for member in members)
    if bad:
        notices.append(f"{count(bad, 'point')} diverged in training: see the table of all points.")
    return notices


def _curve(content: dict[str, Any], picture: bytes) -> str:
    if not any(any(attribute["points"]) for attribute in content["attributes"]):
        return '<p class="empty">The curve is drawn once points are audited.</p>'
    source = base64.b64encode(picture).decode()
    keys = [
        ("solid", "the paper's attackers, mean over seeds"),
        ("hollow", "strongest of all attackers"),
        ("chosen", "chosen on validation rows"),
        ("picked", "picked; dots are its other seeds"),
        ("ideal", "ideal corner"),
        ("guess", "blind guess"),
        ("floor", f"what {content['utility']['name']} alone says"),
    ]
    legend = "".join(f'<li><i class="key {key}"></i>{_text(words)}</li>' for key, words in keys)
    left_out = max(attribute["left_out"] for attribute in content["attributes"])
    note = (
        f"<p>{count(left_out, 'point')} not drawn: not audited, diverged or far below 0.</p>"
        if left_out
        else ""
    )
    return (
        '<figure><div id="curve" class="chart" role="img" aria-label="Utility against leakage of every '
        'privacy weight; the table of all points has the numbers."></div>'
        f'<noscript><img alt="Utility against leakage" src="data:image/png;base64,{source}"></noscript>'
        f'<figcaption><ul class="keys">{legend}</ul>{note}</figcaption></figure>'
    )


def _points(content: dict[str, Any]) -> str:
    """Every point as a row; several private variables make several rows of it."""
    attributes = content["attributes"]
    several = len(attributes) > 1
    head = ["point", "weight", "seed", "status", "epochs", "utility, validation", "utility, test"]
    head += ["private variable"] * several
    head += ["the paper's attackers", "strongest of all", "privacy confidence"] if attributes else []
    rows = []
    for member in content["members"].values():
        point, weight = member["point"], content["weights"][member["weight"]]["label"]
        start = [f'<a href="#point-{point}">{point}</a>', _text(weight), _text(member["seed"])]
        start += [_text(member["status"]), _text(member["epochs"])]
        start += [_number(member["utility"][part]) for part in ("validation", "test")]
        for attribute in attributes or [None]:
            rows.append((point, [*start, *(_leaks(member, attribute, several) if attribute else [])]))
    return _table("Every trained point", head, rows)


def _leaks(member: dict[str, Any], attribute: dict[str, Any], several: bool) -> list[str]:
    name = [_text(attribute["label"])] if several else []
    found = (member["audit"] or {}).get(attribute["name"])
    if found is None:
        return [*name, "not audited", "", ""]
    strongest = found["strongest"]
    who = f' <span class="muted">{_text(strongest["attacker"])}</span>' if strongest["attacker"] else ""
    return [
        *name,
        _number(found["leakage"]),
        _number(strongest["value"]) + who,
        _number(found["confidence"].get("p_value")),
    ]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _table(caption: str, head: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]) -> str:
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    body = "".join(
        f'<tr data-point="{point}"><th scope="row">{first}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
        for point, (first, *cells) in rows
    )
    return (
        f'<div class="scroll all-points" role="region" tabindex="0" aria-label="{_text(caption)}"><table>'
        f'<caption class="hidden">{_text(caption)}</caption>'
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _run(content: dict[str, Any]) -> str:
    listed = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in run_facts(content)
    )
    config = json.dumps(content["results"]["config"], indent=1, ensure_ascii=False)
    return (
        f'<dl class="run">{listed}</dl>'
        f"<details><summary>The whole configuration</summary><pre>{_text(config)}</pre></details>"
    )
