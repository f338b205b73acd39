// workload_rows_launch.c: rows of launches, and of modules, libraries and names, whose effect later launches show.
#include <string.h>

#include "workload_rows.h"

#define U(k) ((unsigned)value(k))

static void say_launch(CUfunction f)
{
	say("kind=launch op=launch func=%p name=%s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%#lx ", (void *)f,
	    row_kernel_name(), U(1), U(2), U(3), U(4), U(5), U(6), U(7), value(9));
}

#define ROW_LAUNCH(symbol, ...)                                                                                        \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CALL(symbol(f, U(1), U(2), U(3), U(4), U(5), U(6), U(7), PLACE(CUstream, 9), __VA_ARGS__));            \
		say_launch(f);                                                                                         \
	}
ROW_LAUNCH(cuLaunchKernel, NULL, NULL)
ROW_LAUNCH(cuLaunchKernel_ptsz, NULL, NULL)
ROW_LAUNCH(cuLaunchCooperativeKernel, NULL)
ROW_LAUNCH(cuLaunchCooperativeKernel_ptsz, NULL)

#define ROW_LAUNCH_EX(symbol)                                                                                          \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUlaunchConfig config = { U(1), U(2), U(3), U(4), U(5), U(6), U(7), PLACE(CUstream, 9), NULL, 0 };     \
		CALL(symbol(&config, f, NULL, NULL));                                                                  \
		say_launch(f);                                                                                         \
	}
ROW_LAUNCH_EX(cuLaunchKernelEx)
ROW_LAUNCH_EX(cuLaunchKernelEx_ptsz)

ROW(cuLaunchCooperativeKernelMultiDevice)
{
	CUfunction f = row_kernel();
	CUDA_LAUNCH_PARAMS list[2] = {
		{ f, U(1), U(2), U(3), U(4), U(5), U(6), U(7), PLACE(CUstream, 9), NULL },
		{ f, U(11), U(12), U(13), U(14), U(15), U(16), U(17), PLACE(CUstream, 19), NULL },
	};
	CALL(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
	say_launch(f);
	say("launches=2 grid2=%u,%u,%u block2=%u,%u,%u shared2=%u stream2=%#lx ", U(11), U(12), U(13), U(14), U(15),
	    U(16), U(17), value(19));
}

static void say_old_launch(CUfunction f, unsigned x, unsigned y)
{
	say("kind=launch op=launch func=%p name=%s grid=%u,%u,1 block=0,0,0 shared=0 ", (void *)f, row_kernel_name(), x,
	    y);
}

ROW(cuLaunch)
{
	CUfunction f = row_kernel();
	CALL(cuLaunch(f));
	say_old_launch(f, 1, 1);
}

ROW(cuLaunchGrid)
{
	CUfunction f = row_kernel();
	CALL(cuLaunchGrid(f, (int)U(1), (int)U(2)));
	say_old_launch(f, U(1), U(2));
}

ROW(cuLaunchGridAsync)
{
	CUfunction f = row_kernel();
	CALL(cuLaunchGridAsync(f, (int)U(1), (int)U(2), PLACE(CUstream, 9)));
	say_old_launch(f, U(1), U(2));
	say("stream=%#lx ", value(9));
}

static int host_calls;

static void on_host(void *data)
{
	host_calls += data != NULL;
}

#define ROW_HOST_FUNC(symbol)                                                                                          \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CALL(symbol(PLACE(CUstream, 9), on_host, &host_calls));                                                \
		say("kind=launch op=host_func func=%p name= grid=0,0,0 block=0,0,0 shared=0 stream=%#lx ",             \
		    (void *)on_host, value(9));                                                                        \
		if (!host_calls)                                                                                       \
			fail("the host function did not run");                                                         \
	}
ROW_HOST_FUNC(cuLaunchHostFunc)
ROW_HOST_FUNC(cuLaunchHostFunc_ptsz)

// gputap reads the name of a handle that it did not see created from the driver's memory. Rows unload nothing, because
// the name could not be read then.
ROW_VARIANT(cuLaunchKernel, unseen)
{
	CUlibrary library;
	CUkernel kernel;
	OK(cuLibraryLoadData(&library, "kernel row_unseen", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryEnumerateKernels(&kernel, 1, library));
	CALL(cuLaunchKernel((CUfunction)kernel, 1, 2, 3, 4, 5, 6, 7, PLACE(CUstream, 9), NULL, NULL));
	say("kind=launch op=launch func=%p name=row_unseen read=true grid=1,2,3 block=4,5,6 shared=7 stream=%#lx ",
	    (void *)kernel, value(9));
}

// named launches the kernel that a row has named. The event shows whether gputap knows the name.
static void named(const void *f, const char *name)
{
	say("kind= op=name func=%p name=%s ", f, name);
	LATER("launch", cuLaunchKernel((CUfunction)f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

ROW(cuLibraryGetKernel)
{
	CUkernel kernel;
	CALL(cuLibraryGetKernel(&kernel, row_library(), row_kernel_name()));
	named(kernel, row_kernel_name());
}

ROW(cuModuleGetFunction)
{
	CUmodule module;
	CUfunction f;
	OK(cuModuleLoadData(&module, "an image"));
	CALL(cuModuleGetFunction(&f, module, row_kernel_name()));
	named(f, row_kernel_name());
}

ROW(cuKernelGetFunction)
{
	CUkernel kernel = (CUkernel)row_kernel();
	CUfunction f;
	CALL(cuKernelGetFunction(&f, kernel));
	named(f, row_kernel_name());
}

ROW(cuKernelGetName)
{
	CUlibrary library;
	CUkernel kernel;
	const char *name;
	OK(cuLibraryLoadData(&library, "kernel row_cuKernelGetName", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryEnumerateKernels(&kernel, 1, library));
	CALL(cuKernelGetName(&name, kernel));
	named(kernel, name);
}

ROW(cuFuncGetName)
{
	CUmodule module;
	CUfunction f;
	const char *name;
	OK(cuModuleLoadData(&module, "kernel row_cuFuncGetName"));
	OK(cuModuleEnumerateFunctions(&f, 1, module));
	CALL(cuFuncGetName(&name, f));
	named(f, name);
}

/* What a kernel of an enumerated module is called stays told when another module goes. The list is longer than one
   record holds, and the kernel is its last. */
#define ROW_ENUMERATE(symbol, type, handle, load, name_of, unload)                                                     \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		type module, other;                                                                                    \
		handle list[700];                                                                                      \
		const char *name;                                                                                      \
		OK(load(&module, "kernel row_" #symbol));                                                              \
		OK(load(&other, "an image"));                                                                          \
		CALL(symbol(list, 700, module));                                                                       \
		OK(name_of(&name, list[699]));                                                                         \
		OK(unload(other));                                                                                     \
		named(list[699], name);                                                                                \
	}
#define LOAD_LIBRARY(library, image) cuLibraryLoadData(library, image, NULL, NULL, 0, NULL, NULL, 0)
ROW_ENUMERATE(cuModuleEnumerateFunctions, CUmodule, CUfunction, cuModuleLoadData, cuFuncGetName, cuModuleUnload)
ROW_ENUMERATE(cuLibraryEnumerateKernels, CUlibrary, CUkernel, LOAD_LIBRARY, cuKernelGetName, cuLibraryUnload)

ROW(cuLibraryGetModule)
{
	CUlibrary library;
	CUmodule module;
	CUfunction f;
	OK(cuLibraryLoadData(&library, "an image", NULL, NULL, 0, NULL, NULL, 0));
	CALL(cuLibraryGetModule(&module, library));
	OK(cuModuleGetFunction(&f, module, row_kernel_name()));
	named(f, row_kernel_name());
}

#define SAY_MODULE(operation, handle) say("kind=memory op=" operation " class= ptr=%#llx ", handle)

#define ROW_LOAD(symbol, type, unload, ...)                                                                            \
	ROW_SEEN(symbol)                                                                                               \
	{                                                                                                              \
		type m = (type)STALE;                                                                                  \
		CALL(symbol(&m, __VA_ARGS__));                                                                         \
		SAY_MODULE("module_load", OUT(m));                                                                     \
		if (!row.fail)                                                                                         \
			OK(unload(m));                                                                                 \
	}
ROW_LOAD(cuModuleLoad, CUmodule, cuModuleUnload, "/a/file.cubin")
ROW_LOAD(cuModuleLoadData, CUmodule, cuModuleUnload, "an image")
ROW_LOAD(cuModuleLoadDataEx, CUmodule, cuModuleUnload, "an image", 0, NULL, NULL)
ROW_LOAD(cuModuleLoadFatBinary, CUmodule, cuModuleUnload, "an image")
ROW_LOAD(cuLibraryLoadData, CUlibrary, cuLibraryUnload, "an image", NULL, NULL, 0, NULL, NULL, 0)
ROW_LOAD(cuLibraryLoadFromFile, CUlibrary, cuLibraryUnload, "/a/file.cubin", NULL, NULL, 0, NULL, NULL, 0)

ROW_SEEN(cuModuleUnload)
{
	CUmodule m;
	OK(cuModuleLoadData(&m, "an image"));
	CALL(cuModuleUnload(m));
	SAY_MODULE("module_unload", (unsigned long long)(uintptr_t)m);
	if (row.fail)
		OK(cuModuleUnload(m));
}

ROW_SEEN(cuLibraryUnload)
{
	CUlibrary m;
	OK(cuLibraryLoadData(&m, "an image", NULL, NULL, 0, NULL, NULL, 0));
	CALL(cuLibraryUnload(m));
	SAY_MODULE("module_unload", (unsigned long long)(uintptr_t)m);
	if (row.fail)
		OK(cuLibraryUnload(m));
}

// Lookups of driver functions. The host batch has their totals for the process.
#define ASKED "cuMemcpy3DBatchAsync"

ROW(cuGetProcAddress)
{
	void *address;
	CALL(cuGetProcAddress(ASKED, &address, 13000, 0));
	say("kind= op=coverage asked=" ASKED " ");
}

ROW(cuGetProcAddress_v2)
{
	void *address;
	int status;
	CALL(cuGetProcAddress_v2(ASKED, &address, 13000, 0, &status));
	say("kind= op=coverage asked=" ASKED " ");
}

ROW(cuGetExportTable)
{
	const void *table;
	CUuuid id;
	memset(&id, 0x5a, sizeof id);
	CALL(cuGetExportTable(&table, &id));
	say("kind= op=coverage export_tables=1 ");
}
