// stub_launch.c: kernels and host functions, run or recorded.
#include "stub_internal.h"

// launch takes no lock and reads no clock, because programs call it millions of times per second. The launch of an
// unknown handle counts only as a call.
static inline CUresult launch(const void *handle, CUstream stream, bool per_thread)
{
	if (!handle)
		return CUDA_ERROR_INVALID_HANDLE;
	struct graph *g = recording(stream, per_thread);
	if (g)
		return graph_add(g, NULL, NODE_KERNEL, handle, 0) ?: RECORDED;
	struct handle *h = known_handle(handle);
	if (h && h->counter)
		add(&h->counter->launches, 1);
	return CUDA_SUCCESS;
}

TWINS(cuLaunchKernel, _ptsz, STUB_LAUNCH, 0,
      ((void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes, (void)params, (void)extra,
       launch(f, stream, per_thread)))

TWINS(cuLaunchCooperativeKernel, _ptsz, STUB_COOPERATIVE, 0,
      ((void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes, (void)params,
       launch(f, stream, per_thread)))

TWINS(cuLaunchKernelEx, _ptsz, (const CUlaunchConfig *config, CUfunction f, void **params, void **extra), 0,
      ((void)params, (void)extra, launch(f, config ? config->hStream : NULL, per_thread)))

static CUresult launch_many(const CUDA_LAUNCH_PARAMS *list, unsigned n)
{
	CUresult rc = list && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; rc <= CUDA_SUCCESS && i < n; i++)
		rc = launch(list[i].function, list[i].hStream, false);
	return rc;
}

API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
	BODY(cuLaunchCooperativeKernelMultiDevice, 0, ((void)flags, launch_many(list, n)))

API CUresult cuLaunch(CUfunction f)
	BODY(cuLaunch, 0, launch(f, NULL, false))

API CUresult cuLaunchGrid(CUfunction f, int width, int height)
	BODY(cuLaunchGrid, 0, ((void)width, (void)height, launch(f, NULL, false)))

API CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
	BODY(cuLaunchGridAsync, 0, ((void)width, (void)height, launch(f, stream, false)))

// A host function runs at once, on the thread that submits it.
static CUresult run_on_host(CUstream stream, CUhostFn function, void *data, bool per_thread)
{
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph *g = recording(stream, per_thread);
	if (g)
		return graph_add(g, NULL, NODE_OTHER, NULL, 0) ?: RECORDED;
	function(data);
	return CUDA_SUCCESS;
}

TWINS(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void *data), 0,
      run_on_host(stream, function, data, per_thread))

static CUresult submit(CUgraphExec exec, CUstream stream, bool per_thread)
{
	struct graph *g = recording(stream, per_thread);
	return g ? graph_record_launch(g, exec) : graph_launch(exec);
}

TWINS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), 0, submit(exec, stream, per_thread))

TWINS(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), 0,
      ((void)stream, exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE))
