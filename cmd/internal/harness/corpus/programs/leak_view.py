"""A signal monitor with CuPy that keeps one row of each spectrogram.

Leak: the row is a view, so the pool can't take back the other 255 rows. They are 4 MiB every 0.25 s: 32 MiB a minute.
"""
from program import run

ROWS = 256
COLUMNS = 4096


def main(program):
    cupy = program.load("cupy")
    if not cupy.cuda.is_available():
        program.missing("CuPy finds no GPU")
    times = cupy.arange(COLUMNS, dtype=cupy.float32).reshape(1, COLUMNS)
    rates = cupy.arange(ROWS, dtype=cupy.float32).reshape(ROWS, 1)
    rows, leaked = [], 0
    for turn in program.every(0.25):
        spectrogram = cupy.sin(times * rates + cupy.float32(turn))
        row = spectrogram[turn % ROWS]
        rows.append(row)
        leaked += spectrogram.nbytes - row.nbytes
        if turn % 20 == 0:
            float(row.max())
    return leaked


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
