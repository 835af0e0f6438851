"""The sub-commands and what is common to them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from privjax.cli import running
from privjax.cli.audit import audit, name_of, operating_point
from privjax.cli.sweep import sweep

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"privjax {version('privjax')}")
        raise typer.Exit


@app.callback(epilog=running.EXIT_CODES)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, as PRIVJAX_DEBUG=1 does.")
    ] = False,
) -> None:
    """Release z instead of x: keep what a service needs, lose what it must not know.

    From your own table to the encoder on a device:

    privjax sweep --data people.csv --utility activity --private user --out runs/people

    privjax audit runs/people

    privjax report runs/people

    privjax export runs/people --to encoder.npz

    privjax apply encoder.npz rows.csv --to z.csv
    """
    if debug:
        os.environ["PRIVJAX_DEBUG"] = "1"


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Of split, training and attacks.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder to keep the sweep in, with its report.", show_default="none")
    ] = None,
    progress: running.Progress = None,
    as_json: running.Json = False,
) -> None:
    """See it work: sweep encoders on bundled digits and attack what they release.

    Takes about a minute on two cores and downloads nothing.

    For example:

    privjax demo

    privjax demo --out runs/demo
    """
    from privjax.cli.demo import demo as run

    mode = running.chosen(progress)
    lines = (lambda line: None) if as_json else (lambda line: print(line, flush=True))
    if out is None:
        rows = run(seed=seed, progress=mode, say=lines)
    else:
        with running.resumable():
            rows = run(seed=seed, out=out, progress=mode, say=lines)
            page = _report(out)
            lines(f"The report: {page}")
    if as_json:
        running.print_json(rows)


def datasets(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of prepared sets.", show_default="$PRIVJAX_DATA")
    ] = None,
    as_json: running.Json = False,
) -> None:
    """List the data sets: size, classes, terms, what is prepared, how to get the rest.

    For example: privjax datasets --json
    """
    from privjax.datasets import describe

    rows = describe(data_dir=data_dir)
    if as_json:
        return running.print_json([row._asdict() for row in rows])
    for row in rows:
        print(f"{row.name} ({'ready' if row.prepared else 'not prepared'}): {row.title}")
        print(f"    {row.size}\n    terms: {row.terms}\n    {row.how}")


def report(
    workdir: Annotated[Path, typer.Argument(help="Folder of an audited sweep.")],
    to: Annotated[Path | None, typer.Option(help="Folder.", show_default="report in WORKDIR")] = None,
    as_json: running.Json = False,
) -> None:
    """Write the report of an audited sweep: one HTML page, a picture and a table.

    For example:

    privjax report runs/people

    privjax report runs/people --to people-report
    """
    page = _report(workdir, to)
    if as_json:
        running.print_json({"page": str(page)})
    else:
        print(page)


def _report(workdir: Path, to: Path | None = None) -> Path:
    from privjax.reporting import report

    return report(workdir, to=to)


def export(
    workdir: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    to: Annotated[Path, typer.Option(help="File to write: .npz, .stablehlo or .onnx.")],
    point: Annotated[
        int | None, typer.Option(min=0, help="Which point.", show_default="that chosen on validation rows")
    ] = None,
    as_json: running.Json = False,
) -> None:
    """Write the private half of a point to a file for the device.

    Without --point it is the audited point of the largest utility minus leakage on validation rows.

    For example:

    privjax export runs/people --to encoder.npz

    privjax export runs/people --point 7 --to encoder.onnx
    """
    from privjax.exporting import export as write
    from privjax.sweeping import load_results

    name = f"point {point}"
    if point is None:
        best = operating_point(load_results(workdir))
        if best is None:
            raise ValueError(
                f"no point of {workdir} could be chosen on audited validation rows: give --point, or run "
                f"privjax audit {running.quoted(workdir)} first."
            )
        point, name = int(best["point"]), f"{name_of(best)}, the best on validation rows"
    header = write(workdir, point, to=to)
    if as_json:
        return running.print_json(header.to_dict())
    print(
        f"{to}: {name}; {header.parameters} parameters, {header.bytes} bytes, "
        f"{header.multiply_adds} multiply-adds a row"
    )


def apply(
    encoder: Annotated[Path, typer.Argument(help="File of an exported encoder.")],
    rows: Annotated[Path, typer.Argument(help="CSV, Parquet, NPZ or npy file of rows.")],
    to: Annotated[Path, typer.Option(help="File to write: .csv, .parquet, .npz or .npy.")],
    progress: running.Progress = None,
    as_json: running.Json = False,
) -> None:
    """Release a file of rows through an exported encoder, in blocks: any number of rows.

    For example:

    privjax apply encoder.npz rows.csv --to z.csv

    privjax apply encoder.onnx rows.parquet --to z.parquet --progress off
    """
    from privjax.exporting import release_file

    done = release_file(encoder, rows, to=to, progress=running.chosen(progress))
    if as_json:
        running.print_json(done._asdict())
    else:
        print(f"{to}: {done.rows} rows of {done.width} numbers in {done.seconds:.1f} s")


for _command in (demo, datasets, sweep, audit, report, export, apply):
    app.command(epilog=running.EXIT_CODES)(running.guarded(_command))
