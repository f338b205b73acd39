"""A server of 8 threads, each with its CUDA stream, that share one model. One thread keeps its results.

Leak: worker-5 keeps 2 MiB every 0.4 s, 10 MiB a minute. The other threads release theirs.
"""
import concurrent.futures

from program import run, set_thread_name, tensor_bytes

THREADS, LEAKING = 8, 5


def serve(program, torch, model, number):
    """Runs one thread and returns the results that it still holds."""
    set_thread_name(f"worker-{number}")
    results = []
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        for _ in program.every(0.4):
            result = model(torch.randn(512, 1024, device="cuda"))
            result.sum().item()
            if number == LEAKING:
                results.append(result)
    return results


def main(program):
    torch = program.torch()
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
    torch.cuda.synchronize()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        work = [pool.submit(serve, program, torch, model, number) for number in range(THREADS)]
        results = [thread.result() for thread in work]
    return sum(tensor_bytes(of_thread) for of_thread in results)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
