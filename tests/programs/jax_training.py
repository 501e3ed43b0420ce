"""A training in JAX on several processes, one of which may be late. What it did is written down for who checks it.

python jax_training.py ID PROCESSES PORT --model mlp --steps 60 --late 2 --delay-ms 20 --how sleep --truth folder
"""

import argparse
import json
import re
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("process_id", type=int)
parser.add_argument("processes", type=int)
parser.add_argument("port", type=int)
parser.add_argument("--model", choices=("mlp", "transformer"), default="mlp")
parser.add_argument("--collectives", default="gloo")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--late", type=int, default=-1, help="process that is late in every step")
parser.add_argument("--delay-ms", type=float, default=20)
parser.add_argument("--how", choices=("sleep", "compute", "input"), default="sleep")
parser.add_argument("--look-every", type=int, default=1, help="steps after which the loss is read; 0: after the last")
parser.add_argument("--shapes", type=int, default=1, help="of batches: each new one is compiled")
parser.add_argument("--plan", type=json.loads, default=[], help="[[late, delay in ms, how], …], each for --steps steps")
parser.add_argument("--truth", help="folder for what this process knows of itself")
options = parser.parse_args()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", options.collectives)
if options.collectives == "mpi":  # JAX calls MPI from the thread that has initialised it only
    jax.config.update("jax_cpu_enable_async_dispatch", False)
jax.distributed.initialize(
    f"127.0.0.1:{options.port}", num_processes=options.processes, process_id=options.process_id, local_device_ids=[0]
)

WIDTH, LAYERS, WORDS = 128, 4, 32
COLLECTIVE = re.compile(r"= .*? (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)\(([^)]*)\)")


def placed(mesh, value, *axes):
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


class Mlp:
    """Data-parallel: the gradient of every layer is summed over all processes."""

    def __init__(self, random):
        self.mesh = Mesh(np.array(jax.devices()), ("data",))
        layers = [random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
        self.params = [placed(self.mesh, layer) for layer in layers]

    def batch(self, random, rows):
        whole = random.normal(size=(rows * options.processes, WIDTH)).astype(np.float32)
        return placed(self.mesh, whole, "data")

    @staticmethod
    def loss(params, batch):
        at = batch
        for layer in params:
            at = jnp.tanh(at @ layer)
        return jnp.mean((at - batch) ** 2)


class Transformer:
    """Two layers on a mesh of data × model: weights are split over the model's axis, batches over the other."""

    def __init__(self, random):
        shape = (options.processes // 2, 2) if options.processes % 2 == 0 else (options.processes, 1)
        self.mesh = Mesh(np.array(jax.devices()).reshape(shape), ("data", "model"))
        self.params = [self._layer(random) for _ in range(2)]

    def _layer(self, random):
        def weights(rows, columns, *axes):
            return placed(self.mesh, random.normal(0, 0.05, (rows, columns)).astype(np.float32), *axes)

        return {
            "qkv": weights(WIDTH, 3 * WIDTH, None, "model"),
            "out": weights(WIDTH, WIDTH, "model", None),
            "up": weights(WIDTH, 4 * WIDTH, None, "model"),
            "down": weights(4 * WIDTH, WIDTH, "model", None),
        }

    def batch(self, random, rows):
        whole = random.normal(size=(rows * options.processes // 4, WORDS, WIDTH)).astype(np.float32)
        return placed(self.mesh, whole, "data")

    @staticmethod
    def loss(params, batch):
        at = batch
        for layer in params:
            query, key, value = jnp.split(at @ layer["qkv"], 3, axis=-1)
            scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", query, key) / WIDTH**0.5)
            at = at + jnp.einsum("bqk,bkd->bqd", scores, value) @ layer["out"]
            at = at + jax.nn.gelu(at @ layer["up"]) @ layer["down"]
        return jnp.mean((at - batch) ** 2)


random = np.random.default_rng(0)
model = {"mlp": Mlp, "transformer": Transformer}[options.model](random)


@jax.jit
def train_step(params, batch):
    loss, gradients = jax.value_and_grad(model.loss)(params, batch)
    return jax.tree.map(lambda value, gradient: value - 0.01 * gradient, params, gradients), loss


plan = options.plan or [(options.late, options.delay_ms, options.how)]
steps = len(plan) * options.steps


def be_late(number, how):
    late, delay_ms, planned = plan[number // options.steps]
    if options.process_id != late or planned != how:
        return
    if how == "compute":
        until = time.perf_counter() + delay_ms / 1e3
        while time.perf_counter() < until:
            np.linalg.norm(np.ones(2000))
    else:
        time.sleep(delay_ms / 1e3)


def next_batch(number):
    be_late(number, "input")
    return batches[number % len(batches)]


batches = [model.batch(random, 32 + 16 * shape) for shape in range(options.shapes)]
params, loss = model.params, None
losses, begins = [], []
cpu_s = 0.0
for number in range(steps):
    begins.append(time.time_ns())
    cpu_s = cpu_s or time.process_time()
    batch = next_batch(number)
    be_late(number, "sleep")
    be_late(number, "compute")
    params, loss = train_step(params, batch)
    if options.look_every and number % options.look_every == 0:
        losses.append(round(float(loss), 6))
loss.block_until_ready()
ended, cpu_s = time.time_ns(), time.process_time() - cpu_s
# in one piece: others write there, too
sys.stdout.write(f"process {options.process_id}: loss {float(loss):.6f} after {steps} steps\n")
sys.stdout.flush()
if options.truth:
    collectives = [
        (name, 1 if name == "all-to-all" else operands.count("%") or 1)  # that is one, with a part for each
        for batch in batches
        for name, operands in COLLECTIVE.findall(train_step.lower(params, batch).compile().as_text())
    ]
    told = {
        "steps": steps,
        "loop_s": (ended - begins[0]) / 1e9,
        "loop_cpu_s": cpu_s,
        "begins_ns": begins,
        "collectives_a_step": sum(count for _, count in collectives) / len(batches),
        "names": sorted({name for name, _ in collectives}),
        "left_ns": time.time_ns(),
    }
    with open(f"{options.truth}/{options.process_id}.json", "w", encoding="utf-8") as file:
        json.dump(told, file)
