"""A chat server that appends a block of 4 MiB to a session's list of KV blocks for each part of a conversation.

Leak: one client in four disconnects without closing, and its blocks remain. About 18 MiB a minute.
"""
from program import MIB, run, tensor_bytes

OPEN = 6


def main(program):
    torch = program.torch()
    model = torch.nn.Linear(1024, 1024).cuda()
    sessions, abandoned = [], []
    with torch.no_grad():
        for _ in program.every(0.125):
            while len(sessions) < OPEN:
                sessions.append({"blocks": [], "length": program.random.randint(4, 12)})
            number = program.random.randrange(OPEN)
            session = sessions[number]
            session["blocks"].append(torch.zeros(4 * MIB // 2, dtype=torch.float16, device="cuda"))
            model(torch.randn(8, 1024, device="cuda")).argmax().item()
            if len(session["blocks"]) < session["length"]:
                continue
            del sessions[number]
            if program.random.random() < 0.25:
                abandoned.append(session)
    return sum(tensor_bytes(session["blocks"]) for session in abandoned)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
