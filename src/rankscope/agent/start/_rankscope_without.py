"""Switches off a cause of system calls at import, to measure what it really costs: `rankscope imports --without`."""

import sys


def switch_off(text):
    """One line for each cause: realpath, search=FOLDER, module=NAME."""
    for line in text.split("\n"):
        name, _, value = line.partition("=")
        if name == "realpath":
            remember_real_paths()
        elif name == "search":
            sys.path_importer_cache[value] = None  # what Python itself notes of a place that is no folder
        elif name == "module":
            sys.modules[value] = None  # the import raises ModuleNotFoundError


def remember_real_paths():
    """os.path.realpath resolves each folder once, and each file once."""
    import os
    import stat

    original, known = os.path.realpath, {}

    def resolved(path):
        folder, _, name = path.rpartition("/")
        if not folder or name in ("", ".", ".."):
            return original(path)
        full_path = realpath(folder).rstrip("/") + "/" + name
        try:
            is_link = stat.S_ISLNK(os.lstat(full_path).st_mode)
        except OSError:
            is_link = False
        return original(full_path) if is_link else full_path

    def realpath(filename, **options):
        if type(filename) is not str or filename[:1] != "/" or options.get("strict"):
            return original(filename, **options)
        if filename not in known:
            known[filename] = resolved(filename)
        return known[filename]

    os.path.realpath = realpath
