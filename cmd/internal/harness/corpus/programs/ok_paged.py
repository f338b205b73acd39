"""A server of a language model with a paged KV cache: one allocation of 4 GiB, divided into pages of 2 MiB.

Innocent: requests take pages from the program's own list and return them, and the allocation stays the same.
"""
from program import MIB, run

PAGES, PAGE = 2048, MIB  # numbers of 2 bytes
REQUESTS, WIDTH = 32, 1024


def main(program):
    torch = program.torch()
    model = torch.nn.Linear(WIDTH, WIDTH).cuda().half()
    pages = torch.zeros(PAGES, PAGE, dtype=torch.float16, device="cuda")
    free, requests = list(range(PAGES)), []
    with torch.no_grad():
        for _ in program.every(0.125):
            while len(requests) < REQUESTS:
                requests.append({"pages": [], "length": program.random.randint(8, 48)})
            for request in requests:
                request["pages"].append(free.pop())
            newest = torch.tensor([request["pages"][-1] for request in requests], device="cuda")
            keys = model(torch.randn(REQUESTS, WIDTH, dtype=torch.float16, device="cuda"))
            pages[newest] = keys.repeat(1, PAGE // WIDTH)
            first = torch.tensor([request["pages"][0] for request in requests], device="cuda")
            pages[first].mean(dim=1, dtype=torch.float32).tolist()
            for request in requests:
                if len(request["pages"]) == request["length"]:
                    free += request["pages"]
            requests = [request for request in requests if len(request["pages"]) < request["length"]]


if __name__ == "__main__":
    run(main, "innocent")
