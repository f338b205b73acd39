// stub_graph.c: graphs and their nodes.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "stub_graph.h"

pthread_mutex_t graphs_mu;

struct graph graphs[GRAPHS_N], execs[GRAPHS_N];

void graph_reset(void)
{
	pthread_mutex_init(&graphs_mu, NULL);
	memset(graphs, 0, sizeof graphs);
	memset(execs, 0, sizeof execs);
}

struct graph *graph_find(struct graph *places, const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)places;
	if (at >= GRAPHS_N * sizeof *places || at % sizeof *places)
		return NULL;
	struct graph *g = &places[at / sizeof *places];
	return g->used ? g : NULL;
}

struct graph *graph_place(struct graph *places)
{
	for (struct graph *g = places; g < places + GRAPHS_N; g++) {
		if (g->used)
			continue;
		*g = (struct graph){ .used = true };
		return g;
	}
	return NULL;
}

struct graph *graph_of(CUgraph graph)
{
	pthread_mutex_lock(&graphs_mu);
	struct graph *g = graph_find(graphs, graph);
	pthread_mutex_unlock(&graphs_mu);
	return g;
}

struct graph *graph_new(void)
{
	pthread_mutex_lock(&graphs_mu);
	struct graph *g = graph_place(graphs);
	pthread_mutex_unlock(&graphs_mu);
	return g;
}

CUgraph graph_handle(struct graph *g)
{
	return (CUgraph)g;
}

CUresult graph_append(struct graph *g, struct node n)
{
	struct node *more = realloc(g->nodes, (g->nodes_n + 1) * sizeof *more);
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->nodes = more;
	more[g->nodes_n++] = n;
	return CUDA_SUCCESS;
}

void graph_drop(struct graph *g)
{
	for (size_t i = 0; i < g->nodes_n; i++)
		if (g->nodes[i].child)
			graph_drop(g->nodes[i].child);
	free(g->nodes);
	*g = (struct graph){ 0 };
}

static struct graph *copy(const struct graph *from);

// A child graph is copied when it is added.
static CUresult copy_into(struct graph *to, const struct graph *from)
{
	for (size_t i = 0; i < from->nodes_n; i++) {
		struct node n = from->nodes[i];
		if (n.child && !(n.child = copy(n.child)))
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (graph_append(to, n))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

static struct graph *copy(const struct graph *from)
{
	struct graph *to = graph_place(graphs);
	return to && copy_into(to, from) == CUDA_SUCCESS ? to : NULL;
}

static CUresult add_node(struct graph *g, CUgraphNode *node, struct node n)
{
	CUresult rc = graph_append(g, n);
	// The handle of a node is a number made of its graph and its index. It points to nothing.
	if (rc == CUDA_SUCCESS && node)
		*node = (CUgraphNode)((uintptr_t)g + 0x100000 * g->nodes_n);
	return rc;
}

CUresult graph_add(struct graph *g, CUgraphNode *node, enum node_kind kind, const void *what, uint64_t address)
{
	struct node n = { .kind = kind, .kernel = known_handle(what), .address = address };
	return GRAPHED(add_node(g, node, n));
}

// graph_record_alloc reserves addresses for memory that a launch will allocate.
CUresult graph_record_alloc(struct graph *g, CUgraphNode *node, CUdeviceptr *dptr, uint64_t bytes, int device)
{
	const struct context *owner = current_context();
	if (!owner)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!dptr || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	memory_lock();
	struct block *b = device_take(bytes, device, BLOCK_GRAPH, owner);
	if (b)
		b->class = STUB_CLASS_GRAPH;
	memory_unlock();
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*dptr = b->address;
	return graph_add(g, node, NODE_ALLOC, NULL, b->address) ?: RECORDED;
}

static CUresult create(CUgraph *graph)
{
	struct graph *g = graph ? graph_place(graphs) : NULL;
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = graph_handle(g);
	return CUDA_SUCCESS;
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
	BODY(cuGraphCreate, 0, flags ? CUDA_ERROR_INVALID_VALUE : GRAPHED(create(graph)))

static CUresult add_kernel(CUgraph graph, CUgraphNode *node, const void *handle)
{
	struct graph *g = graph_find(graphs, graph);
	if (!g || !node || !known_handle(handle))
		return CUDA_ERROR_INVALID_VALUE;
	return add_node(g, node, (struct node){ .kind = NODE_KERNEL, .kernel = known_handle(handle) });
}

static const void *kernel_of(const CUDA_KERNEL_NODE_PARAMS *params, bool second_form)
{
	if (!params)
		return NULL;
	return params->func || !second_form ? (const void *)params->func : (const void *)params->kern;
}

API CUresult cuGraphAddKernelNode STUB_NODE(const CUDA_KERNEL_NODE_PARAMS *params)
	BODY(cuGraphAddKernelNode, 0,
	     ((void)after, (void)after_n, GRAPHED(add_kernel(graph, node, kernel_of(params, false)))))

API CUresult cuGraphAddKernelNode_v2 STUB_NODE(const CUDA_KERNEL_NODE_PARAMS *params)
	BODY(cuGraphAddKernelNode_v2, 0,
	     ((void)after, (void)after_n, GRAPHED(add_kernel(graph, node, kernel_of(params, true)))))

static CUresult add_alloc(CUgraph graph, CUgraphNode *node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct graph *g = graph_of(graph);
	if (!g || !node || !params)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult rc = check_device(params->poolProps.location.id);
	if (rc)
		return rc;
	rc = graph_record_alloc(g, node, &params->dptr, params->bytesize, params->poolProps.location.id);
	return rc == RECORDED ? CUDA_SUCCESS : rc;
}

API CUresult cuGraphAddMemAllocNode STUB_NODE(CUDA_MEM_ALLOC_NODE_PARAMS *params)
	BODY(cuGraphAddMemAllocNode, 0, ((void)after, (void)after_n, add_alloc(graph, node, params)))

static CUresult add_free(CUgraph graph, CUgraphNode *node, CUdeviceptr dptr)
{
	struct graph *g = graph_find(graphs, graph);
	if (!g || !node || !dptr)
		return CUDA_ERROR_INVALID_VALUE;
	return add_node(g, node, (struct node){ .kind = NODE_FREE, .address = dptr });
}

API CUresult cuGraphAddMemFreeNode STUB_NODE(CUdeviceptr dptr)
	BODY(cuGraphAddMemFreeNode, 0, ((void)after, (void)after_n, GRAPHED(add_free(graph, node, dptr))))

static CUresult add_child(CUgraph graph, CUgraphNode *node, CUgraph child)
{
	struct graph *g = graph_find(graphs, graph), *c = graph_find(graphs, child);
	if (!g || !c || !node)
		return CUDA_ERROR_INVALID_VALUE;
	struct node n = { .kind = NODE_CHILD, .child = copy(c) };
	return n.child ? add_node(g, node, n) : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphAddChildGraphNode STUB_NODE(CUgraph child)
	BODY(cuGraphAddChildGraphNode, 0, ((void)after, (void)after_n, GRAPHED(add_child(graph, node, child))))

static CUresult add_any(CUgraph graph, CUgraphNode *node, CUgraphNodeParams *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	switch (params->type) {
	case CU_NODE_KERNEL: return GRAPHED(add_kernel(graph, node, kernel_of(&params->kernel, true)));
	case CU_NODE_ALLOC: return add_alloc(graph, node, &params->alloc);
	case CU_NODE_FREE: return GRAPHED(add_free(graph, node, params->freed));
	case CU_NODE_CHILD: return GRAPHED(add_child(graph, node, params->child));
	}
	struct graph *g = graph_of(graph);
	return g ? graph_add(g, node, NODE_OTHER, NULL, 0) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphAddNode STUB_NODE(CUgraphNodeParams *params)
	BODY(cuGraphAddNode, 0, ((void)after, (void)after_n, add_any(graph, node, params)))

API CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
			       size_t after_n, CUgraphNodeParams *params)
	BODY(cuGraphAddNode_v2, 0, ((void)after, (void)edges, (void)after_n, add_any(graph, node, params)))

static CUresult clone_graph(CUgraph *to, CUgraph from)
{
	struct graph *g = graph_find(graphs, from);
	struct graph *made = g && to ? copy(g) : NULL;
	if (!made)
		return CUDA_ERROR_INVALID_VALUE;
	*to = graph_handle(made);
	return CUDA_SUCCESS;
}

API CUresult cuGraphClone(CUgraph *to, CUgraph graph)
	BODY(cuGraphClone, 0, GRAPHED(clone_graph(to, graph)))

// Destroying a graph or an executable graph does not free the memory that its launches allocated.
static CUresult destroy(struct graph *places, const void *handle)
{
	struct graph *g = graph_find(places, handle);
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	graph_drop(g);
	return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph)
	BODY(cuGraphDestroy, 0, GRAPHED(destroy(graphs, graph)))

API CUresult cuGraphExecDestroy(CUgraphExec exec)
	BODY(cuGraphExecDestroy, 0, GRAPHED(destroy(execs, exec)))
