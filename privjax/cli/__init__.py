"""The `privjax` command. Every sub-command calls public functions."""

import os
import signal
import sys


def main() -> None:
    """Run the command and exit with its code."""
    try:
        from privjax.cli.commands import app
        from privjax.cli.shared import STOPPED, terminate
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit("The privjax command needs its extra: pip install 'privjax[cli]'")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
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
    except OSError as error:  # the reader closed the pipe, or the disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"privjax: {error}", file=sys.stderr)
        code = code or 1
    if code in STOPPED:
        os._exit(code)  # do not wait for training threads
    sys.exit(code)
