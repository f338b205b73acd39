"""CUDA's driver API through ctypes, for the programs that use no framework."""
import ctypes

# Adds 1 to each of count floats. The driver compiles it for the GPU at load.
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry increment(.param .u64 data, .param .u32 count)
{
    .reg .pred %past;
    .reg .b32 %index, %block, %width, %count;
    .reg .b64 %base, %offset;
    .reg .f32 %value;
    ld.param.u64 %base, [data];
    ld.param.u32 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.s32 %index, %block, %width, %index;
    setp.ge.u32 %past, %index, %count;
    @%past bra done;
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %offset, %index, 4;
    add.s64 %base, %base, %offset;
    ld.global.f32 %value, [%base];
    add.f32 %value, %value, 0f3F800000;
    st.global.f32 [%base], %value;
done:
    ret;
}
"""
THREADS = 256


class Driver:
    """The primary context of GPU 0. Each method raises RuntimeError with the CUDA error number."""

    def __init__(self, program):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
            self.call("cuInit", 0)
        except (OSError, RuntimeError) as error:
            program.missing(f"the NVIDIA driver: {error}")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.bind()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"increment")

    def bind(self):
        """Makes the context current in the calling thread."""
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        """Calls one function of the driver."""
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def alloc(self, count):
        """Allocates count bytes and returns their address on the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        return address

    def free(self, address):
        """Frees what alloc returned."""
        self.call("cuMemFree_v2", address)

    def upload(self, address, data):
        """Copies bytes to the GPU."""
        self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))

    def download(self, address, count):
        """Copies count bytes from the GPU and returns them."""
        data = ctypes.create_string_buffer(count)
        self.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(count))
        return data.raw

    def increment(self, address, count):
        """Launches a kernel that adds 1 to count floats."""
        number = ctypes.c_uint32(count)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(number))
        blocks = (count + THREADS - 1) // THREADS
        self.call("cuLaunchKernel", self.kernel, blocks, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
