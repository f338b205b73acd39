"""A training loop that captures its step as a CUDA graph and replays it.

Innocent: the graph's private pool is allocated at the capture and lives as long as the graph.
"""
from program import run
from training import Training


def main(program):
    torch = program.torch()
    training = Training(torch, capturable=True)
    batch = training.batch(512)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            training.step(batch)
    torch.cuda.current_stream().wait_stream(stream)
    training.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = training.step(batch)
    for turn in program.every(0.1):
        batch.copy_(training.batch(512))
        graph.replay()
        if turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
