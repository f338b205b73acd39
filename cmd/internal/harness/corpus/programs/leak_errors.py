"""An inference service that queues the requests whose client timed out, so as to repeat them.

Leak: nothing ever takes them out of the queue. 5 % of the requests, one every 0.1 s, leave 9 MiB each there, the input
and the features: 9 MiB a minute.
"""
from program import run, tensor_bytes

ROWS = 768


def main(program):
    torch = program.torch()
    body = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)).cuda()
    head = torch.nn.Linear(2048, 16).cuda()
    repeat = []

    def answer(features):
        scores = head(features).mean(dim=0).tolist()
        if program.random.random() < 0.05:
            raise TimeoutError("the client is gone")
        return scores

    with torch.no_grad():
        for _ in program.every(0.1):
            request = torch.randn(ROWS, 1024, device="cuda")
            features = body(request)
            try:
                answer(features)
            except TimeoutError:
                repeat.append((request, features))
    return sum(tensor_bytes(pair) for pair in repeat)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
