// stub_exec.c: executable graphs. Each runs the nodes that its graph had when it was instantiated.
#include "stub_graph.h"

static CUresult flatten(struct graph *to, const struct graph *from)
{
	CUresult rc = CUDA_SUCCESS;
	for (size_t i = 0; rc == CUDA_SUCCESS && i < from->nodes_n; i++) {
		const struct node *n = &from->nodes[i];
		rc = n->child ? flatten(to, n->child) : graph_append(to, *n);
	}
	return rc;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags)
{
	enum { AUTO_FREE_ON_LAUNCH = 1 };
	struct graph *g = graph_find(graphs, graph);
	struct graph *e = g && exec ? graph_place(execs) : NULL;
	if (!e)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult rc = flatten(e, g);
	if (rc) {
		graph_drop(e);
		return rc;
	}
	e->auto_free = flags & AUTO_FREE_ON_LAUNCH;
	*exec = (CUgraphExec)e;
	return CUDA_SUCCESS;
}

#define INSTANTIATE(name)                                                                                              \
	API CUresult name(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)      \
		BODY(name, 0, ((void)error_node, (void)log, (void)log_bytes, GRAPHED(instantiate(exec, graph, 0))))

INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags)
	BODY(cuGraphInstantiateWithFlags, 0, GRAPHED(instantiate(exec, graph, flags)))

TWINS(cuGraphInstantiateWithParams, _ptsz,
      (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), 0,
      params ? GRAPHED(instantiate(exec, graph, params->flags)) : CUDA_ERROR_INVALID_VALUE)

// update replaces the nodes of an executable graph by those of a graph.
static CUresult update(CUgraphExec exec, CUgraph graph)
{
	struct graph *e = graph_find(execs, exec), *g = graph_find(graphs, graph);
	if (!e || !g)
		return CUDA_ERROR_INVALID_VALUE;
	e->nodes_n = 0;
	return flatten(e, g);
}

API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, int *result)
	BODY(cuGraphExecUpdate, 0, ((void)error_node, (void)result, GRAPHED(update(exec, graph))))

API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result)
	BODY(cuGraphExecUpdate_v2, 0, ((void)result, GRAPHED(update(exec, graph))))

// allocate_again allocates the memory of an allocation node. It fails if the memory is still live, unless
// auto_free is set.
static CUresult allocate_again(uint64_t address, bool auto_free)
{
	struct block *b = device_find(address);
	if (!b || b->kind != BLOCK_GRAPH || (b->charged && !auto_free))
		return CUDA_ERROR_INVALID_VALUE;
	if (b->charged)
		return CUDA_SUCCESS;
	CUresult rc = device_charge(b->device, b->bytes, STUB_CLASS_GRAPH);
	b->charged = rc == CUDA_SUCCESS;
	return rc;
}

static CUresult run(const struct graph *e)
{
	CUresult rc = CUDA_SUCCESS;
	for (size_t i = 0; rc == CUDA_SUCCESS && i < e->nodes_n; i++) {
		const struct node *n = &e->nodes[i];
		uint64_t bytes;
		if (n->kind == NODE_KERNEL && n->kernel && n->kernel->counter)
			add(&n->kernel->counter->launches, 1);
		if (n->kind == NODE_ALLOC)
			rc = LOCKED(allocate_again(n->address, e->auto_free));
		if (n->kind == NODE_FREE)
			rc = release(n->address, &bytes);
	}
	return rc;
}

CUresult graph_record_launch(struct graph *g, CUgraphExec exec)
{
	pthread_mutex_lock(&graphs_mu);
	struct graph *e = graph_find(execs, exec);
	CUresult rc = e ? flatten(g, e) : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&graphs_mu);
	return rc ?: RECORDED;
}

// The launch of an unknown executable graph counts only as a call.
CUresult graph_launch(CUgraphExec exec)
{
	if (!exec)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&graphs_mu);
	struct graph *e = graph_find(execs, exec);
	CUresult rc = e ? run(e) : CUDA_SUCCESS;
	pthread_mutex_unlock(&graphs_mu);
	return rc;
}
