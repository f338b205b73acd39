"""A simulation of particles with CuPy without its memory pool, so each array is an allocation of the driver.

Leak: the program keeps a copy of all positions of each step for a film that nobody makes. 640 KiB every 0.25 s, 5 MiB
a minute.
"""
from program import run

PARTICLES, SECONDS = 40960, 0.01


def main(program):
    numpy = program.load("numpy")
    cupy = program.load("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        program.missing(f"CuPy finds no GPU: {error}")
    cupy.cuda.set_allocator(None)
    generator = numpy.random.default_rng(1)
    positions = cupy.asarray(generator.random((PARTICLES, 4), dtype=numpy.float32))
    velocities = cupy.asarray(generator.random((PARTICLES, 4), dtype=numpy.float32))
    film = []
    for _ in program.every(0.25):
        velocities -= SECONDS * (positions - positions.mean(axis=0))
        positions += SECONDS * velocities
        float(cupy.abs(velocities).max())
        film.append(positions.copy())
    return sum(frame.nbytes for frame in film)


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
