"""A viewer of medical images that keeps each image in a CUDA array for its texture unit.

Leak: closing an image destroys its texture but not its array. 4 MiB a second, 8 MiB a minute.
"""
import ctypes

from driver import Driver
from program import MIB, run

SIDE, CHANNELS = 512, 4
IMAGE = SIDE * SIDE * CHANNELS * 4
FLOAT, HOST, ARRAY = 0x20, 1, 3  # CU_AD_FORMAT_FLOAT, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY


class Shape(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR"""
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


class Side(ctypes.Structure):
    """One half of CUDA_MEMCPY2D"""
    _fields_ = [("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("type", ctypes.c_int), ("host", ctypes.c_void_p),
                ("device", ctypes.c_uint64), ("array", ctypes.c_void_p), ("pitch", ctypes.c_size_t)]


class Copy(ctypes.Structure):
    """CUDA_MEMCPY2D"""
    _fields_ = [("source", Side), ("destination", Side), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


def open_image(driver, pixels):
    """Returns a new array with the pixels."""
    array = ctypes.c_void_p()
    driver.call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(Shape(SIDE, SIDE, FLOAT, CHANNELS)))
    row = SIDE * CHANNELS * 4
    copy = Copy(
        Side(type=HOST, host=ctypes.addressof(pixels), pitch=row), Side(type=ARRAY, array=array), row, SIDE)
    driver.call("cuMemcpy2D_v2", ctypes.byref(copy))
    return array


def main(program):
    driver = Driver(program)
    pixels = ctypes.create_string_buffer(IMAGE)
    histogram = driver.alloc(MIB)
    images = 0
    for _ in program.every(1):
        open_image(driver, pixels)
        images += 1
        driver.increment(histogram, MIB // 4)
        driver.download(histogram, 1024)
    return (images - 1) * IMAGE


if __name__ == "__main__":
    run(main, "leak", ["growing", "suspect"])
