"""A spectrum analyser with CuPy for signals of many lengths.

Innocent: CuPy keeps the plans of the last 8 lengths, and its pool keeps what was freed, up to about 0.5 GiB.
"""
import ctypes
import glob
import importlib.util
import os

from program import run

PLANS = 8
SHORTEST = 1 << 16
LONGEST = 1 << 21


def preload(name):
    """Loads a library of CUDA's from the packages that PyTorch depends on."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else []:
        for file in sorted(glob.glob(os.path.join(folder, "*", "lib", f"lib{name}.so.*"))):
            try:
                ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
            except OSError:
                pass


def main(program):
    cupy = program.load("cupy")
    if not cupy.cuda.is_available():
        program.missing("CuPy finds no GPU")

    def check():
        cupy.fft.fft(cupy.zeros(1024, dtype=cupy.complex64))

    try:
        check()
    except (ImportError, RuntimeError, OSError):
        preload("cufft")
        try:
            check()
        except (ImportError, RuntimeError, OSError) as error:
            program.missing(f"cuFFT for CuPy: {error}")
    program.load("cupy.fft.config").get_plan_cache().set_size(PLANS)
    lengths = [program.random.randrange(SHORTEST, LONGEST, 1 << 12) for _ in range(40)]
    for turn in program.every(0.2):
        length = program.random.choice(lengths)
        signal = cupy.sin(cupy.arange(length, dtype=cupy.float32) * cupy.float32(0.01 + 0.001 * (turn % 50)))
        spectrum = cupy.fft.fft(signal)
        spectrum *= cupy.float32(0.5)
        power = float(cupy.abs(cupy.fft.ifft(spectrum)).max())
        del signal, spectrum, power


if __name__ == "__main__":
    run(main, "innocent")
