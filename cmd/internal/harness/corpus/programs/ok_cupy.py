"""Image processing with CuPy: images of different sizes are sharpened in the frequency domain.

Innocent: CuPy's memory pool and its cache of FFT plans grow until the largest images have been seen.
"""
from program import run

SIDES = [768, 1024, 1280, 1536, 2048]


def main(program):
    numpy = program.load("numpy")
    cupy = program.load("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        program.missing(f"CuPy finds no GPU: {error}")
    generator = numpy.random.default_rng(1)
    for _ in program.every(0.2):
        side = program.random.choice(SIDES)
        image = cupy.asarray(generator.random((side, side), dtype=numpy.float32))
        spectrum = cupy.fft.rfft2(image)
        frequency = cupy.hypot(cupy.fft.fftfreq(side)[:, None], cupy.fft.rfftfreq(side)[None, :])
        sharp = cupy.fft.irfft2(spectrum * (1 + frequency), s=image.shape)
        float(cupy.clip(sharp, 0, 1).mean())


if __name__ == "__main__":
    run(main, "innocent")
