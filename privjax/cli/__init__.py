"""The `privjax` command: thin, every sub-command calls public functions."""

import os
import signal
import sys


def main() -> None:
    """Entry point; says which extra is missing rather than showing a traceback."""
    try:
        from privjax.cli.app import app
        from privjax.cli.running import STOPPED, terminate
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit("The privjax command needs its extra: pip install 'privjax[cli]'")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    signal.signal(signal.SIGTERM, terminate)
    code = 0
    try:
        app(prog_name="privjax")
    except SystemExit as end:
        code = end.code
    try:
        sys.stdout.flush()
    except OSError as error:  # whoever read it has gone, or there is no room for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"privjax: {error}", file=sys.stderr)
        code = code or 1
    if code in STOPPED:
        os._exit(code)  # threads that still train would keep it waiting
    sys.exit(code)
