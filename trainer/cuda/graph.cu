/*
 * cuda/graph - operations captured as one graph, which is launched again and again.
 *
 * The stream is captured.  An operation that is not allowed in a capture (waiting, timing
 * algorithms) ends it, and the device is unchanged.  Source: CUDA 13.0 runtime API, graphs.
 */
#include "trainer/cuda/cuda.h"

struct op_graph {
    cudaGraphExec_t exec;
};

bool cuda_graph_begin(struct device *dev)
{
    if (dev->err.code)
        return false;
    return cuda_ok(dev, "recording", cudaStreamBeginCapture(cuda_of(dev)->stream,
                                                            cudaStreamCaptureModeThreadLocal));
}

bool cuda_graph_capturing(struct device *dev)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(cuda_of(dev)->stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

struct op_graph *cuda_graph_end(struct device *dev)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t rc = cudaStreamEndCapture(cuda_of(dev)->stream, &graph);
    struct op_graph *r;

    if (rc == cudaSuccess && !dev->err.code)
        rc = cudaGraphInstantiate(&exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    r = rc == cudaSuccess && exec ? (struct op_graph *)calloc(1, sizeof *r) : NULL;
    if (r) {
        r->exec = exec;
        return r;
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    cudaGetLastError();
    dev->err.code = 0;               /* nothing was done; run plainly, it will report its failure */
    dev->err.text[0] = '\0';
    return NULL;
}

void cuda_graph_launch(struct device *dev, struct op_graph *r)
{
    if (!dev->err.code)
        cuda_ok(dev, "replay", cudaGraphLaunch(r->exec, cuda_of(dev)->stream));
}

void cuda_graph_free(struct device *dev, struct op_graph *r)
{
    if (!r)
        return;
    cudaStreamSynchronize(cuda_of(dev)->stream);
    cudaGraphExecDestroy(r->exec);
    free(r);
}
