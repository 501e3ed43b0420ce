"""A DataLoader whose workers are forked after CUDA's start, twice: fresh workers for each epoch, and pinned memory."""

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, at):
        return torch.full((256,), float(at)), at % 10


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = DataLoader(Squares(), batch_size=32, num_workers=3, pin_memory=True, multiprocessing_context="fork")
    for epoch in range(3):
        total = 0.0
        for rows, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(rows.cuda(non_blocking=True)), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.2f}", flush=True)


if __name__ == "__main__":
    main()
