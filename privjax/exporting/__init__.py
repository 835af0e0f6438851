"""The private half of a member as a file for the device, and a file of rows through it.

`privjax.export` and `privjax.release` are the functions of those names.
"""

from privjax.exporting.release import release
from privjax.exporting.write import describe, export

__all__ = ["describe", "export", "release"]
