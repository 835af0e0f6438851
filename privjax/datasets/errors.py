"""Error of the data sets."""


class DataError(ValueError):
    """Data that is missing, damaged or unsuitable; the message names the file and the place."""
