"""A Triton kernel with four configurations, for the program that tunes it. Triton reads the source from this file."""
import triton
import triton.language as tl


def measure(call, quantiles):
    """Measures one configuration for about 2 ms. Triton's own 125 ms would launch thousands of kernels."""
    return triton.testing.do_bench(call, warmup=1, rep=1, quantiles=quantiles)


CONFIGURATIONS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 2), (512, 4), (1024, 4), (2048, 8))]


@triton.autotune(configs=CONFIGURATIONS, key=["count"], do_bench=measure)
@triton.jit
def activate(data, result, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(data + at, mask=inside)
    tl.store(result + at, value * tl.sigmoid(1.702 * value), mask=inside)


def apply(data, result):
    """Writes the activation of data to result, two GPU tensors of equal length."""
    count = data.numel()
    activate[lambda choice: (triton.cdiv(count, choice["BLOCK"]),)](data, result, count)
