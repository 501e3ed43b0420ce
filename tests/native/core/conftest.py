"""The command as it is installed, for all tests here."""

from installed import fresh, rankscope, run, work  # noqa: F401  # fixtures
