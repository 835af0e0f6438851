"""Sealed files: the last 64 bytes are the SHA-256, in hexadecimal, of all before them."""

import hashlib
import os
from pathlib import Path

_LENGTH = 64


def seal(content: bytes) -> bytes:
    """Content with its seal at the end."""
    return content + hashlib.sha256(content).hexdigest().encode()


def unsealed(path: str | os.PathLike) -> bytes:
    """Reads a sealed file, seal left out; one that is cut short or was changed is refused."""
    whole = Path(path).read_bytes()
    content = whole[:-_LENGTH]
    if seal(content) != whole:
        raise ValueError(f"{path} is cut short or was changed after it was exported: export it again.")
    return content
