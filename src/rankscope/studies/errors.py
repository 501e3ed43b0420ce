"""What can be wrong with what was asked of a study."""


class BadStudy(ValueError):
    """A study that cannot be run as it was asked for, in one line."""
