"""Reinforcement learning with an actor in a thread of its own, which appends what it saw to the replay memory.

Leak: the memory has no limit, though the learner samples only from the last 40 entries. It keeps 1.7 MiB every 0.2 s:
17 MiB a minute.
"""
import threading

from program import run, tensor_bytes

GAMES = 64
ACTIONS = 6
RECENT = 40


def main(program):
    torch = program.torch()
    nn = torch.nn
    policy = nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS)).cuda()
    optimizer = torch.optim.Adam(policy.parameters())
    memory, done = [], threading.Event()

    def act():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            while not done.is_set():
                frames = torch.randint(0, 256, (GAMES, 4, 84, 84), dtype=torch.uint8, device="cuda")
                actions = policy(frames.float() / 255).argmax(dim=1)
                stream.synchronize()
                memory.append((frames, actions))
                done.wait(0.2)

    torch.cuda.synchronize()
    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    for turn in program.every(0.25):
        if not memory:
            continue
        frames, actions = program.random.choice(memory[-RECENT:])
        values = policy(frames.float() / 255).gather(1, actions.unsqueeze(1))
        loss = (values - 1).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if turn % 20 == 0:
            loss.item()
    done.set()
    actor.join()
    return sum(tensor_bytes(entry) for entry in memory[:-RECENT])


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
