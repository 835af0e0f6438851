"""Encoders as files for a device, and the release of files of rows through them."""

from privjax.exporting.device import describe, export, load_file
from privjax.exporting.releasing import ReleaseSummary, release_file
from privjax.exporting.runner import FileEncoder, Header

__all__ = ["FileEncoder", "Header", "ReleaseSummary", "describe", "export", "load_file", "release_file"]
