"""Programs that look at the import system from every side. Each must print the same with and without the index."""

DESCRIBE = """
import importlib, sys
def describe(name):
    module = importlib.import_module(name)
    spec = module.__spec__
    print(name, [getattr(module, "__%s__" % one, None) for one in ("file", "cached", "path")])
    print(repr(spec).split(" object at ")[0], spec.name, spec.origin, spec.cached, spec.parent, spec.has_location)
    print(spec.submodule_search_locations, type(spec.loader), module.__package__, spec.loader is module.__loader__)
    print(sorted(vars(spec.loader).items()) if type(spec.loader).__name__ == "SourceFileLoader" else "")
"""

PROGRAMS = {
    "attributes": DESCRIBE + "for name in ('plain', 'plain.sub.deep', 'single', 'json', 'json.decoder', '_json',"
    " 'names', 'names.first', 'names.second', 'by_path', 'zipped', 'linked', 'only_code', 'plain.__init__'):"
    "\n    describe(name)\nprint(sorted(sys.modules), sys.path)",
    "values": "import single, by_path, zipped, linked, only_code, names.first, names.second\n"
    "print([one.VALUE for one in (single, by_path, zipped, linked, only_code, names.first, names.second)])",
    "types": "import sys, plain.sub, importlib.machinery as m\n"
    "print(sorted(str(type(one)) for one in sys.path_importer_cache.values()))\n"
    "print(type(plain.__loader__) is m.SourceFileLoader)\n"
    "print(sorted(repr(one) for one in sys.path_importer_cache.values() if one))",
    "source": "import inspect, plain.values as v\nprint(inspect.getsource(v.function), inspect.getsourcefile(v),"
    " inspect.getmodule(v.function), inspect.getfile(v), v.__loader__.get_source('plain.values'))",
    "traceback": "import plain.failing\nplain.failing.fail()",
    "syntax error": "import plain.broken",
    "import error": "import plain.raises",
    "missing inside": "import plain.wants",
    "missing submodule": "import plain.nothing",
    "missing": "import nothing_of_this_name",
    "not a package": "import single.part",
    "caught": "try:\n    import plain.raises\nexcept ImportError:\n    import traceback; traceback.print_exc()",
    "resources": "import importlib.resources as r, plain\nprint((r.files('plain') / 'data.txt').read_text(),"
    " sorted(one.name for one in r.files(plain).iterdir()))",
    "get_data": "import pkgutil\nprint(pkgutil.get_data('plain', 'data.txt'))",
    "metadata": "import importlib.metadata as m\nprint(m.version('plain'), sorted(map(str, m.files('plain'))),"
    " m.packages_distributions().get('plain'), [str(one) for one in m.entry_points(group='things')])",
    "iter_modules": "import pkgutil, plain\nprint(sorted((one.name, one.ispkg, str(one.module_finder)) for one in"
    " pkgutil.iter_modules(plain.__path__)))\nprint(sorted(one.name for one in pkgutil.iter_modules()))",
    "reload": "import importlib, plain\nplain.VALUE = 2\nprint(importlib.reload(plain) is plain, plain.VALUE)",
    "find_spec": "import importlib.util as u\nprint([u.find_spec(name) and u.find_spec(name).origin for name in"
    " ('plain', 'plain.sub', 'names', 'nothing', '_json')], u.find_spec('names').submodule_search_locations)",
    "removed": "import sys, plain.values as v\ndel sys.modules['plain.values']\nimport plain.values\n"
    "print(plain.values is v, plain.values.function(1))",
    "front": "import sys\nsys.path.insert(0, 'front')\nimport single, plain\nprint(single.VALUE, plain.VALUE)",
    "front of a package": "import plain\nplain.__path__.insert(0, 'inside')\nimport plain.sub\nprint(plain.sub.VALUE)",
    "path removed": "import sys\nsys.path[:] = [one for one in sys.path if 'site-packages' not in one]\nimport plain",
    "finder in front": "import sys, importlib.machinery as m\nclass F:\n    @staticmethod\n"
    "    def find_spec(name, path=None, target=None):\n        if name == 'plain':\n"
    "            return m.ModuleSpec(name, m.SourceFileLoader(name, 'front/single.py'), origin='here')\n"
    "sys.meta_path.insert(0, F)\nimport plain\nprint(plain.VALUE, plain.__spec__.origin)",
    "finder of one's own": "import sys, importlib.machinery as m\nclass Loader(m.SourceFileLoader):\n"
    "    def get_data(self, path):\n        return super().get_data(path).replace(b'site-packages', b'replaced')\n"
    "    def path_stats(self, path):\n        raise OSError\n"
    "sys.path_hooks.insert(0, m.FileFinder.path_hook((Loader, ['.py'])))\nsys.path_importer_cache.clear()\n"
    "import single\nprint(single.VALUE)",
    "compiled otherwise": "import importlib.machinery as m\noriginal = m.SourceFileLoader.source_to_code\n"
    "def changed(self, data, path, **named):\n    return original(self, data.replace(b'site-packages', b'x'), path)\n"
    "m.SourceFileLoader.source_to_code = changed\nm.SourceFileLoader.path_stats = lambda self, path: 1 / 0\n"
    "try:\n    import single\n    print(single.VALUE)\nexcept ZeroDivisionError:\n    print('asked for its times')",
    "threads": "import threading\nfound = []\ndef work():\n    import plain.sub.deep\n"
    "    found.append(plain.sub.deep.function(1))\nall = [threading.Thread(target=work) for _ in range(8)]\n"
    "[one.start() for one in all]; [one.join() for one in all]\nprint(found)",
    "open files": "import os, plain\nprint(sorted(os.listdir('/proc/self/fd')))",
    "fork": "import os, plain\nif os.fork() == 0:\n    import plain.sub.deep\n"
    "    print(plain.sub.deep.function(2), flush=True)\n"
    "    os._exit(0)\nos.wait()\nprint('parent')",
    "subinterpreter": "import sys\ntry:\n    import _interpreters as i\nexcept ImportError:\n    try:\n"
    "        import _xxsubinterpreters as i\n    except ImportError:\n        sys.exit()\none = i.create()\n"
    "i.run_string(one, 'import plain.sub.deep, sys; print(plain.sub.deep.function(3), flush=True)')\ni.destroy(one)",
    "paths": "import os, plain, pathlib\n"
    "print(os.path.realpath(plain.__file__), pathlib.Path(plain.__file__).resolve(),"
    " os.path.exists(plain.__file__), os.path.realpath('.'), os.path.exists('nothing'), os.path.exists(b'front'))\n"
    "for wrong in (None, 1.5):\n    try:\n        os.path.realpath(wrong)\n"
    "    except TypeError as error:\n        print(error)",
    "signatures": "import inspect, os.path, pickle, shutil\n"
    "print(inspect.signature(os.path.realpath), os.path.exists.__name__,"
    " pickle.loads(pickle.dumps(os.path.realpath)) is os.path.realpath, shutil.rmtree.avoids_symlink_attacks)",
    "error of realpath": "import os, plain\nos.path.realpath(None)",
    "exit code": "import plain, sys\nsys.exit(plain.VALUE + 6)",
}

PARALLEL = """
import multiprocessing
from plain.values import function
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.map(function, [1, 2, 3]))
"""
