"""Horovod as far as its modules and functions have the same names; what it carries out is nothing."""
