/* Collectives through shared memory, among processes: every type, sizes around a slot's, sums in the order of ranks, and
 * ranks that leave. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "trainer/comm/shared.h"

#define SLOT_F32 (65536)                /* elements of f32 in a slot */

/* Values whose sum depends on the order. */
static float value(int rank, int64_t i) { return sinf((float)(rank * 977 + i % 8191)) * powf(10, (float)((rank + i) % 7)); }

static float sum_of(int n, int64_t i)
{
    float sum = value(0, i);

    for (int r = 1; r < n; r++)
        sum += value(r, i);
    return sum;
}

static bool reduces(struct comm *c, int64_t count)
{
    float *buf = malloc((size_t)count * sizeof *buf);
    bool same = buf != NULL;

    for (int64_t i = 0; i < count && same; i++)
        buf[i] = value(c->rank, i);
    comm_all_reduce(c, buf, count, CKPT_F32, COMM_SUM);
    for (int64_t i = 0; i < count && same; i++) {
        float want = sum_of(c->world_size, i);

        same = memcmp(&buf[i], &want, sizeof want) == 0;
    }
    free(buf);
    return same && c->err.code == 0;
}

static bool scatters(struct comm *c, int64_t count)
{
    int64_t all = count * c->world_size;
    float *src = malloc((size_t)all * sizeof *src), *dst = malloc((size_t)count * sizeof *dst);
    bool same = src && dst;

    for (int64_t i = 0; i < all && same; i++)
        src[i] = value(c->rank, i);
    comm_reduce_scatter(c, dst, src, count, CKPT_F32);
    for (int64_t i = 0; i < count && same; i++) {
        float want = sum_of(c->world_size, c->rank * count + i);

        same = memcmp(&dst[i], &want, sizeof want) == 0;
    }
    free(src);
    free(dst);
    return same && c->err.code == 0;
}

/* Bytes, from a buffer of their own and from their place in dst; then by one rank to all. */
static bool gathers(struct comm *c, int64_t count)
{
    unsigned char *dst = malloc((size_t)(count * c->world_size)), *src = malloc((size_t)count), *own = dst + c->rank * count;
    bool same = dst && src;

    for (int in_place = 0; in_place < 2 && same; in_place++) {
        memset(dst, 0, (size_t)(count * c->world_size));
        for (int64_t i = 0; i < count; i++)
            src[i] = own[i] = (unsigned char)(c->rank * 31 + i % 251 + in_place);
        comm_all_gather(c, dst, in_place ? own : src, count, CKPT_U8);
        for (int64_t i = 0; i < count * c->world_size && same; i++)
            same = dst[i] == (unsigned char)(i / count * 31 + i % count % 251 + in_place);
    }
    for (int root = 0; root < c->world_size && same; root++) {
        memset(src, c->rank + 1, (size_t)count);
        comm_broadcast(c, src, count, CKPT_U8, root);
        same = src[0] == root + 1 && src[count - 1] == root + 1;
    }
    free(dst);
    free(src);
    return same && c->err.code == 0;
}

/* Rank r gives rank k `each` elements, and one more for each place between them; none where both are odd. */
static int64_t given_to(int r, int k, int64_t each) { return r % 2 && k % 2 ? 0 : each + (r > k ? r - k : k - r); }

static bool exchanges(struct comm *c, int64_t each)
{
    int64_t given[16] = {0}, taken[16] = {0}, out = 0, in = 0;
    float *src = calloc((size_t)(16 * (each + 16)), sizeof *src), *dst = calloc((size_t)(16 * (each + 16)), sizeof *dst);
    bool same = src && dst;

    for (int r = 0; r < c->world_size && same; r++) {
        given[r] = given_to(c->rank, r, each);
        taken[r] = given_to(r, c->rank, each);
        for (int64_t i = 0; i < given[r]; i++)
            src[out++] = value(c->rank * 16 + r, i);
    }
    comm_exchange(c, dst, taken, src, given, CKPT_F32);
    for (int r = 0; r < c->world_size && same; r++)
        for (int64_t i = 0; i < taken[r] && same; i++) {
            float want = value(r * 16 + c->rank, i);

            same = memcmp(&dst[in++], &want, sizeof want) == 0;
        }
    free(dst);
    free(src);
    return same && c->err.code == 0;
}

static bool others(struct comm *c)
{
    int64_t n[3] = {c->rank, -c->rank, INT64_MAX - c->rank};
    double d[2] = {c->rank + 0.5, 1e300};

    comm_all_reduce(c, n, 3, CKPT_I64, COMM_MIN);
    comm_barrier(c);
    comm_all_reduce(c, d, 1, CKPT_F64, COMM_MAX);
    return n[0] == 0 && n[1] == 1 - c->world_size && n[2] == INT64_MAX - (c->world_size - 1) && d[0] == c->world_size - 0.5 &&
           d[1] == 1e300;
}

static void pause_now_and_then(int rank, int i)
{
    if ((rank * 7 + i) % 5 == 0)
        usleep((useconds_t)(rank + 1) * 300);
}

/* Sizes around blocks, slots and what all sum by themselves. */
static bool all_of_them(struct comm *c)
{
    static const int64_t counts[] = {1, 15, 16, 17, 2047, 2049, 8192, 8193, 21846, SLOT_F32 - 1, SLOT_F32, SLOT_F32 + 1, 2 * SLOT_F32 + 5, 4 * SLOT_F32};

    for (int i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++) {
        pause_now_and_then(c->rank, i);
        if (!reduces(c, counts[i]) || !scatters(c, counts[i]) || !gathers(c, counts[i]) || !exchanges(c, counts[i]) || !others(c))
            return false;
    }
    return true;
}

/* One process per rank; as many as end with status 0. */
static int run(int n, int fd, bool (*body)(struct comm *c))
{
    int well = 0, status;
    pid_t pid[16];

    for (int r = 0; r < n; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            struct ckpt_err err = {0};
            struct comm *c;
            bool good = shared_open(&c, dup(fd), r, n, &err) == 0 && body(c);

            if (c)
                comm_close(c);
            _exit(!good);
        }
    }
    for (int r = 0; r < n; r++)
        well += waitpid(pid[r], &status, 0) == pid[r] && status == 0;
    return well;
}

TEST(collectives_of_two_to_five_ranks_in_the_order_of_ranks)
{
    for (int n = 2; n <= 5; n++) {
        struct ckpt_err err = {0};
        int fd;

        assert_int_equal(shared_create(&fd, n, &err), 0);
        assert_int_equal(run(n, fd, all_of_them), n);
        close(fd);
    }
}

static bool many_small(struct comm *c)
{
    for (int i = 0; i < 1500; i++) {
        int64_t n = c->rank + i;

        comm_all_reduce(c, &n, 1, CKPT_I64, COMM_SUM);
        if (n != (int64_t)c->world_size * i + (int64_t)c->world_size * (c->world_size - 1) / 2)
            return false;
    }
    return true;
}

TEST(no_wakeup_is_lost_in_many_small_sums)
{
    for (int n = 2; n <= 4; n++) {
        struct ckpt_err err = {0};
        int fd;

        assert_int_equal(shared_create(&fd, n, &err), 0);
        assert_int_equal(run(n, fd, many_small), n);
        close(fd);
    }
}

/* Sums inside of groups and across them, in turn, with ranks that are early or late. */
static bool divided(struct comm *c)
{
    struct ckpt_err err = {0};
    struct comm *within, *across;

    if (comm_split(&within, c, COMM_WITHIN, 2, &err) || comm_split(&across, c, COMM_ACROSS, 2, &err))
        return false;
    for (int i = 0; i < 300; i++) {
        int64_t n = c->rank, m = c->rank, k = 1;

        pause_now_and_then(c->rank, i);
        comm_all_reduce(within, &n, 1, CKPT_I64, COMM_SUM);
        comm_all_reduce(across, &m, 1, CKPT_I64, COMM_SUM);
        comm_all_reduce(c, &k, 1, CKPT_I64, COMM_SUM);
        if (n != c->rank / 2 * 4 + 1 || m != (int64_t)(c->rank % 2 * across->world_size + across->world_size * (across->world_size - 1)) || k != c->world_size)
            return false;
    }
    return all_of_them(within) && all_of_them(across);
}

TEST(ranks_in_groups_and_across_them)
{
    for (int n = 4; n <= 6; n += 2) {
        struct ckpt_err err = {0};
        int fd;

        assert_int_equal(shared_create(&fd, n, &err), 0);
        assert_int_equal(run(n, fd, divided), n);
        close(fd);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The last rank leaves without the last sum: the others learn that, by name. */
static bool without_the_last(struct comm *c)
{
    double since;
    int64_t n = 1;

    if (!reduces(c, 100000))
        return false;
    if (c->rank == c->world_size - 1)
        return true;
    since = seconds();
    comm_all_reduce(c, &n, 1, CKPT_I64, COMM_SUM);
    return c->err.code == CKPT_ECOMM && strcmp(c->err.reason, "peer-dead") == 0 && strstr(c->err.text, "all_reduce: rank ") &&
           strstr(c->err.text, " has left") && seconds() - since < 2;
}

TEST(who_leaves_ends_the_others)
{
    for (int n = 2; n <= 4; n++) {
        struct ckpt_err err = {0};
        int fd;

        assert_int_equal(shared_create(&fd, n, &err), 0);
        assert_int_equal(run(n, fd, without_the_last), n);
        close(fd);
    }
}

TEST(memory_of_others_is_refused)
{
    struct ckpt_err err = {0};
    struct comm *c;
    int fd;

    assert_int_equal(shared_create(&fd, 2, &err), 0);
    assert_int_equal(shared_open(&c, dup(fd), 0, 3, &err), CKPT_ECONFIG);
    assert_null(c);
    assert_int_equal(shared_open(&c, open("/dev/null", O_RDWR), 0, 2, &err), CKPT_ECONFIG);
    assert_int_equal(shared_open(&c, -1, 0, 2, &err), CKPT_ECONFIG);
    assert_int_not_equal(ftruncate(fd, 0), 0);      /* nobody takes it away under the others */
    close(fd);
    fd = memfd_create("other", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096 + 2 * 3 * (256 << 10)), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(shared_open(&c, fd, 0, 2, &err), CKPT_ECONFIG);
    assert_int_equal(shared_create(&fd, 1 << 20, &err), CKPT_ENOMEM);
    assert_int_equal(fd, -1);
}

TEST(a_descriptor_in_the_environment_is_taken_out_of_it)
{
    struct ckpt_err err = {0};
    char text[16];
    int fd;

    assert_int_equal(shared_create(&fd, 2, &err), 0);
    snprintf(text, sizeof text, "%d", fd);
    setenv(SHARED_ENV, text, 1);
    assert_int_equal(shared_inherited(), fd);
    assert_null(getenv(SHARED_ENV));
    assert_int_equal(shared_inherited(), -1);
    for (size_t i = 0; i < 5; i++) {
        setenv(SHARED_ENV, (const char *const[]){"", "x", "1x", "1", "99999"}[i], 1);
        assert_int_equal(shared_inherited(), -1);
    }
    close(fd);
}
