"""A model with its optimizer, for the programs that train."""


class Training:
    """Trains a multilayer perceptron with AdamW on the GPU: about 40 kernel launches and 300 MiB."""

    def __init__(self, torch, width=2048, layers=4, capturable=False):
        self.torch = torch
        self.width = width
        blocks = [(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(layers)]
        self.model = torch.nn.Sequential(*[module for block in blocks for module in block]).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, capturable=capturable)

    def batch(self, rows):
        """Returns random input."""
        return self.torch.randn(rows, self.width, device="cuda")

    def loss(self, batch):
        """Returns how badly the model reproduces the batch."""
        return (self.model(batch) - batch).square().mean()

    def step(self, batch):
        """Updates the model once and returns the loss, which remains on the GPU."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
