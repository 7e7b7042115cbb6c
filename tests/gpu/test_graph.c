/* Graphs: a launch reads memory as it is at that time; operations that cannot be captured leave
 * the device as it was. */
#include "tests/gpu/gpu.h"

enum { N = 1000, TIMES = 5 };

/* to <- from rounded to bf16 and back, by two operations. */
static void work(struct device *dev, float *to, void *between, const float *from)
{
    dev->ops->cast(dev, OP_STREAM_MAIN, between, CKPT_BF16, from, CKPT_F32, N);
    dev->ops->cast(dev, OP_STREAM_MAIN, to, CKPT_F32, between, CKPT_BF16, N);
}

TEST(a_launch_reads_memory_of_its_time)
{
    struct op_graph *graph;
    struct device *dev;
    struct gpu g;
    float x[N], y[N], *from, *to;
    void *between;

    gpu_open(&g, CKPT_BF16, NULL);
    dev = g.gpu;
    from = dev->ops->alloc(dev, sizeof x);
    to = dev->ops->alloc(dev, sizeof x);
    between = dev->ops->alloc(dev, sizeof x);
    work(dev, to, between, from);
    assert_true(dev->ops->graph_begin(dev));
    work(dev, to, between, from);
    graph = dev->ops->graph_end(dev);
    assert_non_null(graph);
    for (int t = 0; t < TIMES; t++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(i % 128 + t);        /* seven bits: bf16 has them exactly */
        dev->ops->to_device(dev, from, x, sizeof x);
        dev->ops->graph_launch(dev, graph);
        dev->ops->to_host(dev, y, to, sizeof y);
        gpu_fine(&g);
        assert_memory_equal(x, y, sizeof x);
    }
    dev->ops->graph_free(dev, graph);
    dev->ops->graph_free(dev, NULL);
    gpu_close(&g);
}

TEST(an_operation_that_waits_is_not_captured)
{
    struct device *dev;
    struct gpu g;
    float x[N] = {1}, y[N], *from, *to;
    void *between;

    gpu_open(&g, CKPT_BF16, NULL);
    dev = g.gpu;
    from = dev->ops->alloc(dev, sizeof x);
    to = dev->ops->alloc(dev, sizeof x);
    between = dev->ops->alloc(dev, sizeof x);
    dev->ops->to_device(dev, from, x, sizeof x);
    assert_true(dev->ops->graph_begin(dev));
    work(dev, to, between, from);
    dev->ops->to_host(dev, y, to, sizeof y);
    assert_null(dev->ops->graph_end(dev));
    gpu_fine(&g);
    dev->ops->to_host(dev, y, to, sizeof y);
    assert_true(y[0] == 0);                     /* it was not done */
    work(dev, to, between, from);
    dev->ops->to_host(dev, y, to, sizeof y);
    gpu_fine(&g);
    assert_memory_equal(x, y, sizeof x);
    gpu_close(&g);
}
