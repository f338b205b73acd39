"""A training run with a forward hook that collects activations for a histogram, which is drawn only in the first epoch.

Leak: nobody removes the hook or empties its list. It keeps 1.5 MiB a step, every 0.25 s: 12 MiB a minute.
"""
from program import run, tensor_bytes
from training import Training

EPOCH = 20


def main(program):
    training = Training(program.torch(), width=1024, layers=6)
    activations = []

    def remember(module, inputs, output):
        activations.append(output.detach())

    training.model[4].register_forward_hook(remember)
    for turn in program.every(0.25):
        loss = training.step(training.batch(384))
        if turn == EPOCH:
            training.torch.stack(activations).std().item()
        if turn % EPOCH == 0:
            loss.item()
    return tensor_bytes(activations)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
