/* A chat template of any bytes over a conversation: text or an error, within the limits. */
#include "formats/jinja/jinja.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct jinja_out out = {0};
    struct jinja *t;
    json_t *vars;

    if (jinja_parse(&t, (const char *)data, size, &err)) {
        must(!t && err.text[0]);
        return 0;
    }
    vars = json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:b, s:s, s:n}", "messages", "role", "user", "content",
                     "hi \xc3\xa9", "role", "assistant", "content", "yes", "add_generation_prompt", 1,
                     "bos_token", "<s>", "tools");
    must(jinja_render(t, vars, 1700000000, &out, &err) == 0 || err.text[0]);
    for (size_t i = 0; i < out.n_span; i++)
        must(out.span[i].begin <= out.span[i].end && out.span[i].end <= out.text.len);
    jinja_out_release(&out);
    jinja_free(t);
    json_decref(vars);
    return 0;
}
