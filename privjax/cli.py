"""The `privjax` command: thin, every sub-command calls one public function."""

import json
import sys
from typing import Annotated, Optional


def main() -> None:
    """Entry point; says which extra is missing rather than showing a traceback."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit("The privjax command needs its extra: pip install 'privjax[cli]'")
    _app()()


def _app():
    import typer
    from rich.console import Console
    from rich.table import Table

    app = typer.Typer(no_args_is_help=True, add_completion=False, help="Release z instead of x.")

    @app.callback()
    def root() -> None:
        """Release z instead of x: keep what a service needs, lose what it must not know."""

    @app.command()
    def datasets(
        data_dir: Annotated[Optional[str], typer.Option(help="Folder of prepared sets.")] = None,  # noqa: UP045
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """List the data sets: size, classes, terms, what is prepared, how to get the rest.

        Example: privjax datasets --json
        """
        from privjax.datasets import describe

        rows = describe(data_dir=data_dir)
        if as_json:
            print(json.dumps([row._asdict() for row in rows], indent=2))
            return
        table = Table("name", "what", "size and classes", "terms", "ready", show_lines=True)
        table.add_column("how to get it", overflow="fold")  # an address cut short is no use
        for row in rows:
            ready = "yes" if row.prepared else "no"
            table.add_row(row.name, row.title, row.size, row.terms, ready, row.how)
        Console().print(table)

    return app


if __name__ == "__main__":
    main()
