/* push/remake under failure: what is published otherwise than it lies there is whole, or nothing is. */
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "libckpt/base/json.h"
#include "tools/push/remake.h"

static const char *dir;

BEFORE_ALL()
{
    dir = scratch("remake");
    shell(text_of("mkdir %s/m && cd %s/m && "
                  "printf '{\"base_model_name_or_path\": \"/home/someone/models/base\", \"r\": 4}' >adapter_config.json && "
                  "printf '{\"format\": 1, \"files\": [{\"name\": \"adapter_config.json\", \"size\": 1, \"sha256\": \"00\"}]}' >MANIFEST.json && "
                  "echo x >notes.txt", dir, dir));
}

AFTER_ALL() { scratch_remove(dir); }

/* The bytes of a file of the plan. */
static json_t *json_of(const struct push_plan *p, const char *name, bool made)
{
    struct ckpt_err err = {0};
    json_t *json = NULL;

    for (size_t i = 0; i < p->n; i++) {
        struct ckpt_file *file;

        if (strcmp(p->file[i].from, name) != 0)
            continue;
        assert_int_equal(p->file[i].made != NULL, made);
        assert_int_equal(push_plan_open(&file, p, i, false, &err), 0);
        assert_int_equal(ckpt_json_read(&json, file, 1000, 0, &err), 0);
        ckpt_file_close(file);
    }
    assert_non_null(json);
    return json;
}

TEST(remade_files_are_whole)
{
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        struct push_plan p = {0};
        struct ckpt_err err = {0};
        json_t *config;
        int rc = push_plan_make(&p, text_of("%s/m", dir), &(struct push_filter){0}, &err);

        rc = rc ? rc : push_rename_bases(&p, false, &err);
        rc = rc ? rc : push_remanifest(&p, false, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "remaking");
        if (rc == 0) {
            config = json_of(&p, "adapter_config.json", true);
            assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), "base");
            json_decref(config);
        }
        push_plan_release(&p);
    }
}
