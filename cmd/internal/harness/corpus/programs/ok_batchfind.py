"""A training run that doubles its batch until it runs out of memory, and goes on with the last batch that fit.

Innocent: the search takes 15 % of the time. The process may use 4 GiB. Afterwards the batch is constant.
"""
from program import run
from training import Training

LIMIT = 4 << 30
TRIES = 3


def main(program):
    torch = program.torch()
    torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT / torch.cuda.get_device_properties(0).total_memory))
    training = Training(torch)
    rows, searching = 64, True
    for turn in program.every(0.4):
        failed = False
        try:
            loss = training.step(training.batch(rows))
            torch.cuda.synchronize()
        except torch.cuda.OutOfMemoryError:
            failed = True
        if failed:
            loss = None
            training.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            rows = max(64, rows // 2)
            searching = False
        elif searching and turn % TRIES == TRIES - 1:
            rows *= 2
        elif turn % 20 == 0:
            loss.item()


if __name__ == "__main__":
    run(main, "innocent")
