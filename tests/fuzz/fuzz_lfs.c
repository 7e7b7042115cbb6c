/* fuzz_lfs: a pointer that is recognised is written the same; answers of servers. */
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/remote/git/lfs.h"
#include "libckpt/remote/lfs_action.h"
#include "tests/fuzz/lib/target.h"

/* What is read of a server's answer is complete, and its record reads back. */
static void try_action(const uint8_t *data, size_t size)
{
    const struct lfs_object o = {.oid = "0000", .size = 10, .name = "w"};
    struct ckpt_arena arena = {0};
    struct lfs_action a, b;
    struct ckpt_err err = {0};
    json_t *entry = NULL, *record;

    if (ckpt_json_parse(&entry, (const char *)data, size, CKPT_JSON_STRICT, &err))
        return;
    if (lfs_action_read(&a, &arena, &o, entry, "server", &err) == 0 && a.n_parts > 0) {
        for (size_t i = 0; i < a.n_parts; i++)
            must(a.part[i] != NULL);
        record = lfs_action_record(&a, &o);
        json_object_set_new(record, "until", json_integer((json_int_t)time(NULL) + 3600));
        must(lfs_action_resume(&b, &arena, &o, record));
        must(b.n_parts == a.n_parts);
        json_decref(record);
    }
    if (lfs_action_read_download(&a, &arena, &o, entry, "server", &err) == 0 && a.href)
        must(a.headers && strlen(a.href) < HTTP_URL);
    json_decref(entry);
    ckpt_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char oid[CKPT_SHA256_HEX];
    struct ckpt_buf b;
    uint64_t n;

    try_action(data, size);
    if (!ckpt_lfs_parse((const char *)data, size, oid, &n))
        return 0;
    ckpt_buf_init(&b, 4096);
    ckpt_lfs_pointer(&b, oid, n);
    must(ckpt_buf_ok(&b));
    ckpt_buf_release(&b);
    return 0;
}
