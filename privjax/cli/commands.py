"""The sub-commands."""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from privjax.cli import shared
from privjax.objectives import OBJECTIVES

if TYPE_CHECKING:
    from privjax import AuditReport, CurvePoint, Networks, SweepRun
    from privjax.datasets import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Missing = Literal["refuse", "drop", "impute"]
_Scale = Literal["standard", "minmax", "none"]
_Network = Literal["nn", "cnn", "scnn"]


def _data(text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Data", **options)


def _training(text: str, **options: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Training", **options)


def _command(function: Callable[..., None]) -> Callable[..., None]:
    return app.command(epilog=shared.EXIT_CODES)(shared.guarded(function))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"privjax {version('privjax')}")
        raise typer.Exit


@app.callback(epilog=shared.EXIT_CODES)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, as PRIVJAX_DEBUG=1 does.")
    ] = False,
) -> None:
    """Release z instead of x: keep the utility, remove the private variable.

    From your own table to the encoder on a device:

    privjax sweep --data people.csv --utility activity --private user --out runs/people

    privjax audit runs/people

    privjax report runs/people

    privjax export runs/people --to encoder.npz

    privjax apply encoder.npz rows.csv --to z.csv
    """
    if debug:
        os.environ["PRIVJAX_DEBUG"] = "1"


def _check_objective(name: str) -> str:
    if name not in OBJECTIVES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(OBJECTIVES)}.")
    return name


@_command
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the training and the attacks.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the sweep and its report.", show_default="none")
    ] = None,
    progress: shared.Progress = None,
    as_json: shared.Json = False,
) -> None:
    """Train encoders on handwritten digits and attack their releases.

    It takes about a minute on two cores and downloads nothing.

    For example:

    privjax demo

    privjax demo --out runs/demo
    """
    from privjax.cli.demo import demo as run

    mode = shared.progress_mode(progress)
    say = (lambda line: None) if as_json else (lambda line: print(line, flush=True))
    if out is None:
        rows = run(seed=seed, progress=mode, say=say)
    else:
        import privjax

        with shared.resumable():
            rows = run(seed=seed, out=out, progress=mode, say=say)
            say(f"The report: {privjax.report(out)}")
    if as_json:
        shared.print_json([row._asdict() for row in rows])


@_command
def datasets(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of prepared sets.", show_default="$PRIVJAX_DATA")
    ] = None,
    as_json: shared.Json = False,
) -> None:
    """List the data sets: size, classes, terms, which are prepared, how to get the others.

    For example: privjax datasets --json
    """
    from privjax.datasets import describe

    rows = describe(data_dir=data_dir)
    if as_json:
        return shared.print_json([row._asdict() for row in rows])
    for row in rows:
        print(f"{row.name} ({'ready' if row.prepared else 'not prepared'}): {row.title}")
        print(f"    {row.size}\n    terms: {row.terms}\n    {row.how}")


@_command
def sweep(
    data: Annotated[str, _data("CSV, Parquet or NPZ file, folder of npy files, or name of a data set.")],
    out: Annotated[Path, typer.Option(help="Folder of the sweep; the same command resumes there.")],
    utility: Annotated[str | None, _data("Column that the service needs.")] = None,
    private: Annotated[list[str] | None, _data("Column to hide; may be given several times.")] = None,
    features: Annotated[str | None, _data("Columns of x, as a,b,c.", show_default="all others")] = None,
    kinds: Annotated[list[str] | None, _data("column=category or column=continuous.")] = None,
    missing: Annotated[_Missing | None, _data("Treatment of missing cells.", show_default="refuse")] = None,
    private_features: Annotated[
        bool, _data("Allow private columns, or copies of them, as input.", "--private-features")
    ] = False,
    test: Annotated[
        float | None, _data("Share of the rows to test on.", min=0.0, max=1.0, show_default="0.2")
    ] = None,
    validation: Annotated[
        float, _data("Share of the other rows that choose the operating point.", min=0.0, max=1.0)
    ] = 0.1,
    scale: Annotated[_Scale, _data("How the encoder scales its input.")] = "standard",
    objective: Annotated[
        str, _training(f"The privacy objective: {', '.join(OBJECTIVES)}.", callback=_check_objective)
    ] = "mmd",
    weights: Annotated[
        str | None,
        _training("0,1,2^4 or 2^-4:2^4:9 (nine from 2^-4 to 2^4).", show_default="0 and the paper's range"),
    ] = None,
    seeds: Annotated[int, _training("Number of splits; each trains every weight.", min=1)] = 1,
    seed: Annotated[int, _training("The first of the seeds.", min=0)] = 0,
    network: Annotated[_Network, _training("cnn and scnn are for images.")] = "nn",
    width: Annotated[
        str | None, _training("Width of z; 200,50 adds a hidden layer.", show_default="50")
    ] = None,
    image: Annotated[
        str | None, _training("32x32x1 where an image is a flat row.", show_default="a square")
    ] = None,
    epochs: Annotated[int | None, _training("Largest number.", min=1, show_default="250")] = None,
    batch_size: Annotated[int, _training("Rows in a step.", min=1)] = 500,
    progress: shared.Progress = None,
    as_json: shared.Json = False,
) -> None:
    """Train an encoder for every privacy weight: the trade-off curve of your data.

    A stopped sweep resumes with the same command and gives the same numbers.

    For example:

    privjax sweep --data people.csv --utility activity --private user --out runs/people

    privjax sweep --data people.npz --utility y --private age --objective kdi --seeds 5 --out runs/age

    privjax sweep --data digits --width 200,20 --batch-size 125 --weights 0,1,4 --out runs/digits
    """
    table = {
        "utility": utility,
        "private": private or None,
        "features": None if features is None else shared.parse_words(features, "--features"),
        "kinds": shared.parse_kinds(kinds or []) or None,
        "missing": missing,
        "allow_private_features": private_features or None,
        "test": test,
    }
    privacy_weights = OBJECTIVES[objective].weights if weights is None else shared.parse_weights(weights)
    widths = [] if width is None else shared.parse_numbers(width, "--width", least=1)
    shape = () if image is None else shared.parse_image(image)

    import privjax

    load = _loader(data, {k: v for k, v in table.items() if v is not None}, validation)
    networks = None
    if network != "nn" or widths:
        networks = _networks(load(seed), objective, network, widths, shape)
    with shared.resumable():
        result = privjax.sweep(
            load,
            objective=objective,
            privacy_weights=list(privacy_weights),
            seeds=range(seed, seed + seeds),
            networks=networks,
            scaling=scale,
            workdir=out,
            batch_size=batch_size,
            num_epochs=epochs,
            progress=shared.progress_mode(progress),
        )
    if as_json:
        return shared.print_json(result.run.to_dict())
    rows = [
        (
            m.member,
            shared.format_weight(m.privacy_weight),
            m.seed,
            m.utility.test,
            m.utility.validation,
            m.live_units,
            m.epochs,
            m.status,
        )
        for m in result.members
    ]
    columns = ("member", "weight", "seed", "utility", "on validation", "live units", "epochs", "ended")
    shared.print_table(columns, rows)
    print(f"Leakage is not known yet. To attack the releases: privjax audit {shared.quoted(out)}")


def _loader(data: str, table: dict[str, Any], validation: float) -> Callable[[int], "Dataset"]:
    """Return a function of the seed. `table` holds the options of `read_table` that were given."""
    from privjax import datasets

    if data in datasets.names():
        return _published(data, table, validation)
    if not Path(data).expanduser().exists():
        known = ", ".join(datasets.names())
        raise ValueError(f"{data} is neither a file, nor a folder, nor one of the data sets {known}.")
    for name in ("utility", "private"):
        if name not in table:
            raise typer.BadParameter(f"name a column of {data}.", param_hint=f"--{name}")
    shares = {"validation": validation} | ({"test": table.pop("test")} if "test" in table else {})
    return functools.partial(datasets.read_table(data, **table).split, **shares)


def _published(name: str, table: dict[str, Any], validation: float) -> Callable[[int], "Dataset"]:
    from privjax import datasets

    for option in table:
        if option != "private":
            hint = f"--{option.removeprefix('allow_').replace('_', '-')}"
            raise typer.BadParameter(f"it is for files, and {name} is a data set.", param_hint=hint)
    options: dict[str, Any] = {"validation": validation}
    if private := table.get("private"):
        try:
            (options["private"],) = private
            datasets.load(name, **options)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(
                f"{name} has no such private variable ({error})", param_hint="--private"
            ) from None
    return functools.lru_cache(maxsize=1)(lambda seed: datasets.load(name, seed=seed, **options))


def _networks(
    data: "Dataset", objective: str, network: str, widths: list[int], image: tuple[int, ...]
) -> "Networks":
    """Return networks for the shapes of a data set."""
    import privjax

    sizes: dict[str, Any] = {"num_outputs": len(data.y_names) or math.prod(data.y.shape[1:])}
    if privjax.make_objective(objective).discriminator_loss:
        sizes["num_private"] = len(data.s_names) or math.prod(data.s.shape[1:])
    shape = data.x.shape[1:]
    if network == "nn":
        return privjax.nn_networks(shape, private_widths=widths, **sizes)
    if (widths and network == "cnn") or len(widths) > 1:
        raise typer.BadParameter("a cnn takes none, and an scnn takes one number.", param_hint="--width")
    if len(shape) == 1:
        side = math.isqrt(*shape)
        image = image or (side, side, 1)
        if math.prod(image) != shape[0]:
            named = "x".join(map(str, image))
            raise typer.BadParameter(f"{shape[0]} columns are no image of {named}.", param_hint="--image")
        shape = image
    if network == "cnn":
        return privjax.cnn_networks(shape, **sizes)
    return privjax.scnn_networks(shape, **({"num_features": widths[0]} if widths else {}), **sizes)


@_command
def audit(
    workdir: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    members: Annotated[
        str | None, typer.Option(help="Members to audit, as 0,3,5-7.", show_default="all of them")
    ] = None,
    attackers: Annotated[
        str, typer.Option(help="fast, paper, all, or names of attackers such as random_forest,network.")
    ] = "all",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attackers.")] = 0,
    jobs: Annotated[int, typer.Option(help="Members at a time; -1 for one on each core.")] = -1,
    progress: shared.Progress = None,
    as_json: shared.Json = False,
) -> None:
    """Attack the release of every member of a sweep, and keep the reports beside it.

    A stopped audit resumes with the same command.

    For example:

    privjax audit runs/people

    privjax audit runs/people --members 0,3,5-7 --attackers fast --jobs 2

    privjax audit runs/people --json > audited.json
    """
    names = shared.parse_words(attackers, "--attackers")
    chosen = None if members is None else shared.parse_numbers(members, "--members")
    if jobs == 0:
        raise typer.BadParameter("it must be 1 or more, or -1 for one on each core.", param_hint="--jobs")

    import privjax

    with shared.resumable():
        reports = privjax.audit_sweep(
            workdir,
            members=chosen,
            attackers=names,
            seed=seed,
            n_jobs=jobs,
            progress=shared.progress_mode(progress),
        )
    if as_json:
        return shared.print_json({str(member): report.to_dict() for member, report in reports.items()})
    _print_audit(privjax.load_results(workdir), reports)
    point = _operating_point(workdir)
    if point is not None:
        print(f"On validation rows member {point.member} is the best:")
        print(f"privjax export {shared.quoted(workdir)} --member {point.member} --to encoder.npz")


def _operating_point(workdir: Path) -> "CurvePoint | None":
    """Return the point chosen on validation rows, or None where there is no choice."""
    import privjax

    reports = privjax.load_reports(workdir)
    # With several private variables only the user can say which one matters most.
    if not reports or any(len(report.attributes) > 1 for report in reports.values()):
        return None
    return privjax.pareto(workdir).operating_point()


def _print_audit(run: "SweepRun", reports: "dict[int, AuditReport]") -> None:
    rows = []
    several = any(len(report.attributes) > 1 for report in reports.values())
    for record in run.members:
        report = reports.get(record.member)
        for name, found in (report.attributes if report else {}).items():
            best = found.best()
            floor = (found.label_alone or {}).get(found.main_score)
            rows.append(
                (
                    record.member,
                    shared.format_weight(record.privacy_weight),
                    record.seed,
                    record.utility.test,
                    found.leakage(),
                    "-" if best is None else f"{best.value(found.main_score):.3f} {best.name}",
                    None if floor is None else floor.value,
                    found.majority,
                    found.confidence.p_value,
                    *([name] if several else []),
                )
            )
    columns = ("member", "weight", "seed", "utility", "attack", "strongest", "given y", "majority", "p-value")
    shared.print_table((*columns, *(["private"] if several else [])), rows)
    print(_EXPLAINED)


_EXPLAINED = """
attack    the best of the paper's attackers on test rows: accuracy, or R2 of a
          continuous variable; strongest: the best of all. Lower bounds on leakage.
given y   a predictor that sees the utility only; majority: the largest class.
p-value   the test that the release is independent of the private variable.
"""


@_command
def report(
    workdir: Annotated[Path, typer.Argument(help="Folder of an audited sweep.")],
    to: Annotated[Path | None, typer.Option(help="Folder.", show_default="report in WORKDIR")] = None,
    as_json: shared.Json = False,
) -> None:
    """Write the report of an audited sweep: an HTML page, a figure and a table.

    For example:

    privjax report runs/people

    privjax report runs/people --to people-report
    """
    import privjax

    page = privjax.report(workdir, to=to)
    if as_json:
        shared.print_json({"page": str(page)})
    else:
        print(page)


@_command
def export(
    workdir: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    to: Annotated[Path, typer.Option(help="File to write: .npz, .stablehlo or .onnx.")],
    member: Annotated[
        int | None, typer.Option(min=0, help="Member.", show_default="the best on validation rows")
    ] = None,
    as_json: shared.Json = False,
) -> None:
    """Write the encoder of a member to a file for the device.

    Without --member, it is the audited member with the best utility minus leakage on validation rows.

    For example:

    privjax export runs/people --to encoder.npz

    privjax export runs/people --member 7 --to encoder.onnx
    """
    import privjax

    chosen = ""
    if member is None:
        point = _operating_point(workdir)
        if point is None:
            raise ValueError(
                f"no member of {workdir} could be chosen on audited validation rows: give --member, or run "
                f"privjax audit {shared.quoted(workdir)} first."
            )
        member, chosen = point.member, ", the best on validation rows"
    header = privjax.export(workdir, member, to=to)
    if as_json:
        return shared.print_json(header.to_dict())
    print(
        f"{to}: member {member}{chosen}; {header.parameters} parameters, {header.bytes} bytes, "
        f"{header.multiply_adds} multiply-adds a row"
    )


@_command
def apply(
    encoder: Annotated[Path, typer.Argument(help="File of an exported encoder.")],
    rows: Annotated[Path, typer.Argument(help="CSV, Parquet, NPZ or npy file of rows.")],
    to: Annotated[Path, typer.Option(help="File to write: .csv, .parquet, .npz or .npy.")],
    progress: shared.Progress = None,
    as_json: shared.Json = False,
) -> None:
    """Release a file of rows through an exported encoder, in blocks, whatever their number.

    For example:

    privjax apply encoder.npz rows.csv --to z.csv

    privjax apply encoder.onnx rows.parquet --to z.parquet --progress off
    """
    import privjax

    done = privjax.release_file(encoder, rows, to=to, progress=shared.progress_mode(progress))
    if as_json:
        shared.print_json(done._asdict())
    else:
        print(f"{to}: {done.rows} rows of {done.width} numbers in {done.seconds:.1f} s")
