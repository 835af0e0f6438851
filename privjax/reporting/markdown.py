"""The curve as Markdown tables, for a README."""

import re
from typing import Any


def make_markdown(content: dict[str, Any]) -> str:
    """A table for each private variable, one row a privacy weight; of what was not audited, utilities alone.

    Args:
      content: of `make_content`.
    """
    lines = [f"# {_plain(content['results']['data']['name'])}, {_plain(content['objective'])}", ""]
    lines += ["![Utility against leakage](report.png)", ""]
    if not content["attributes"]:
        lines += ["Nothing was audited yet:", "", f"    privjax audit {content['folder']}", ""]
        lines += _table(["point", "weight", "seed", "status", "utility"], _members(content))
    for attribute in content["attributes"]:
        head = [f"utility ({content['utility']['score']})", "the paper's attackers", "strongest of all"]
        rows = [
            [_plain(weight["label"]), *(_score(point[key]) for key in ("utility", "leakage", "strongest"))]
            + [str(point["seeds"]), "yes" if number in attribute["front"] else ""]
            for number, (weight, point) in enumerate(
                zip(content["weights"], attribute["points"], strict=True)
            )
            if point is not None
        ]
        lines += [f"## What attackers learn of {_plain(attribute['label'])} ({attribute['score']})", ""]
        lines += _table(["weight", *head, "seeds", "on the front"], rows)
        lines += _beside(attribute, content)
    lines += ["An audit is a lower bound on what leaks. Intervals are 95 % over seeds.", ""]
    return "\n".join(lines)


def _members(content: dict[str, Any]) -> list[list[str]]:
    return [
        [str(m["point"]), _plain(content["weights"][m["weight"]]["label"]), str(m["seed"]), m["status"]]
        + ["none" if m["utility"]["test"] is None else f"{m['utility']['test']:.3f}"]
        for m in content["members"].values()
    ]


def _beside(attribute: dict[str, Any], content: dict[str, Any]) -> list[str]:
    guess, floor, chosen = attribute["guess"], attribute["floor"], attribute["chosen"]
    parts = [] if guess is None else [f"A blind guess scores {guess:.3f}."]
    parts += [] if floor is None else [f"{_plain(content['utility']['name'])} alone gives away {floor:.3f}."]
    if chosen is None:
        return [" ".join(parts), ""]
    parts.append(f"Chosen on validation rows is point {chosen}:")
    command = f"privjax export {content['folder']} --point {chosen} --to encoder.onnx"
    return [" ".join(parts), "", f"    {command}", ""]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [*(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)), ""]


def _score(score: list[float]) -> str:
    interval = " [{:.3f}, {:.3f}]".format(*score[1:]) if len(score) > 1 else ""
    return f"{score[0]:.3f}{interval}"


def _plain(text: str) -> str:
    """A name is never markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|$&~])", r"\\\1", " ".join(str(text).split()))
