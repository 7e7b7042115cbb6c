/* bnb_config - see bnb_config.h. */
#include "formats/weights/bnb_config.h"

#include <string.h>

#include "libckpt/buf.h"
#include "libckpt/json.h"
#include "libckpt/view_extra.h"

/* Its quant_method says so, or one of the keys that transformers wrote before there was one. */
static bool is_bnb(const json_t *q)
{
    const char *method = json_string_value(json_object_get(q, "quant_method"));

    return method ? strcmp(method, "bitsandbytes") == 0
                  : json_object_get(q, "load_in_4bit") || json_object_get(q, "load_in_8bit");
}

int bnb_config(struct ckpt_source **src, struct ckpt_err *err)
{
    const struct ckpt_extra *e = ckpt_source_extra(*src, "config.json");
    struct ckpt_source *below = *src;
    json_t *config = NULL;
    struct ckpt_buf b;
    int rc;

    if (!e)
        return 0;
    ckpt_buf_init(&b, (size_t)1 << 26);
    rc = ckpt_json_read(&config, e->file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc)
        ckpt_err_in(err, "config.json");
    if (rc == 0 && !is_bnb(json_object_get(config, "quantization_config"))) {
        json_decref(config);
        return 0;
    }
    json_object_del(config, "quantization_config");
    if (rc == 0)
        rc = ckpt_json_write(&b, config, 2, false, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    *src = NULL;
    if (rc)
        ckpt_source_close(below);
    else
        rc = ckpt_view_extra(src, below, "config.json", b.data, b.len, NULL, err);
    ckpt_buf_release(&b);
    json_decref(config);
    return rc;
}
