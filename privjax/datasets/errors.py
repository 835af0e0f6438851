"""The one error of this package."""


class DataError(ValueError):
    """Data that cannot be trusted or found; the message names the file, and the line."""
