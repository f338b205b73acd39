"""A training loop that every 10 s clones its state on the GPU and copies the clone to the CPU.

Innocent: the clone needs as much memory as the state, and the program releases it and empties the pool.
"""
from program import run
from training import Training

STEPS = 40


def checkpoint(torch, training):
    """Returns the state of the model and of its optimizer on the CPU."""
    clone = [value.clone() for value in training.model.state_dict().values()]
    for state in training.optimizer.state.values():
        clone += [value.clone() for value in state.values() if torch.is_tensor(value)]
    saved = [value.cpu() for value in clone]
    del clone
    torch.cuda.empty_cache()
    return saved


def main(program):
    torch = program.torch()
    training = Training(torch, width=3072)
    newest = None
    for turn in program.every(0.25):
        training.step(training.batch(512))
        if turn % STEPS == STEPS - 1:
            newest = checkpoint(torch, training)
    del newest


if __name__ == "__main__":
    run(main, "innocent")
