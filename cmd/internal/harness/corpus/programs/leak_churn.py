"""A simulation that allocates and frees arrays of 1 to 48 MiB at random, with 0.5 to 1.5 GiB live.

Leak: it also keeps a snapshot of 4 MiB every 0.5 s, 16 MiB a minute, far less than its traffic.
"""
from program import MIB, run, tensor_bytes


def main(program):
    torch = program.torch()
    arrays, live, snapshots = [], 0, []
    target = 1024 * MIB
    for turn in program.every(0.1):
        if turn % 30 == 0:
            target = program.random.randint(512, 1536) * MIB
        for _ in range(3):
            if arrays and live > target:
                live -= tensor_bytes([arrays.pop(program.random.randrange(len(arrays)))])
            else:
                arrays.append(torch.zeros(program.random.randint(1, 48) * MIB, dtype=torch.uint8, device="cuda"))
                live += tensor_bytes([arrays[-1]])
        victim = program.random.randrange(len(arrays))
        live -= tensor_bytes([arrays.pop(victim)])
        if turn % 5 == 0:
            snapshots.append(torch.ones(4 * MIB, dtype=torch.uint8, device="cuda"))
    return tensor_bytes(snapshots)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
