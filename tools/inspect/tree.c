/* tree - torch files that hold more than tensors, shown as values; see inspect.h. */
#include <string.h>

#include "formats/container/zip.h"
#include "formats/torch/torch.h"
#include "formats/torch/add.h"
#include "tools/inspect/inspect.h"

#define MAX_VALUES  200000
#define MAX_DEPTH   64
#define SMALL_BYTES ((uint64_t)16 << 20)        /* a file without weights is smaller, */
#define FEW_MEMBERS 512                         /* and has few storages */

/* Values of a dictionary, or items of a list; 0 for values of other kinds. */
static size_t children(const struct value *v, struct value ***child)
{
    if (value_is(v, VALUE_DICT)) {
        *child = v->u.dict.val;
        return v->u.dict.n;
    }
    if (value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE)) {
        *child = v->u.seq.item;
        return v->u.seq.n;
    }
    return 0;
}

/* Whether dictionaries and lists contain a tensor, or more values than anybody would print. */
static bool holds_tensors(const struct value *root)
{
    const struct value *stack[MAX_DEPTH];
    size_t next[MAX_DEPTH] = {0}, depth = 1, seen = 0;

    stack[0] = root;
    if (torch_add_is(root))
        return true;
    while (depth > 0) {
        struct value **child = NULL;
        size_t n = children(stack[depth - 1], &child);
        const struct value *v;

        if (next[depth - 1] == n) {
            depth--;
            continue;
        }
        v = child[next[depth - 1]++];
        if (torch_add_is(v) || ++seen > MAX_VALUES || depth == MAX_DEPTH)
            return true;
        if (children(v, &child)) {
            stack[depth] = v;
            next[depth++] = 0;
        }
    }
    return false;
}

/* So many storages mean a model: reading them all to find out would double the work. */
static bool has_many_members(struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    uint64_t n;

    return zip_count(&n, file, &ignored) == 0 && n > FEW_MEMBERS;
}

bool inspect_is_values(struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    struct torch_archive *a;
    struct ckpt_file *again;
    const struct value *root;
    bool values;

    if (ckpt_file_size(file) > SMALL_BYTES || has_many_members(file) ||
        ckpt_file_window(&again, file, 0, ckpt_file_size(file), ckpt_file_name(file), &ignored))
        return false;
    if (torch_archive_open(&a, again, &ignored))        /* takes it */
        return false;
    root = torch_archive_root(a);
    values = strcmp(torch_archive_container(a), "TorchScript") != 0 &&
             (inspect_is_rng(a) || (value_is(root, VALUE_OBJECT) && !torch_add_is(root)) ||
              !holds_tensors(root));
    torch_archive_close(a);
    return values;
}

bool inspect_is_torch(struct ckpt_file *file)
{
    unsigned char magic[4];
    struct ckpt_err ignored = {0};

    return ckpt_file_size(file) >= sizeof magic &&
           ckpt_file_read_at(file, magic, sizeof magic, 0, &ignored) == 0 &&
           (memcmp(magic, "PK\003\004", sizeof magic) == 0 || magic[0] == 0x80);
}

/* An enumeration's member by its value, a record by its fields: what people call it. */
static json_t *plain(json_t *v)
{
    json_t *args = json_object_get(v, "args"), *state = json_object_get(v, "state");

    if (!json_is_string(json_object_get(v, "$object")))
        return v;
    if (json_is_object(state))
        return state;
    return json_array_size(args) == 1 ? json_array_get(args, 0) : v;
}

/* The fields of training_args.bin by their names. */
static json_t *fields_of(const json_t *tree)
{
    json_t *fields = json_object_get(tree, "state"), *out, *v;
    const char *key;

    if (!json_is_object(fields) || !(out = json_object()))
        return NULL;
    json_object_foreach (fields, key, v)
        json_object_set(out, key, plain(v));
    return out;
}

int inspect_arguments(json_t **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct torch_archive *a;
    json_t *tree;
    int rc = torch_archive_open_any(&a, file, err);

    *out = NULL;
    if (rc)
        return rc;
    tree = value_to_json(torch_archive_root(a), MAX_VALUES);
    *out = fields_of(tree);
    json_decref(tree);
    torch_archive_close(a);
    return 0;
}

void inspect_arguments_put(struct out *o, const json_t *fields)
{
    static const struct out_column columns[] = {{"name", "argument", OUT_LEFT},
                                                {"value", "value", OUT_LEFT}};
    const char *key;
    json_t *v;

    out_table(o, "arguments", columns, 2);
    json_object_foreach ((json_t *)(uintptr_t)fields, key, v) {
        out_cell_str(o, key);
        out_cell_value(o, v);
    }
    out_table_end(o);
}

static int put_arguments(struct out *o, const json_t *tree, struct ckpt_err *err)
{
    const char *class = json_string_value(json_object_get(tree, "$object"));
    json_t *fields = fields_of(tree);

    if (!fields)
        return ckpt_fail(err, CKPT_EUSAGE, "--args shows a training_args.bin, it is none");
    out_str(o, "class", "class", class ? class : "");
    inspect_arguments_put(o, fields);
    json_decref(fields);
    return 0;
}

int inspect_tree(struct out *o, struct ckpt_file *file, bool arguments, struct ckpt_err *err)
{
    struct torch_archive *a;
    const char *key;
    json_t *tree, *v;
    int rc = 0;

    if ((rc = torch_archive_open_any(&a, file, err)) != 0)
        return rc;
    if (!arguments)
        out_str(o, "format", "format", "torch");
    if (inspect_is_rng(a) && !arguments) {
        out_str(o, "kind", "kind", "random states of a rank");
        rc = inspect_rng(o, NULL, a, true, &tree, err);
        json_object_foreach (tree, key, v)
            out_json(o, key, NULL, v);
    } else {
        tree = value_to_json(torch_archive_root(a), MAX_VALUES);
        if (arguments)
            rc = put_arguments(o, tree, err);
        else
            out_json(o, "value", "value", tree);
    }
    json_decref(tree);
    torch_archive_close(a);
    return rc;
}
