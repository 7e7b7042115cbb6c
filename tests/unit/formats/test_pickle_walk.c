/* pickle_walk: which names are found, where, and what is wrong besides. */
#include "tests/unit/unit.h"

#include "formats/container/pickle/walk.h"

struct wanted {
    const char *bytes;
    size_t      n;
    const char *name;           /* of the first use: "module name", or "" for none */
    size_t      at;
    bool        called, stopped, broken, getattr;
    const char *odd;            /* a part of the first odd thing, or NULL */
};

#define P(s) s, sizeof s - 1

TEST(names_and_what_is_wrong)
{
    static const struct wanted rows[] = {
        {P("N."), "", 0, false, true, false, false, NULL},
        {P("cos\nsystem\n)R."), "os system", 0, true, true, false, false, NULL},
        {P("\x80\x02(S'x'\nios\nsystem\n."), "os system", 8, true, true, false, false, NULL},
        {P("(cos\nsystem\nNo."), "os system", 1, true, true, false, false, NULL},
        {P("\x80\x04\x8c\x02os\x8c\x06system\x93."), "os system", 14, false, true, false, false,
         NULL},
        {P("\x80\x04\x8c\x02osp7\n0g7\n\x8c\x01x\x93."), "os x", 16, false, true, false, false,
         NULL},
        {P("S'o\\x73'\nV\\u0078\n\x93."), "os x", 17, false, true, false, false, NULL},
        {P("]\x8c\x01x\x93."), "", 0, false, true, false, false, "computed"},
        {P("\x80\x02\x82\x05."), "", 0, false, true, false, false, "extension"},
        {P("ca\nb\nNb."), "a b", 0, false, true, false, false, "changes"},
        {P("ca\nb\n)R)R."), "a b", 0, true, true, false, false, "what a call gave"},
        {P("C\x09" "cos\nx\n)R.."), "", 0, false, true, false, false, NULL},
        {P("C\x0b\x80\x02" "cos\nx\n)R.."), "os x", 4, true, true, false, false, NULL},
        {P("cbuiltins\ngetattr\n(ca\nE\nS'M'\ntR."), "builtins getattr", 0, true, true, false, false,
         NULL},
        {P("cbuiltins\ngetattr\n(ca\nE\nS'_M'\ntR."), "builtins getattr", 0, true, true, false,
         true, NULL},
        {P("cbuiltins\ngetattr\n2(ca\nE\nS'M'\ntR."), "builtins getattr", 0, true, true, false,
         true, NULL},
        {P("R."), "", 0, false, true, true, false, NULL},
        {P("ca\nb\n)R"), "a b", 0, true, false, false, false, NULL},
        {P("ca\nb\n)R\xff"), "a b", 0, true, false, true, false, NULL},
        {P("tca\nb\n)R."), "a b", 1, false, true, true, false, NULL},
        {P("\x80\x02(U\x03modU\x01xtQ."), "", 0, false, true, false, false, "persistent"},
        {P("\x80\x02(U\x07storageU\x01xtQ."), "", 0, false, true, false, false, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct wanted *r = &rows[i];
        struct pickle_walk w = {0};
        struct ckpt_err err = {0};
        char name[100] = "";

        assert_int_equal(pickle_walk(&w, r->bytes, r->n, &err), 0);
        if (w.n_use)
            snprintf(name, sizeof name, "%s %s", w.use[0].module, w.use[0].name);
        if (strcmp(name, r->name) != 0 || (w.n_use && w.use[0].at != r->at) ||
            w.called != r->called || w.stopped != r->stopped || (w.broken != NULL) != r->broken ||
            w.getattr != r->getattr || (r->odd != NULL) != (w.n_odd > 0) ||
            (r->odd && !strstr(w.odd[0].what, r->odd)))
            fail_msg("row %zu: '%s' at %zu, called %d, stopped %d, %s, getattr %d, %s", i, name,
                     w.n_use ? w.use[0].at : 0, w.called, w.stopped, w.broken ? w.broken : "-",
                     w.getattr, w.n_odd ? w.odd[0].what : "-");
        pickle_walk_release(&w);
    }
}

/* What grows without an end is a limit, not memory. */
TEST(a_bomb_is_a_limit)
{
    static char marks[2 * 1048576 + 2];
    struct pickle_walk w = {0};
    struct ckpt_err err = {0};

    memset(marks, '(', sizeof marks);
    assert_int_equal(pickle_walk(&w, marks, sizeof marks, &err), CKPT_ELIMIT);
    pickle_walk_release(&w);
    memset(marks, 'N', sizeof marks);
    assert_int_equal(pickle_walk(&w, marks, sizeof marks, &err), CKPT_ELIMIT);
    pickle_walk_release(&w);
}
