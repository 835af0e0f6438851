"""`report`: writes a sweep's page, its picture and its table."""

import os
from pathlib import Path

from privjax.extras import need
from privjax.files import replacing
from privjax.reporting.content import make_content
from privjax.reporting.markdown import make_markdown
from privjax.reporting.page import make_page
from privjax.reporting.picture import make_picture

PathLike = str | os.PathLike


def report(workdir: PathLike, *, to: PathLike | None = None) -> Path:
    """Writes `report.html`, `report.png` and `report.md` about a sweep.

    The page is one file that asks nothing of a network: the trade-off curve, the audit, cost and training of
    the operating point that is picked in it, the command that exports it, what was run, and what is not
    promised. It can be written at any time, also of a sweep that goes on or was not audited. The same
    sweep gives the same files.

    Args:
      workdir: the sweep's folder.
      to: the folder to write into; `report` in the sweep's own when None.

    Returns:
      The path of the page.
    """
    plotly, _ = (need(module, extra="report") for module in ("plotly.offline", "matplotlib.figure"))
    content = make_content(workdir)
    picture = make_picture(content)
    page = make_page(content, picture=picture, plotly=plotly.get_plotlyjs())
    folder = (Path(workdir) / "report" if to is None else Path(to)).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"to must be a folder, but {folder} is a file: give another.") from None
    texts = {"report.md": make_markdown(content), "report.html": page}
    files = {name: text.encode("utf-8", "replace") for name, text in texts.items()}  # a name may be no UTF-8
    for name, written in {"report.png": picture, **files}.items():
        with replacing(folder / name) as part:
            part.write_bytes(written)
    return folder / "report.html"
