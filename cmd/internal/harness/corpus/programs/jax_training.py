"""Training with JAX, for the two programs that differ in how XLA takes its memory."""

WIDTH, LAYERS = 2048, 4


def train(program, rows):
    """Trains a multilayer perceptron. rows are the batch sizes, of which each step takes one at random."""
    numpy = program.load("numpy")
    jax = program.load("jax")
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        program.missing(f"JAX finds no GPU: {error}")

    def loss(weights, batch):
        output = batch
        for weight in weights:
            output = jax.nn.gelu(output @ weight)
        return ((output - batch) ** 2).mean()

    def step(weights, momenta, batch):
        gradients = jax.grad(loss)(weights, batch)
        momenta = [0.9 * momentum + gradient for momentum, gradient in zip(momenta, gradients)]
        return [weight - 0.01 * momentum for weight, momentum in zip(weights, momenta)], momenta

    compiled = jax.jit(step, donate_argnums=(0, 1))
    generator = numpy.random.default_rng(1)
    scale = numpy.float32(WIDTH ** -0.5)
    weights = [jax.device_put(generator.standard_normal((WIDTH, WIDTH), dtype=numpy.float32) * scale)
               for _ in range(LAYERS)]
    momenta = [jax.numpy.zeros_like(weight) for weight in weights]
    for _ in program.every(0.25):
        batch = generator.standard_normal((program.random.choice(rows), WIDTH), dtype=numpy.float32)
        weights, momenta = compiled(weights, momenta, jax.device_put(batch))
        weights[0].block_until_ready()
