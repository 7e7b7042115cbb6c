/* The file that keeps the algorithm chosen for each product: written once, read again, never
 * trusted. */
#include "tests/gpu/choices_file.h"
#include "tests/gpu/linear_pair.h"

enum { N = 256, IN = 2048, OUT = 192, MOST = 1 << 16 };

/* The bytes of a projection with the choices kept in that folder. */
static void *project(const char *folder)
{
    struct op_limits l = {.n = N, .n_rows = N, .dim = IN, .n_head = 16, .n_kv = 16,
                          .head_dim = 128, .ff = IN, .vocab = 100, .train = true};
    struct both x, w, out;
    void *bytes;
    struct gpu g;

    setenv("CKPT_CACHE", folder, 1);
    gpu_open(&g, CKPT_BF16, &l);
    x = gpu_random(&g, g.type, N * IN, 1.0f);
    w = gpu_random(&g, g.type, OUT * IN, 0.02f);
    out = gpu_blank(&g, g.type, N * OUT);
    g.gpu->ops->linear_fwd(g.gpu, &(struct op_linear){.out = out.gpu, .x = x.gpu, .proj.w = w.gpu,
                                                      .n = N, .n_in = IN, .n_out = OUT});
    bytes = gpu_bytes(&g, &out);
    gpu_close(&g);
    return bytes;
}

/* The path and the text of the folder's file; the caller frees the text. */
static char *kept(const char *folder, char *path, size_t size)
{
    char *text = calloc(1, MOST);
    FILE *f;

    choices_path(folder, path, size);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, MOST - 1, f) > 0);
    fclose(f);
    return text;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

TEST(kept)
{
    char path[512], under[80], name[256];
    char *first, *again;
    void *a, *b;

    snprintf(under, sizeof under, "%s/new/deep", choices_folder());
    a = project(under);
    first = kept(under, path, sizeof path);
    assert_non_null(strchr(first, ':'));
    b = project(under);
    again = kept(under, path, sizeof path);
    assert_string_equal(first, again);
    assert_memory_equal(a, b, N * OUT * 2);
    free(again);
    free(b);

    snprintf(name, sizeof name, "%.*s\n", (int)strcspn(first, "\n"), first);
    put(path, "another file\n1 2 3\n");         /* counts as none */
    free(project(under));
    again = kept(under, path, sizeof path);
    assert_memory_equal(again, name, strlen(name));
    assert_non_null(strchr(again, ':'));
    free(again);
    put(path, name);                            /* cut off */
    free(project(under));
    again = kept(under, path, sizeof path);
    assert_non_null(strchr(again, ':'));
    free(again);
    free(first);
    free(a);
}

/* Nowhere to keep them: nothing is timed, and two runs still give the same. */
TEST(nowhere)
{
    void *a = project("/proc/none"), *b = project("/proc/none");

    assert_memory_equal(a, b, N * OUT * 2);
    free(a);
    free(b);
}

/* A line that is not what was written counts for nothing. */
TEST(damaged)
{
    char path[512], *text, *at, *folder = choices_folder();
    void *a, *b;

    a = project(folder);
    text = kept(folder, path, sizeof path);
    for (at = strchr(text, ':'); *at && *at != '\n'; at++)
        if (*at >= '0' && *at <= '9')
            *at = 'f';
    put(path, text);
    b = project(folder);
    for (int i = 0; i < N * OUT; i++) {
        float x, y;

        ckpt_convert(&x, CKPT_F32, (uint16_t *)a + i, CKPT_BF16, 1);
        ckpt_convert(&y, CKPT_F32, (uint16_t *)b + i, CKPT_BF16, 1);
        assert_true(fabsf(x - y) <= 0.05f);
    }
    free(text);
    free(a);
    free(b);
}

/* A routed feed-forward of one expert over n rows. */
static void route(const char *folder, int64_t n)
{
    enum { DIM = 256, FF = 128 };
    struct op_limits l = {.n = n, .n_rows = n, .dim = DIM, .n_head = 16, .n_kv = 16,
                          .head_dim = 16, .ff = FF, .vocab = 100, .n_expert = 1, .top_k = 1,
                          .expert_ff = FF};
    struct both x, w, out, u, probs, chosen;
    int32_t *none = calloc((size_t)n, sizeof *none);
    struct op_experts op;
    struct gpu g;

    setenv("CKPT_CACHE", folder, 1);
    gpu_open(&g, CKPT_F32, &l);
    x = gpu_random(&g, g.type, n * DIM, 1.0f);
    w = gpu_random(&g, g.type, 3 * DIM * FF + DIM, 0.02f);
    out = gpu_blank(&g, g.type, n * DIM);
    u = gpu_blank(&g, g.type, n * 2 * FF);
    probs = gpu_blank(&g, CKPT_F32, n);
    chosen = gpu_ints(&g, none, n);
    op = (struct op_experts){
        .out = out.gpu, .u = u.gpu, .probs = probs.gpu, .top_k_index = chosen.gpu, .x = x.gpu,
        .gate = w.gpu, .up = (float *)w.gpu + DIM * FF, .down = (float *)w.gpu + 2 * DIM * FF,
        .router = (float *)w.gpu + 3 * DIM * FF, .n = n, .dim = DIM, .ff = FF, .n_expert = 1,
        .top_k = 1, .stride = 3 * DIM * FF, .act = OP_ACT_SILU};
    g.gpu->ops->experts_fwd(g.gpu, &op);
    gpu_fine(&g);
    free(none);
    gpu_close(&g);
}

/* Bytes of the rest of a line, without the sum at its end. */
static size_t words_of(const char *at)
{
    size_t n = strcspn(at, "\n");

    while (n && at[n - 1] != ' ')
        n--;
    return n;
}

/* Products of experts, whose number of rows changes from step to step, are not timed for each
 * number: one choice holds for those near it. */
TEST(near)
{
    enum { LINES = 64 };
    char path[512], *text, *end, *algo[LINES], *folder = choices_folder();
    long key[LINES][KEY_NUMBERS];
    int n = 0, alike = 0;

    route(folder, 512);
    route(folder, 600);
    text = kept(folder, path, sizeof path);
    for (char *at = strchr(text, '\n'); at && at[1]; at = strchr(end, '\n')) {
        assert_true(n < LINES);
        end = at + 1;
        for (int i = 0; i < KEY_NUMBERS; i++)
            key[n][i] = strtol(end, &end, 10);
        algo[n] = end;
        n += (key[n][KEY_FLAGS] & FLAG_QUICK) != 0;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            bool same = key[i][KEY_M] != key[j][KEY_M];

            for (int k = KEY_M + 1; k < KEY_NUMBERS; k++)
                same &= key[i][k] == key[j][k];
            if (!same)
                continue;
            alike++;
            assert_int_equal(words_of(algo[i]), words_of(algo[j]));
            assert_memory_equal(algo[i], algo[j], words_of(algo[i]));
        }
    assert_true(alike >= 2);
    free(text);
    folder_gone(folder);
}

/* Sums in parts over fewer rows than they were chosen for, with the same key: cuBLASLt leaves
 * out rows that do not fit the parts. */
TEST(parts)
{
    static const struct linear_case first = {.n = 1152, .in = 512, .out = 384},
                                    later[] = {{.n = 1025, .in = 512, .out = 384},
                                               {.n = 1030, .in = 512, .out = 384},
                                               {.n = 1152, .in = 512, .out = 384}};
    static const int parts[] = {2, 4, 8};

    if (gpu_small())
        skip();
    for (int i = 0; i < 3; i++) {
        const char *folder = choices_folder();

        linear_check_all(&first, 1, 1152);
        assert_true(choices_put(folder, parts[i]) >= 3);
        linear_check_all(later, 3, 1152);
        folder_gone(folder);
    }
}

/* Sums timed afresh: whichever algorithm is the fastest this time gives the right values. */
TEST(short_sums)
{
    static const struct linear_case c[] = {
        {.n = 1025, .in = 136, .out = 264},  {.n = 1030, .in = 136, .out = 136, .rank = 8},
        {.n = 1024, .in = 512, .out = 512},  {.n = 1100, .in = 256, .out = 1024},
        {.n = 1281, .in = 1024, .out = 128}, {.n = 1536, .in = 512, .out = 384, .fresh = true},
        {.n = 2050, .in = 136, .out = 512},
    };
    const char *folder;

    if (gpu_small())
        skip();
    folder = choices_folder();
    linear_check_all(c, sizeof c / sizeof c[0], 2050);
    folder_gone(folder);
}
