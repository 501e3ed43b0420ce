"""A whole training step captured as a CUDA graph and replayed, and make_graphed_callables."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows, labels = torch.randn(64, 512, device="cuda"), torch.randint(16, (64,), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(rows), labels)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(200):
    graph.replay()
torch.cuda.synchronize()
print(f"after 200 replays loss {loss.item():.4f}")
callables = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (torch.randn(8, 64, device="cuda"),))
print("graphed callable", tuple(callables(torch.ones(8, 64, device="cuda")).shape))
