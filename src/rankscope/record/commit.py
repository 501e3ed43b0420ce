"""The commit of the program that is started, by the files of its git repository: no program is run for it."""

import os

MOST_FOLDERS = 32  # above the program's
MOST_BYTES = 1 << 20  # of packed-refs
DIGITS = (40, 64)  # of SHA-1 and SHA-256


def commit_of(command: list[str]) -> str | None:
    """Of the folder of the Python script, or of the current one; None where it is in no repository, or cannot be told.

    Changes that are not committed are not seen."""
    try:
        scripts = [word for word in command if word.endswith(".py")]
        git = git_folder(os.path.dirname(os.path.realpath(scripts[0])) if scripts else os.getcwd())
        return head_of(git) if git else None
    except (OSError, ValueError):
        return None


def git_folder(folder: str) -> str | None:
    """The .git of the nearest folder above that has one; of a work tree the folder that it names."""
    for _ in range(MOST_FOLDERS):
        path = f"{folder}/.git"
        try:
            content = text_of(path)
        except IsADirectoryError:
            return path
        except (FileNotFoundError, NotADirectoryError):
            above = os.path.dirname(folder)
            if above == folder:
                return None
            folder = above
        else:
            return os.path.join(folder, content[len("gitdir:") :].strip()) if content.startswith("gitdir:") else None
    return None


def head_of(git: str) -> str | None:
    head = text_of(f"{git}/HEAD").strip()
    if not head.startswith("ref:"):
        return hash_of(head)
    name = head[len("ref:") :].strip()
    if not name.startswith("refs/") or ".." in name:
        return None
    for folder in (git, shared_folder(git)):
        try:
            return hash_of(text_of(f"{folder}/{name}").strip())
        except (FileNotFoundError, NotADirectoryError):
            pass
    return packed(shared_folder(git), name)


def shared_folder(git: str) -> str:
    """Where the branches of a work tree are."""
    try:
        return os.path.join(git, text_of(f"{git}/commondir").strip())
    except (FileNotFoundError, NotADirectoryError):
        return git


def packed(git: str, name: str) -> str | None:
    for line in text_of(f"{git}/packed-refs").splitlines():
        object_id, _, called = line.partition(" ")
        if called == name:
            return hash_of(object_id)
    return None


def hash_of(text: str) -> str | None:
    is_hash = len(text) in DIGITS and all(letter in "0123456789abcdef" for letter in text)
    return text if is_hash else None


def text_of(path: str) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe of that name does not hold us up
    try:
        return os.read(file, MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(file)
