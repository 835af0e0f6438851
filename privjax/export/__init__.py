"""The private half of a member as a file for the device, and a file of rows through it.

`privjax.export` and `privjax.release` are the functions of those names.
"""

from privjax.export.release import release
from privjax.export.write import describe, export

__all__ = ["describe", "export", "release"]
