// workload_rows_graph.h: what rows of graphs share.
#ifndef GPUTAP_WORKLOAD_ROWS_GRAPH_H
#define GPUTAP_WORKLOAD_ROWS_GRAPH_H

#include "workload_rows.h"

// recorded is how many launches a row records: a number of its own.
int recorded(void);

// captured is a graph with a kernel in it, as often as recorded says; instance an executable graph of it.
CUgraph captured(CUfunction f);
CUgraphExec instance(CUgraph g);

// shown launches an executable graph, which must run n of the row's kernel f: the later event has that as its nodes.
void shown(const char *op, CUgraphExec e, CUfunction f, int n);

// drop destroys a graph. Executable graphs are left, so that each row has a handle of its own: one that comes again is a
// row of its own.
void drop(CUgraph g);

#endif
