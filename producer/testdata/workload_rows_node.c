// workload_rows_node.c: rows of graphs that are built node by node.
#include "workload_rows_graph.h"

// A graph copies a child graph when it is added. A child that is added twice counts twice.
ROW(cuGraphAddChildGraphNode)
{
	CUfunction f = row_kernel();
	CUgraph g = captured(f), child = captured(f);
	CUgraphNode node;
	CALL(cuGraphAddChildGraphNode(&node, g, NULL, 0, child));
	CUgraphExec e = instance(g);
	shown("graph", e, f, 2 * recorded());
	drop(g);
	OK(cuGraphDestroy(child));
}

static CUDA_KERNEL_NODE_PARAMS node_params(CUfunction f)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = f, .gridDimX = 3, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1,
	};
}

static void add_kernel(CUgraph g, CUfunction f)
{
	CUDA_KERNEL_NODE_PARAMS params = node_params(f);
	CUgraphNode node;
	OK(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &params));
}

ROW(cuGraphAddKernelNode)
{
	CUfunction f = row_kernel();
	CUDA_KERNEL_NODE_PARAMS params = node_params(f);
	CUgraph g;
	CUgraphNode node;
	OK(cuGraphCreate(&g, 0));
	CALL(cuGraphAddKernelNode(&node, g, NULL, 0, &params));
	CUgraphExec e = instance(g);
	shown("graph", e, f, 1);
	drop(g);
}

ROW(cuGraphAddKernelNode_v2)
{
	CUfunction f = row_kernel();
	CUDA_KERNEL_NODE_PARAMS params = node_params(f);
	CUgraph g;
	CUgraphNode node;
	OK(cuGraphCreate(&g, 0));
	CALL(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &params));
	CUgraphExec e = instance(g);
	shown("graph", e, f, 1);
	drop(g);
}

// The second version of the struct may contain a CUkernel instead.
ROW_VARIANT(cuGraphAddKernelNode_v2, kernel)
{
	CUfunction f = row_kernel();
	CUDA_KERNEL_NODE_PARAMS params = node_params(NULL);
	CUgraph g;
	CUgraphNode node;
	params.kern = (CUkernel)f;
	OK(cuGraphCreate(&g, 0));
	CALL(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &params));
	CUgraphExec e = instance(g);
	shown("graph", e, f, 1);
	drop(g);
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(void)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = 1, .location = { CU_LOCATION_DEVICE, row.device } }, .bytesize = amount(7),
	};
}

// allocated launches a graph with one allocation node, whose memory stays live.
static CUdeviceptr allocated(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params();
	CUgraph g;
	CUgraphNode node;
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &params));
	OK(cuGraphLaunch(instance(g), NULL));
	drop(g);
	return params.dptr;
}

// Destroying a graph does not free the memory that its launches allocated.
static void shown_alloc(CUgraph g, CUfunction f, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUgraphExec e = instance(g);
	uint64_t before = stubTruth()->live_bytes;
	shown("graph", e, f, 1);
	say("graph_alloc=%#llx graph_bytes=%zu ", params->dptr, params->bytesize);
	drop(g);
	if (stubTruth()->live_bytes != before + params->bytesize)
		fail("the launch of a graph did not allocate");
	OK(cuMemFree_v2(params->dptr));
}

static void shown_free(CUgraph g, CUfunction f, CUdeviceptr d)
{
	uint64_t before = stubTruth()->live_bytes;
	shown("graph", instance(g), f, 1);
	say("graph_free=%#llx ", d);
	drop(g);
	if (stubTruth()->live_bytes != before - amount(7))
		fail("the launch of a graph did not free");
}

static CUgraph graph_with(CUfunction f)
{
	CUgraph g;
	OK(cuGraphCreate(&g, 0));
	add_kernel(g, f);
	return g;
}

ROW(cuGraphAddMemAllocNode)
{
	CUfunction f = row_kernel();
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params();
	CUgraph g = graph_with(f);
	CUgraphNode node;
	CALL(cuGraphAddMemAllocNode(&node, g, NULL, 0, &params));
	shown_alloc(g, f, &params);
}

ROW(cuGraphAddMemFreeNode)
{
	CUfunction f = row_kernel();
	CUdeviceptr d = allocated();
	CUgraph g = graph_with(f);
	CUgraphNode node;
	CALL(cuGraphAddMemFreeNode(&node, g, NULL, 0, d));
	shown_free(g, f, d);
}

// A graph with an allocation and its free allocates and frees on each launch.
ROW_VARIANT(cuGraphAddMemFreeNode, inside)
{
	CUfunction f = row_kernel();
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params();
	CUgraph g = graph_with(f);
	CUgraphNode node;
	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &params));
	CALL(cuGraphAddMemFreeNode(&node, g, NULL, 0, params.dptr));
	shown("graph", instance(g), f, 1);
	say("graph_alloc=%#llx graph_bytes=%zu graph_free=%#llx ", params.dptr, params.bytesize, params.dptr);
	drop(g);
}

// Both forms of the call that adds a node of any type.
#define ROW_NODE(symbol, ...)                                                                                          \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraphNodeParams params = { .type = CU_NODE_KERNEL, .kernel = node_params(f) };                       \
		CUgraph g;                                                                                             \
		CUgraphNode node;                                                                                      \
		OK(cuGraphCreate(&g, 0));                                                                              \
		CALL(symbol(&node, g, NULL, __VA_ARGS__, &params));                                                    \
		shown("graph", instance(g), f, 1);                                                                     \
		drop(g);                                                                                               \
	}                                                                                                              \
	ROW_VARIANT(symbol, kernel)                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraphNodeParams params = { .type = CU_NODE_KERNEL, .kernel = node_params(NULL) };                    \
		CUgraph g;                                                                                             \
		CUgraphNode node;                                                                                      \
		params.kernel.kern = (CUkernel)f;                                                                      \
		OK(cuGraphCreate(&g, 0));                                                                              \
		CALL(symbol(&node, g, NULL, __VA_ARGS__, &params));                                                    \
		shown("graph", instance(g), f, 1);                                                                     \
		drop(g);                                                                                               \
	}                                                                                                              \
	ROW_VARIANT(symbol, alloc)                                                                                     \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraphNodeParams params = { .type = CU_NODE_ALLOC, .alloc = alloc_params() };                         \
		CUgraph g = graph_with(f);                                                                             \
		CUgraphNode node;                                                                                      \
		CALL(symbol(&node, g, NULL, __VA_ARGS__, &params));                                                    \
		shown_alloc(g, f, &params.alloc);                                                                      \
	}                                                                                                              \
	ROW_VARIANT(symbol, free)                                                                                      \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraphNodeParams params = { .type = CU_NODE_FREE, .freed = allocated() };                             \
		CUgraph g = graph_with(f);                                                                             \
		CUgraphNode node;                                                                                      \
		CALL(symbol(&node, g, NULL, __VA_ARGS__, &params));                                                    \
		shown_free(g, f, params.freed);                                                                        \
	}                                                                                                              \
	ROW_VARIANT(symbol, child)                                                                                     \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g = captured(f), child = captured(f);                                                          \
		CUgraphNodeParams params = { .type = CU_NODE_CHILD, .child = child };                                  \
		CUgraphNode node;                                                                                      \
		CALL(symbol(&node, g, NULL, __VA_ARGS__, &params));                                                    \
		shown("graph", instance(g), f, 2 * recorded());                                                        \
		drop(g);                                                                                               \
		drop(child);                                                                                           \
	}
ROW_NODE(cuGraphAddNode, 0)
ROW_NODE(cuGraphAddNode_v2, NULL, 0)
