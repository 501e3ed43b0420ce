"""training.py ID PROCESSES STEPS: a loop of the twin of JAX."""

import sys

import jax
from jax._src.array import ArrayImpl
from jax._src.distributed import global_state
from jax._src.interpreters import pxla

number, processes, steps = map(int, sys.argv[1:])
global_state.initialize(number, processes)


def compiled(name, batch, gives_state, where="/home/somebody/train.py"):
    state, data = pxla.Aval((16, 16)), pxla.Aval((batch, 16))
    info = pxla.AllArgsInfo([state, data], pxla.DebugInfo(("state", "batch"), f"{name} at {where}:12"))
    given = [state, pxla.Aval(())] if gives_state else [pxla.Aval(())]
    module = pxla.Module(f"jit_{name}")
    pxla.UnloadedMeshExecutable.from_hlo(f"jit({name})", module, [state, data], given, all_args_info=info)
    return jax.native.load_program(f"jit_{name}".encode())


own = compiled("add", 8, True, where=jax.__file__)  # JAX's own functions are no steps
train, evaluate = compiled("train", 8, True), compiled("evaluate", 8, False)
shown = ",".join(str(one << 17) for one in range(processes))
world = jax.native.make_communicator(shown.encode(), number)
results = set()
for step in range(steps):
    jax.native.start_program(own)
    if step == steps // 2:  # another shape of batches
        jax.native.delete_program(train)
        train = compiled("train", 4, True)
    results.add(jax.native.start_program(train))
    results.add(jax.native.communicate(world, 1000))
    if step % 4 == 0:
        results.add(jax.native.start_program(evaluate))
    ArrayImpl(3)._value  # noqa: B018  # read by the host
    ArrayImpl(3).block_until_ready()
pxla.batched_device_put(None, None, [ArrayImpl(3)])
global_state.shutdown()
sys.stdout.write(f"{number} of {processes}: {sorted(results)}\n")  # in one piece: others write there, too
