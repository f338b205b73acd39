"""A training run with batches of 256 to 6144 rows, as they come, that records a part of the gradient of each step.

Leak: nobody reads the records. They are 0.5 MiB every 0.3 s, 3.3 MiB a minute, beside activations between 30 and
750 MiB.
"""
from program import run, tensor_bytes
from training import Training


def main(program):
    training = Training(program.torch())
    records = []
    for turn in program.every(0.3):
        loss = training.step(training.batch(program.random.randrange(256, 6145, 256)))
        records.append(training.model[0].weight.grad[:64].clone())
        if turn % 20 == 0:
            loss.item()
    return tensor_bytes(records)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
