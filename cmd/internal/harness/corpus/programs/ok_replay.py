"""Reinforcement learning with a replay buffer on the GPU.

Innocent: the buffer takes 4 MiB every 0.125 s until it holds 200 observations, after 25 s. Then each new one replaces
the oldest.
"""
import collections

from program import run

CAPACITY, SAMPLES, ACTIONS = 200, 8, 16
FRAMES, SIDE = 16, 512


def main(program):
    torch = program.torch()
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(FRAMES, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, ACTIONS),
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    memory = collections.deque(maxlen=CAPACITY)
    for _ in program.every(0.125):
        observation = torch.randint(0, 256, (FRAMES, SIDE, SIDE), dtype=torch.uint8, device="cuda")
        memory.append((observation, program.random.randrange(ACTIONS)))
        observations, actions = zip(*program.random.choices(memory, k=SAMPLES))
        values = model(torch.stack(observations).float() / 255)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(values, torch.tensor(actions, device="cuda")).backward()
        optimizer.step()


if __name__ == "__main__":
    run(main, "innocent")
