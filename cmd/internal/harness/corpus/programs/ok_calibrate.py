"""A service that first calibrates and quantizes its model, for 15 % of the time, and then answers a request every 2 s.

Innocent: calibration needs up to 1.5 GiB. Afterwards the weights of one byte each remain, 190 MiB, and some
scratch memory.
"""
from program import run

LAYERS = 12
WIDTH = 4096
ROWS = 4096
SECONDS = 1.0


def main(program):
    torch = program.torch()

    def quantize(weight, inputs):
        hessian = inputs.T @ inputs / len(inputs)
        hessian.diagonal().add_(hessian.diagonal().mean() * 0.01 + 1e-3)
        scale = (weight * hessian.diagonal().sqrt()).abs().max() / hessian.diagonal().sqrt().mean() / 127
        return (weight / scale).round().clamp(-127, 127).to(torch.int8), scale.half()

    def calibrate():
        weights = [torch.randn(WIDTH, WIDTH, device="cuda") * 0.015 for _ in range(LAYERS)]
        inputs = torch.randn(ROWS, WIDTH, device="cuda")
        layers = []
        while weights:
            layers.append(quantize(weights[0], inputs))
            inputs = torch.tanh(inputs @ weights.pop(0).T)
            torch.cuda.synchronize()
            program.pause(SECONDS)
        return layers

    with torch.inference_mode():
        layers = calibrate()
        torch.cuda.empty_cache()
        for _ in program.every(2.0):
            hidden = torch.randn(program.random.randint(1, 8), WIDTH, device="cuda", dtype=torch.half)
            for weight, scale in layers:
                hidden = torch.tanh(hidden @ (weight.half() * scale).T)
            hidden.sum().item()


if __name__ == "__main__":
    run(main, "innocent")
