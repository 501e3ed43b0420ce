"""multiprocessing by fork and by spawn in a program that uses CUDA: tensors sent, results and exit codes told."""

import os
import signal
import subprocess
import sys

import torch
import torch.multiprocessing as mp


def work(rank, queue):
    torch.manual_seed(rank)
    x = torch.randn(64, 64, device="cuda")
    queue.put((rank, round((x @ x).sum().item(), 1)))


def on_cpu(number):
    return sum(i * i for i in range(number))


def fails():
    os._exit(7)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    print("cuda", torch.ones(4, device="cuda").sum().item(), flush=True)
    with mp.get_context("fork").Pool(4) as pool:
        print("forked pool", pool.map(on_cpu, range(1000, 1010)), flush=True)
    context = mp.get_context("spawn")
    queue = context.Queue()
    spawned = [context.Process(target=work, args=(rank, queue)) for rank in range(2)]
    for process in spawned:
        process.start()
    print("spawned", sorted(queue.get() for _ in spawned), flush=True)
    for process in spawned:
        process.join()
    print("spawned ended", [process.exitcode for process in spawned], flush=True)
    for target in (fails, killed):
        process = mp.get_context("fork").Process(target=target)
        process.start()
        process.join()
        print(target.__name__, process.exitcode, flush=True)
    small = "import torch; print(torch.zeros(2, device='cuda').tolist())"
    child = subprocess.run([sys.executable, "-c", small], capture_output=True, text=True)
    print("subprocess", child.returncode, child.stdout.strip(), child.stderr.strip(), flush=True)
    mp.spawn(spawned_by_torch, nprocs=2)
    sys.exit(5)


def spawned_by_torch(rank):
    assert torch.full((2,), rank, device="cuda").sum().item() == 2 * rank


if __name__ == "__main__":
    main()
