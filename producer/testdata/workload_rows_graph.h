// workload_rows_graph.h: declarations shared by the rows of graphs.
#ifndef GPUTAP_WORKLOAD_ROWS_GRAPH_H
#define GPUTAP_WORKLOAD_ROWS_GRAPH_H

#include "workload_rows.h"

// recorded returns the number of launches that a row records, which is unique to the row.
int recorded(void);

// captured returns a graph with a kernel node for each recorded launch. instance returns an executable graph of it.
CUgraph captured(CUfunction f);
CUgraphExec instance(CUgraph g);

// shown launches an executable graph, which must run the row's kernel f n times. The event lists these nodes.
void shown(const char *op, CUgraphExec e, CUfunction f, int n);

// drop destroys a graph. Executable graphs stay, so that each row has its own handle. A separate row tests reuse.
void drop(CUgraph g);

#endif
