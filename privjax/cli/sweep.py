"""`privjax sweep`: a whole trade-off curve on a user's own file, or on a data set by name."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from privjax.cli import parsing, running

if TYPE_CHECKING:
    from privjax import Networks
    from privjax.datasets import Dataset

# Over the paper's ranges, denser where curves bend; 0 is what leaks without the objective.
_MMD = (0.0, 2.0**-10, 2.0**-4, 1.0, 2.0, 4.0, 8.0, 16.0, 2.0**10)
_WEIGHTS = {
    "mmd": _MMD,
    "rff_mmd": _MMD,
    "wdn": (0.0, 2.0**-10, 2.0**-4, 1.0, 4.0, 16.0, 64.0, 2.0**10),
    "kdi": (0.0, 2.0**-10, 2.0**-9, 2.0**-8, 2.0**-6, 2.0**-4, 1.0),
    "lsdn": (0.0, 2.0**-4, 1.0, 16.0, 64.0, 2.0**8, 2.0**10, 2.0**12),
}

_data = functools.partial(typer.Option, rich_help_panel="Data")
_training = functools.partial(typer.Option, rich_help_panel="Training")


def sweep(
    data: Annotated[
        str,
        _data(help="CSV, Parquet or NPZ file, folder of npy files, or name of a data set (./name: a path)."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for everything; the same command goes on in it.")],
    utility: Annotated[str | None, _data(help="Column that the service needs.")] = None,
    private: Annotated[list[str] | None, _data(help="Column to hide; may be given several times.")] = None,
    features: Annotated[
        str | None, _data(help="Columns of the input, as a,b,c.", show_default="all others")
    ] = None,
    kinds: Annotated[
        list[str] | None, _data(help="column=category or column=continuous, where it looks like the other.")
    ] = None,
    missing: Annotated[
        Literal["refuse", "drop", "impute"] | None,
        _data(help="What to do with missing cells.", show_default="refuse"),
    ] = None,
    private_features: Annotated[
        bool, _data("--private-features", help="Private columns, or copies of them, may be input as well.")
    ] = False,
    test: Annotated[
        float | None, _data(min=0.0, max=1.0, help="Share of the rows to test on.", show_default="0.2")
    ] = None,
    validation: Annotated[
        float, _data(min=0.0, max=1.0, help="Share of the other rows to choose a point on.")
    ] = 0.1,
    scale: Annotated[
        Literal["standard", "minmax", "none"], _data(help="How the input is scaled.")
    ] = "standard",
    objective: Annotated[
        Literal["mmd", "rff_mmd", "kdi", "wdn", "lsdn"], _training(help="What makes the release private.")
    ] = "mmd",
    weights: Annotated[
        str | None,
        _training(
            help="Privacy weights: 0,1,2^4 or 2^-4:2^4:9 (nine from 2^-4 to 2^4).",
            show_default="0 and the paper's range",
        ),
    ] = None,
    seeds: Annotated[int, _training(min=1, help="Number of splits, each trained on for every weight.")] = 1,
    seed: Annotated[int, _training(min=0, help="The first of the seeds.")] = 0,
    network: Annotated[Literal["nn", "cnn", "scnn"], _training(help="cnn and scnn are for images.")] = "nn",
    width: Annotated[
        str | None,
        _training(help="Width of the release; 200,50 has a hidden layer before it.", show_default="50"),
    ] = None,
    image: Annotated[
        str | None, _training(help="32x32x1 where an image is a flat row.", show_default="a square")
    ] = None,
    epochs: Annotated[int | None, _training(min=1, help="At most.", show_default="250")] = None,
    batch_size: Annotated[int, _training(min=1, help="Rows a step.")] = 500,
    progress: running.Progress = None,
    as_json: running.Json = False,
) -> None:
    """Train an encoder for every privacy weight: the trade-off curve of your data.

    Stopped at any moment, the same command goes on where it ended and gives the same numbers.

    For example:

    privjax sweep --data people.csv --utility activity --private user --out runs/people

    privjax sweep --data people.npz --utility y --private age --objective kdi --seeds 5 --out runs/age

    privjax sweep --data digits --width 200,20 --batch-size 125 --weights 0,1,4 --out runs/digits
    """
    own = {
        "utility": utility,
        "private": private or None,
        "features": None if features is None else parsing.parse_words(features, "--features"),
        "kinds": parsing.parse_kinds(kinds or []) or None,
        "missing": missing,
        "allow_private_features": private_features or None,
        "test": test,
    }
    chosen_weights = list(_WEIGHTS[objective]) if weights is None else parsing.parse_weights(weights)
    widths = [] if width is None else parsing.parse_numbers(width, "--width", least=1)
    shape = () if image is None else parsing.parse_image(image)

    import privjax

    load = _loader(data, {k: v for k, v in own.items() if v is not None}, validation)
    networks = None
    if network != "nn" or widths:
        networks = _networks(load(seed), privjax.make_objective(objective), network, widths, shape)
    with running.resumable():
        result = privjax.sweep(
            load,
            objective=objective,
            privacy_weights=chosen_weights,
            seeds=range(seed, seed + seeds),
            networks=networks,
            scaling=scale,
            workdir=out,
            batch_size=batch_size,
            num_epochs=epochs,
            progress=running.chosen(progress),
        )
    if as_json:
        return running.print_json(result.results)
    rows = [
        (
            m["point"],
            running.weight_of(m),
            m["seed"],
            m["utility"]["test"],
            m["utility"]["validation"],
            m["live_units"],
            m["epochs"],
            m["status"],
        )
        for m in result.members
    ]
    columns = ("point", "weight", "seed", "utility", "on validation rows", "live units", "epochs", "ended")
    running.print_table(columns, rows)
    print(f"What leaks is not known yet; attack it: privjax audit {running.quoted(out)}")


def _loader(data: str, own: dict[str, Any], validation: float) -> Callable[[int], "Dataset"]:
    """What gives the data set of a seed; options of `read_table` are in `own`, when they were given."""
    from privjax import datasets

    rules: dict[str, Any] = {"validation": validation}
    if data not in datasets.names():
        if not Path(data).expanduser().exists():
            known = ", ".join(datasets.names())
            raise ValueError(f"{data} is neither a file, nor a folder, nor one of the data sets {known}.")
        for name in ("utility", "private"):
            if name not in own:
                raise typer.BadParameter(f"name a column of {data}.", param_hint=f"--{name}")
        options = {name: value for name, value in own.items() if name != "test"}
        rules |= {"test": own["test"]} if "test" in own else {}
        return functools.partial(datasets.read_table(data, **options).split, **rules)
    for name in own:
        if name != "private":
            option = f"--{name.removeprefix('allow_').replace('_', '-')}"
            raise typer.BadParameter(f"it is for files, and {data} is a data set.", param_hint=option)
    if private := own.get("private"):
        try:
            (rules["private"],) = private
            datasets.load(data, **rules)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(
                f"{data} takes none, or one of its own ({error})", param_hint="--private"
            ) from None
    return functools.lru_cache(maxsize=1)(lambda seed: datasets.load(data, seed=seed, **rules))


def _networks(
    data: "Dataset", objective: Any, network: str, widths: list[int], image: tuple[int, ...]
) -> "Networks":
    """Networks for the shapes of a data set."""
    import privjax

    sizes: dict[str, Any] = {"num_outputs": len(data.y_names) or math.prod(data.y.shape[1:])}
    if objective.discriminator_loss:
        sizes["num_private"] = len(data.s_names) or math.prod(data.s.shape[1:])
    shape = data.x.shape[1:]
    if network == "nn":
        return privjax.nn_networks(shape, private_widths=widths, **sizes)
    if (widths and network == "cnn") or len(widths) > 1:
        raise typer.BadParameter("a cnn has none, and an scnn one number.", param_hint="--width")
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
