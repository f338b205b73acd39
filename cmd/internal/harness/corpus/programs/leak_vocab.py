"""A recommender that learns online and adds an embedding for each visitor it does not know, with optimizer state.

Leak: it takes the session's number for the visitor's, so that it never uses an embedding twice. It keeps 0.5 MiB of
weights and 1 MiB of AdamW's moments every 0.25 s: 12 MiB a minute.
"""
from program import run, tensor_bytes

VISITORS = 256
WIDTH = 512


def main(program):
    torch = program.torch()
    head = torch.nn.Linear(WIDTH, 1).cuda()
    optimizer = torch.optim.AdamW(head.parameters())
    tables = []
    for turn in program.every(0.25):
        table = torch.nn.Parameter(torch.randn(VISITORS, WIDTH, device="cuda") * 0.02)
        tables.append(table)
        optimizer.add_param_group({"params": [table]})
        visitors = torch.randint(0, VISITORS, (1024,), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = head(torch.nn.functional.embedding(visitors, table)).square().mean()
        loss.backward()
        optimizer.step()
        if turn % 20 == 0:
            loss.item()
    moments = [value for table in tables for value in optimizer.state[table].values()]
    return tensor_bytes(tables) + tensor_bytes([value for value in moments if torch.is_tensor(value) and value.is_cuda])


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
