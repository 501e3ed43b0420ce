"""One small environment for all tests that leave it as it is."""

from __future__ import annotations

import py_compile
import zipfile
from pathlib import Path

import pytest

from agent.import_index.environments import Environment, install, new_environment, site_packages, wheel

PLAIN = {
    "plain/__init__.py": '"""A package."""\nimport plain.values\nVALUE = 1\n',
    "plain/__main__.py": "import sys\nprint('main', __spec__.name, sys.argv[1:], __file__)\n",
    "plain/values.py": "def function(argument):\n    '''Doc.'''\n    return argument + 1\n\nassert_is_on = False\n"
    "try:\n    assert False\nexcept AssertionError:\n    assert_is_on = True\n",
    "plain/failing.py": "def fail():\n    inner = {}\n    return inner['missing']  # the line to be shown\n",
    "plain/broken.py": "value = (1,\n",
    "plain/raises.py": "from plain import values\nraise ImportError('on purpose')\n",
    "plain/wants.py": "import not_there_at_all\n",
    "plain/sub/__init__.py": "",
    "plain/sub/deep.py": "from ..values import function\nfrom . import __name__ as package\n",
    "plain/data.txt": "some data\n",
    "plain-1.0.dist-info/entry_points.txt": "[things]\none = plain.values:function\n",
    "single.py": "VALUE = 'site-packages'\n",
    "names/first.py": "VALUE = 'first'\n",
}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with every kind of package, and its index."""
    folder = tmp_path_factory.mktemp("small")
    environment = new_environment(folder)
    install(environment, wheel(folder, "plain", "1.0", PLAIN))
    site = site_packages(environment)
    add_odd_ones(folder, site)
    environment.build()
    return environment


def add_odd_ones(folder: Path, site: Path) -> None:
    """What is found in other ways than as a plain file in site-packages."""
    edited = folder / "edited"
    (edited / "by_path").mkdir(parents=True)
    (edited / "by_path" / "__init__.py").write_text("VALUE = 'edited'\n")
    (edited / "names").mkdir()
    (edited / "names" / "second.py").write_text("VALUE = 'second'\n")
    with zipfile.ZipFile(folder / "zipped.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "VALUE = 'zipped'\n")
    (site / "__editable__.pth").write_text(f"{edited}\n{folder / 'zipped.zip'}\n")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "__init__.py").write_text("VALUE = 'linked'\n")
    (site / "linked").symlink_to(folder / "elsewhere")
    source = folder / "only_code.py"
    source.write_text("VALUE = 'no source'\n")
    py_compile.compile(str(source), str(site / "only_code.pyc"), dfile="only_code.py", doraise=True)
