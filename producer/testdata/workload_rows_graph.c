// workload_rows_graph.c: rows of captures and of executable graphs. The launch of a graph shows their effect.
#include <string.h>

#include "workload_rows_graph.h"

int recorded(void)
{
	return 2 + row.number % 7;
}

static void record(CUstream stream, CUfunction f)
{
	for (int i = 0; i < recorded(); i++)
		OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static CUstream new_stream(void)
{
	CUstream s;
	OK(cuStreamCreate(&s, 1));
	return s;
}

CUgraph captured(CUfunction f)
{
	CUstream s = new_stream();
	CUgraph g;
	OK(cuStreamBeginCapture_v2(s, 0));
	record(s, f);
	OK(cuStreamEndCapture(s, &g));
	OK(cuStreamDestroy_v2(s));
	return g;
}

CUgraphExec instance(CUgraph g)
{
	CUgraphExec e;
	OK(cuGraphInstantiateWithFlags(&e, g, 0));
	return e;
}

static uint64_t launches_of_row(void)
{
	const struct stub_truth *t = stubTruth();
	for (int i = 0; i < STUB_KERNELS; i++)
		if (strcmp(t->kernels[i].name, row_kernel_name()) == 0)
			return t->kernels[i].launches;
	return 0;
}

void shown(const char *op, CUgraphExec e, CUfunction f, int n)
{
	uint64_t before = launches_of_row();
	say("kind= op=%s exec=%p node=%s node_func=%p count=%d ", op, (void *)e, row_kernel_name(), (void *)f, n);
	LATER("graph", cuGraphLaunch(e, PLACE(CUstream, 9)));
	say("graph_stream=%#lx ", value(9));
	if (launches_of_row() - before != (uint64_t)n)
		fail("the graph ran %lu kernels, not %d", launches_of_row() - before, n);
}

void drop(CUgraph g)
{
	OK(cuGraphDestroy(g));
}

#define ROW_BEGIN(symbol, ...)                                                                                         \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUstream s = new_stream();                                                                             \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g;                                                                                             \
		CALL(symbol(s __VA_OPT__(, ) __VA_ARGS__));                                                            \
		say("records=%d ", recorded());                                                                        \
		record(s, f);                                                                                          \
		OK(cuStreamEndCapture(s, &g));                                                                         \
		CUgraphExec e = instance(g);                                                                           \
		shown("capture", e, f, recorded());                                                                    \
		drop(g);                                                                                            \
		OK(cuStreamDestroy_v2(s));                                                                             \
	}
ROW_BEGIN(cuStreamBeginCapture)
ROW_BEGIN(cuStreamBeginCapture_ptsz)
ROW_BEGIN(cuStreamBeginCapture_v2, 1)
ROW_BEGIN(cuStreamBeginCapture_v2_ptsz, 1)

#define ROW_INTO(symbol)                                                                                               \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUstream s = new_stream();                                                                             \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g, same;                                                                                       \
		OK(cuGraphCreate(&g, 0));                                                                              \
		CALL(symbol(s, g, NULL, NULL, 0, 1));                                                                  \
		say("records=%d ", recorded());                                                                        \
		record(s, f);                                                                                          \
		OK(cuStreamEndCapture(s, &same));                                                                      \
		CUgraphExec e = instance(g);                                                                           \
		shown("capture", e, f, recorded());                                                                    \
		drop(g);                                                                                            \
		OK(cuStreamDestroy_v2(s));                                                                             \
	}
ROW_INTO(cuStreamBeginCaptureToGraph)
ROW_INTO(cuStreamBeginCaptureToGraph_ptsz)

// After the capture, launches on the CUDA stream run again.
#define ROW_END(symbol)                                                                                                \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUstream s = new_stream();                                                                             \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g;                                                                                             \
		OK(cuStreamBeginCapture_v2(s, 0));                                                                     \
		record(s, f);                                                                                          \
		CALL(symbol(s, &g));                                                                                   \
		say("func=%p name=%s ", (void *)f, row_kernel_name());                                                 \
		LATER("launch", cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));                                \
		CUgraphExec e = instance(g);                                                                           \
		shown("capture", e, f, recorded());                                                                    \
		drop(g);                                                                                            \
		OK(cuStreamDestroy_v2(s));                                                                             \
	}
ROW_END(cuStreamEndCapture)
ROW_END(cuStreamEndCapture_ptsz)

// Another CUDA stream joins by waiting for a CUDA event of a captured one. The row's call is the wait or the record.
#define ROW_JOIN(symbol, name, recording, waiting)                                                                     \
	ROW_VARIANT(symbol, name)                                                                                      \
	{                                                                                                              \
		CUstream s = new_stream(), other = new_stream();                                                       \
		CUfunction f = row_kernel();                                                                           \
		CUevent event;                                                                                         \
		CUgraph g;                                                                                             \
		OK(cuEventCreate(&event, 0));                                                                          \
		OK(cuStreamBeginCapture_v2(s, 0));                                                                     \
		recording;                                                                                             \
		waiting;                                                                                               \
		say("records=%d ", recorded());                                                                        \
		record(other, f);                                                                                      \
		OK(cuStreamEndCapture(s, &g));                                                                         \
		CUgraphExec e = instance(g);                                                                           \
		shown("capture", e, f, recorded());                                                                    \
		drop(g);                                                                                            \
		OK(cuEventDestroy_v2(event));                                                                          \
		OK(cuStreamDestroy_v2(s));                                                                             \
		OK(cuStreamDestroy_v2(other));                                                                         \
	}
ROW_JOIN(cuStreamWaitEvent, joins, OK(cuEventRecord(event, s)), CALL(cuStreamWaitEvent(other, event, 0)))
ROW_JOIN(cuStreamWaitEvent_ptsz, joins, OK(cuEventRecord(event, s)), CALL(cuStreamWaitEvent_ptsz(other, event, 0)))
ROW_JOIN(cuEventRecord, joins, CALL(cuEventRecord(event, s)), OK(cuStreamWaitEvent(other, event, 0)))
ROW_JOIN(cuEventRecord_ptsz, joins, CALL(cuEventRecord_ptsz(event, s)), OK(cuStreamWaitEvent(other, event, 0)))
ROW_JOIN(cuEventRecordWithFlags, joins, CALL(cuEventRecordWithFlags(event, s, 0)),
	 OK(cuStreamWaitEvent(other, event, 0)))
ROW_JOIN(cuEventRecordWithFlags_ptsz, joins, CALL(cuEventRecordWithFlags_ptsz(event, s, 0)),
	 OK(cuStreamWaitEvent(other, event, 0)))

#define ROW_INSTANTIATE(symbol, ...)                                                                                   \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUDA_GRAPH_INSTANTIATE_PARAMS params __attribute__((unused)) = { 0 };                                  \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g = captured(f);                                                                               \
		CUgraphExec e;                                                                                         \
		CALL(symbol(&e, g, __VA_ARGS__));                                                                      \
		shown("executable", e, f, recorded());                                                                 \
		drop(g);                                                                                            \
	}
ROW_INSTANTIATE(cuGraphInstantiate, NULL, NULL, 0)
ROW_INSTANTIATE(cuGraphInstantiate_v2, NULL, NULL, 0)
ROW_INSTANTIATE(cuGraphInstantiateWithFlags, 0)
ROW_INSTANTIATE(cuGraphInstantiateWithParams, &params)
ROW_INSTANTIATE(cuGraphInstantiateWithParams_ptsz, &params)

// The stub accepts an unknown handle, so that a launch can show that the handle is no longer valid.
ROW(cuGraphExecDestroy)
{
	CUfunction f = row_kernel();
	CUgraph g = captured(f);
	CUgraphExec e = instance(g);
	CALL(cuGraphExecDestroy(e));
	shown("executable", e, f, 0);
	if (instance(g) != e)
		fail("the handle was not reused");
	drop(g);
}

// An executable graph that reuses the handle of another one in the middle of a batch.
ROW_VARIANT(cuGraphExecDestroy, again)
{
	CUfunction f = row_kernel(), other = kernel_named("row_before");
	CUgraph before = captured(other), g = captured(f);
	CUgraphExec e = instance(before);
	OK(cuGraphLaunch(e, NULL));
	CALL(cuGraphExecDestroy(e));
	CUgraphExec again = instance(g);
	if (again != e)
		fail("the handle was not reused");
	shown("executable", again, f, recorded());
	drop(before);
	drop(g);
}

static CUgraphExec instance_of_another(void)
{
	CUgraph g = captured(kernel_named("row_before"));
	CUgraphExec e = instance(g);
	drop(g);
	return e;
}

#define ROW_UPDATE(symbol, ...)                                                                                        \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g = captured(f);                                                                               \
		CUgraphExec e = instance_of_another();                                                                 \
		CALL(symbol(e, g, __VA_ARGS__));                                                                       \
		shown("executable", e, f, recorded());                                                                 \
		drop(g);                                                                                               \
	}
ROW_UPDATE(cuGraphExecUpdate, NULL, &(int){ 0 })
ROW_UPDATE(cuGraphExecUpdate_v2, &(uint64_t[3]){ 0 })

ROW(cuGraphDestroy)
{
	CUfunction f = row_kernel();
	CUgraph g = captured(f);
	CUgraphExec e = instance(g);
	CALL(cuGraphDestroy(g));
	shown("graph", e, f, recorded());
}

ROW(cuGraphClone)
{
	CUfunction f = row_kernel();
	CUgraph g = captured(f), clone;
	CALL(cuGraphClone(&clone, g));
	OK(cuGraphDestroy(g));
	CUgraphExec e = instance(clone);
	shown("graph", e, f, recorded());
	drop(clone);
}

#define ROW_GRAPH_LAUNCH(symbol, operation, runs)                                                                      \
	ROW(symbol)                                                                                                    \
	{                                                                                                              \
		CUfunction f = row_kernel();                                                                           \
		CUgraph g = captured(f);                                                                               \
		CUgraphExec e = instance(g);                                                                           \
		CALL(symbol(e, PLACE(CUstream, 9)));                                                                   \
		say("kind=launch op=" operation " func=%p name= grid=0,0,0 block=0,0,0 shared=0 stream=%#lx node=%s "  \
		    "node_func=%p count=%d ",                                                                          \
		    (void *)e, value(9), row_kernel_name(), (void *)f, runs);                                          \
		drop(g);                                                                                            \
	}
ROW_GRAPH_LAUNCH(cuGraphLaunch, "graph_launch", recorded())
ROW_GRAPH_LAUNCH(cuGraphLaunch_ptsz, "graph_launch", recorded())
ROW_GRAPH_LAUNCH(cuGraphUpload, "graph_upload", 0)
ROW_GRAPH_LAUNCH(cuGraphUpload_ptsz, "graph_upload", 0)
