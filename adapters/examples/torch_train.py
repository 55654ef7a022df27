"""PyTorch on weir: the two lines that it takes, and what changes and what does not. Needs a GPU.

    WEIR_LIBRARY=.../lib PYTHONPATH=.../adapters/python python3 torch_train.py
"""
import torch
import weir.torch

weir.torch.install()

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x, y = torch.randn(256, 1024, device="cuda"), torch.randint(10, (256,), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}, {torch.cuda.memory_allocated() >> 20} MiB in use")

try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print(error)
