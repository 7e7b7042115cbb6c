/* make_sparse DIR - a model directory of 100 GB in 20 shards that takes no room: all holes. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define SHARDS  20
#define TENSORS 50                      /* of 5000 x 5000 f32 in each shard */
#define BYTES   100000000

static int shard(const char *dir, int s)
{
    static char head[1 << 16];
    unsigned char size[8];
    char path[4096];
    size_t n = 0;
    FILE *f;

    for (int i = 0; i < TENSORS; i++)
        n += (size_t)snprintf(head + n, sizeof head - n, "%c\"t%02d.%02d\":{\"dtype\":\"F32\","
                              "\"shape\":[5000,5000],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}",
                              i ? ',' : '{', s, i, (int64_t)i * BYTES, (int64_t)(i + 1) * BYTES);
    head[n++] = '}';
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(n >> 8 * i);
    snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", dir, s, SHARDS);
    f = fopen(path, "wb");
    if (!f || fwrite(size, 1, 8, f) != 8 || fwrite(head, 1, n, f) != n || fclose(f) != 0)
        return 1;
    return truncate(path, (off_t)(8 + n) + (off_t)TENSORS * BYTES) != 0;
}

int main(int argc, char **argv)
{
    char path[4096];
    FILE *f;

    if (argc != 2)
        return 64;
    for (int s = 1; s <= SHARDS; s++)
        if (shard(argv[1], s))
            return 74;
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    f = fopen(path, "w");
    if (!f || fputs("{\"model_type\": \"none\"}\n", f) < 0 || fclose(f) != 0)
        return 74;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", argv[1]);
    f = fopen(path, "w");
    if (!f)
        return 74;
    fprintf(f, "{\"metadata\":{\"total_size\":%" PRId64 "},\"weight_map\":",
            (int64_t)SHARDS * TENSORS * BYTES);
    for (int k = 0; k < SHARDS * TENSORS; k++)
        fprintf(f, "%c\"t%02d.%02d\":\"model-%05d-of-%05d.safetensors\"", k ? ',' : '{',
                1 + k / TENSORS, k % TENSORS, 1 + k / TENSORS, SHARDS);
    fputs("}}\n", f);
    return fclose(f) != 0;
}
