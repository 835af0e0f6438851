"""`privjax audit`: what attackers learn from every point of a sweep; and the point to use."""

from pathlib import Path
from typing import Annotated, Any

import typer

from privjax.cli import parsing, running


def audit(
    workdir: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    points: Annotated[
        str | None, typer.Option(help="Which points, as 0,3,5-7.", show_default="all of them")
    ] = None,
    adversaries: Annotated[
        str, typer.Option(help="fast, paper, all, or names of attackers such as random_forest,network.")
    ] = "all",
    seed: Annotated[int, typer.Option(min=0, help="Of the attackers.")] = 0,
    jobs: Annotated[int, typer.Option(help="Points at a time; -1 for one on each core.")] = -1,
    progress: running.Progress = None,
    as_json: running.Json = False,
) -> None:
    """Attack what every point of a sweep releases, and add the audits to its results.json.

    Stopped at any moment, the same command goes on with the points that are left.

    For example:

    privjax audit runs/people

    privjax audit runs/people --points 0,3,5-7 --adversaries fast --jobs 2

    privjax audit runs/people --json > audited.json
    """
    names = parsing.parse_words(adversaries, "--adversaries")
    chosen = None if points is None else parsing.parse_numbers(points, "--points")
    if jobs == 0:
        raise typer.BadParameter("it must be 1 or more, or -1 for one on each core.", param_hint="--jobs")

    import privjax

    with running.resumable():
        results = privjax.audit_sweep(
            workdir,
            points=chosen,
            adversaries=names,
            seed=seed,
            n_jobs=jobs,
            progress=running.chosen(progress),
        )
    if as_json:
        return running.print_json(results)
    _print(results)
    best = operating_point(results)
    if best is not None:
        print(f"On validation rows {name_of(best)} is the best:")
        print(f"privjax export {running.quoted(workdir)} --point {best['point']} --to encoder.npz")


def operating_point(results: dict[str, Any]) -> dict[str, Any] | None:
    """The member to use, chosen on validation rows alone; None where none can be chosen."""
    from privjax.auditing.pareto import best_on_validation, pareto

    if _several(results):  # which of the private variables matters most is not for us to say
        return None
    for method, curve in pareto(results).items():
        number = curve.operating_point()
        if number is not None:
            chosen = (method, curve.points[number].privacy_weight)
            of_weight = [m for m in results["members"] if (m["objective"], m["privacy_weight"]) == chosen]
            return best_on_validation(of_weight)
    return None


def name_of(member: dict[str, Any]) -> str:
    """A member in words."""
    return f"point {member['point']} (weight {running.weight_of(member)}, seed {member['seed']})"


def _several(results: dict[str, Any]) -> bool:
    return any(len(m["audit"]["attributes"]) > 1 for m in results["members"] if m.get("audit"))


def _print(results: dict[str, Any]) -> None:
    rows, several = [], _several(results)
    for member in results["members"]:
        if not member.get("audit"):
            continue
        for name, found in member["audit"]["attributes"].items():
            score = "accuracy" if found["kind"] == "discrete" else "r2"
            best = found["strongest"] or {}
            rows.append(
                (
                    member["point"],
                    running.weight_of(member),
                    member["seed"],
                    member["utility"]["test"],
                    found[f"adversary_{score}"],
                    f"{running.shown(best.get(score))} {best.get('attacker', '')}",
                    (found["label_alone"] or {}).get(score),
                    found["majority"],
                    found["privacy_confidence"].get("p_value"),
                    *([name] if several else []),
                )
            )
    columns = ("point", "weight", "seed", "utility", "attack", "strongest", "y alone", "majority", "p-value")
    running.print_table((*columns, *(["private"] if several else [])), rows)
    print(_EXPLAINED)


_EXPLAINED = """
attack    of the best of the paper's attackers on test rows: accuracy, or R2 of a
          continuous variable; strongest: of all attackers. Lower bounds on leakage.
y alone   of whoever knows the utility label; majority: of naming the largest class.
p-value   of the test that the release is independent of the private variable.
"""
