"""A server that captures its model as a CUDA graph for each new request length and keeps all graphs.

Leak: lengths vary without limit, and each graph has a private pool, an input and an output. One request in eight has
a new length: about 40 MiB a minute.
"""
from program import run

NEW = 0.125


def capture(torch, model, rows):
    """Returns a graph of the model for one length, with its input and its output."""
    batch = torch.zeros(rows, 1024, device="cuda")
    model(batch)  # before a capture, the libraries must have loaded their kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(batch)
    return graph, batch, output


def reserved(torch):
    """Returns the bytes that PyTorch's pools cannot return."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024)).cuda()
    graphs, first = {}, None
    with torch.no_grad():
        for _ in program.every(0.25):
            if not graphs or program.random.random() < NEW:
                rows = program.random.randint(64, 4096)
            else:
                rows = program.random.choice(list(graphs))
            if rows not in graphs:
                graphs[rows] = capture(torch, model, rows)
            graph, batch, output = graphs[rows]
            batch.copy_(torch.randn(rows, 1024, device="cuda"))
            graph.replay()
            output.sum().item()
            if first is None:
                first = reserved(torch)
    return reserved(torch) - first


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
