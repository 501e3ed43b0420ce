"""Small programs of packages that many use. Each does something real and prints what came out."""

TORCH = {
    "torch training step": """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, wanted = torch.randn(32, 8), torch.randn(32, 1)
for step in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.6f}")
print(torch.jit.script(torch.nn.Linear(2, 2)).code)
""",
    "torch loader of data": """
import torch, torch.distributed, torch.utils.data as d
numbers = d.TensorDataset(torch.arange(12))
if __name__ == "__main__":
    print([batch[0].tolist() for batch in d.DataLoader(numbers, batch_size=4, num_workers=2)])
""",
}

PACKAGES = {
    "numpy": "import numpy as n, numpy.random, numpy.fft\nprint(n.linalg.svd(n.arange(6.0).reshape(2, 3))[1],"
    " n.random.default_rng(1).normal(size=3), n.fft.fft([1, 2, 3]), n.polynomial.Polynomial([1, 2])(3))",
    "pandas": "import pandas as p\nf = p.DataFrame({'a': [1, 2, 3, 4], 'b': list('xyxy')})\n"
    "print(f.groupby('b').sum(), f.describe(), p.date_range('2020', periods=3), f.to_json(), f.to_csv())",
    "scipy": "import scipy.optimize, scipy.integrate, scipy.sparse, scipy.stats, scipy.signal\n"
    "print(scipy.optimize.minimize(lambda x: (x - 2) ** 2, 0).x.round(4), scipy.integrate.quad(lambda x: x, 0, 1)[0],"
    " scipy.stats.norm.cdf(1), scipy.sparse.eye(3).toarray(), scipy.signal.get_window('hann', 4))",
    "requests": "import requests\nr = requests.Request('GET', 'http://localhost/x', params={'a': 1}).prepare()\n"
    "print(r.url, r.headers)\ntry:\n    requests.get('http://127.0.0.1:9/', timeout=1)\n"
    "except requests.ConnectionError as error:\n    print(type(error))",
    "click": "import click\nfrom click.testing import CliRunner\n@click.command()\n"
    "@click.option('--name', default='you')\n"
    "def hello(name):\n    click.echo('hello ' + name)\n"
    "print(CliRunner().invoke(hello, ['--name', 'x']).output, CliRunner().invoke(hello, ['--help']).output)",
    "jinja2": "import jinja2\nprint(jinja2.Template('{% for x in y %}{{ x|upper }} {% endfor %}').render(y='abc'))\n"
    "print(jinja2.Environment(loader=jinja2.PackageLoader('flask', '.'), autoescape=True).list_templates()[:3])",
    "sympy": "import sympy as s\nx = s.symbols('x')\n"
    "print(s.integrate(s.sin(x) ** 2, x), s.solve(x ** 2 - 2), s.latex(x / 2))",
    "matplotlib": "import io, matplotlib.pyplot as p\nf, a = p.subplots()\na.plot([1, 2, 3])\na.set_title('t')\n"
    "b = io.BytesIO()\nf.savefig(b, format='svg', metadata={'Date': None})\nprint(len(b.getvalue()) > 1000)\n"
    "c = io.BytesIO()\nf.savefig(c, format='png')\nimport zlib; print(zlib.crc32(c.getvalue()))",
    "sqlalchemy": "import sqlalchemy as s\ne = s.create_engine('sqlite://')\nm = s.MetaData()\n"
    "t = s.Table('t', m, s.Column('a', s.Integer))\nm.create_all(e)\nwith e.begin() as c:\n"
    "    c.execute(t.insert(), [{'a': 1}, {'a': 2}])\n    print(c.execute(s.select(s.func.sum(t.c.a))).scalar())",
    "pydantic": "import pydantic\nclass M(pydantic.BaseModel):\n    a: int\n    b: list[str] = []\n"
    "print(M(a='3', b=['x']),"
    " M.model_json_schema())\ntry:\n    M(a='no')\nexcept pydantic.ValidationError as error:\n    print(error)",
    "flask": "import flask\na = flask.Flask('x')\n@a.route('/<name>')\ndef f(name):\n"
    "    return flask.render_template_string('<b>{{ n }}</b>', n=name)\nprint(a.test_client().get('/you').data)",
    "networkx": "import networkx as n\ng = n.karate_club_graph()\nprint(n.shortest_path(g, 0, 33),"
    " round(n.pagerank(g)[0], 6), n.is_connected(g))",
    "scikit-learn": "from sklearn.datasets import load_iris\nfrom sklearn.ensemble import RandomForestClassifier\n"
    "x, y = load_iris(return_X_y=True)\nprint(RandomForestClassifier(10, random_state=0).fit(x, y).score(x, y))",
    "lxml": "from lxml import etree, html\nr = etree.fromstring('<a><b c=\"1\">t</b></a>')\nprint(r.xpath('//b/@c'),"
    " etree.tostring(r, pretty_print=True), html.fromstring('<p>x<p>y').text_content())",
    "aiohttp": "import aiohttp, asyncio\nfrom aiohttp import web\nasync def main():\n    async def f(r):\n"
    "        return web.json_response({'a': 1})\n    a = web.Application()\n    a.router.add_get('/', f)\n"
    "    r = web.AppRunner(a)\n    await r.setup()\n    s = web.TCPSite(r, '127.0.0.1', 0)\n    await s.start()\n"
    "    p = s._server.sockets[0].getsockname()[1]\n    async with aiohttp.ClientSession() as c:\n"
    "        async with c.get('http://127.0.0.1:%d/' % p) as x:\n            print(await x.json())\n"
    "    await r.cleanup()\n"
    "asyncio.run(main())",
    # Nothing that starts Arrow's threads: the bare program then aborts at its end now and then on a busy machine.
    "pyarrow": "import pyarrow as a, pyarrow.parquet as q\nt = a.table({'x': [1, 2]})\n"
    "print(t.to_pydict(), q.ParquetFile.__name__, t.schema)",
    "polars": "import polars\nprint(polars.DataFrame({'a': [1, 2, 3]}).select(polars.col('a').sum()))",
    "h5py, pillow, yaml": "import h5py, io, PIL.Image, yaml\n"
    "f = h5py.File('x', 'w', driver='core', backing_store=False)\n"
    "f['a'] = [1, 2]\nprint(f['a'][:], yaml.safe_load('a: [1, 2]'), PIL.Image.new('L', (4, 4), 7).resize((2, "
    "2)).tobytes())",
    "cryptography, rich": "from cryptography.hazmat.primitives import hashes\nh = hashes.Hash(hashes.SHA256())\n"
    "h.update(b'x')\n"
    "print(h.finalize().hex())\nimport rich.table, rich.console, attrs, tqdm, fsspec\n"
    "t = rich.table.Table('a')\nt.add_row('1')\n"
    "rich.console.Console(width=20).print(t)\n"
    "print(attrs.make_class('C', ['x'])(1), fsspec.filesystem('memory').ls('/'))",
}
