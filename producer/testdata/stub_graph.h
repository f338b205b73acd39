// stub_graph.h: the structs of graphs and executable graphs.
#ifndef GPUTAP_STUB_GRAPH_H
#define GPUTAP_STUB_GRAPH_H

#include <pthread.h>

#include "stub_internal.h"

enum { GRAPHS_N = 256 };

struct node {
	enum node_kind kind;
	struct handle *kernel;
	uint64_t address; // of an allocation or free node
	struct graph *child;
};

// An executable graph is a graph without children.
struct graph {
	bool used;
	bool auto_free; // of an executable graph: a launch first frees the memory of the launch before
	struct node *nodes;
	size_t nodes_n;
};

extern pthread_mutex_t graphs_mu;

// graphs_mu guards everything below. A handle is the address of an entry, and entries are reused.
extern struct graph graphs[GRAPHS_N], execs[GRAPHS_N];
struct graph *graph_find(struct graph *places, const void *handle);
struct graph *graph_place(struct graph *places);
CUresult graph_append(struct graph *g, struct node n);
void graph_drop(struct graph *g);

#define GRAPHED(body)                                                                                                  \
	({                                                                                                             \
		pthread_mutex_lock(&graphs_mu);                                                                        \
		CUresult under = (body);                                                                               \
		pthread_mutex_unlock(&graphs_mu);                                                                      \
		under;                                                                                                 \
	})

#endif
