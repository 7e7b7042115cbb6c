/* Files that are no tokenizers: one line each, with the file and the place in it. */
#include "tests/unit/golden_tokens.h"
#include "tests/unit/records_help.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"             \
              "\"merges\":[\"a b\"]}"
#define HEAD  "{\"version\":\"1.0\","
#define JSON  "m/tokenizer.json"
#define SPM   "m/spiece.model"
#define RANKS "m/x.tiktoken"

/* Text without NUL; what it is refused with, behind the file's name. */
static const struct { const char *name, *text, *says; int code; } bad[] = {
    /* Syntax. */
    {JSON, "", "is empty", CKPT_EFORMAT},
    {JSON, HEAD "\n " MODEL "}}", "json: line 2, column ", CKPT_EFORMAT},
    {JSON, HEAD "\n\"model\":", "json: line 2, column 8", CKPT_EFORMAT},
    {JSON, HEAD MODEL "," MODEL "}", "duplicate", CKPT_EFORMAT},
    {JSON, HEAD "\"\xff\":0," MODEL "}", "json: byte 18 of ", CKPT_EFORMAT},
    {JSON, HEAD "\"x\":NaN," MODEL "}", "json: line 1, column ", CKPT_EFORMAT},
    /* Absent. */
    {JSON, "{" MODEL "}", "\"version\" is absent", CKPT_EFORMAT},
    {JSON, "{\"version\":\"1.0\"}", "\"model\" is absent, an object wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\"}}", "model: \"vocab\" is absent", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}",
     "model: \"merges\" is absent, a list wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"pre_tokenizer\":{\"type\":\"Split\"}," MODEL "}",
     "pre_tokenizer: Split: \"pattern\" is absent", CKPT_EFORMAT},
    /* Of another type. */
    {JSON, HEAD "\"model\":3}", "\"model\" is an integer, an object wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}",
     "model: \"merges\" is an object, a list wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}",
     "model.vocab: token \"a\" has no id", CKPT_EFORMAT},
    {JSON, HEAD "\"added_tokens\":{}," MODEL "}", "\"added_tokens\" is an object", CKPT_EFORMAT},
    {JSON, HEAD "\"added_tokens\":[{\"id\":\"x\",\"content\":\"y\"}]," MODEL "}",
     "added_tokens[0]: \"id\" is a string, an integer wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":3}]}]}," MODEL "}",
     "normalizer: normalizers[1]: normalizers[0]: \"type\" is an integer", CKPT_EFORMAT},
    {JSON, HEAD "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":3}," MODEL "}",
     "decoder: WordPiece: \"prefix\" is an integer, a string wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":3}," MODEL "}",
     "post_processor: TemplateProcessing: \"single\" is an integer", CKPT_EFORMAT},
    {JSON, HEAD "\"truncation\":{\"max_length\":\"x\"}," MODEL "}",
     "truncation: \"max_length\" is a string, an integer wanted", CKPT_EFORMAT},
    {JSON, HEAD "\"padding\":{\"strategy\":\"BatchLongest\",\"pad_id\":\"x\"}," MODEL "}",
     "padding: \"pad_id\" is a string", CKPT_EFORMAT},
    /* Merges of what is not there. */
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                "\"merges\":[\"a b\",\"ab q\"]}}",
     "model: merges[1]: \"q\" is not in the vocabulary", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                "\"merges\":[[\"a\",\"b\"],[\"b\",\"a\"]]}}",
     "model: merges[1]: ", CKPT_EFORMAT},
    {JSON, HEAD "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[3]}}",
     "model: merges[0]: ", CKPT_EFORMAT},
    /* A map of characters that is none. */
    {JSON, HEAD "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!!!!\"},"
     MODEL "}", "normalizer: Precompiled: precompiled_charsmap is not base64", CKPT_EFORMAT},
    {JSON, HEAD "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAQAAA==\"},"
     MODEL "}", "normalizer: Precompiled: precompiled_charsmap: a trie of 1024 bytes in 4",
     CKPT_EFORMAT},
    {JSON, HEAD "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a(\"},"
                "\"behavior\":\"Isolated\"}," MODEL "}",
     "pre_tokenizer: Split: ", CKPT_EUNSUPPORTED},
    /* sentencepiece models. */
    {SPM, "", "is empty", CKPT_EFORMAT},
    {SPM, "\n", "byte 1 of 1", CKPT_EFORMAT},
    {SPM, "\n\x08\n\x01" "a\x15????\x12", "byte 11 of 11", CKPT_EFORMAT},
    {SPM, "\n\x08\n\x01" "a\x15????", "ends at byte 10 without its trainer_spec",
     CKPT_EFORMAT},
    {SPM, "\n\x09\n\x01" "a\x15", "byte 2 of 6", CKPT_EFORMAT},
    /* Ranks. */
    {RANKS, "IQ== 0\nIg== x\n", "line 2 is not base64, a space and a rank", CKPT_EFORMAT},
    {RANKS, "IQ== 0\nI*== 1\n", "line 2 is not base64, a space and a rank", CKPT_EFORMAT},
    {RANKS, "IQ== 0\nIg==\n", "line 2 is not base64, a space and a rank", CKPT_EFORMAT},
    {RANKS, "IQ== 0\nIg== 99999999999\n", "line 2 is not base64", CKPT_EFORMAT},
    {RANKS, "IQ== 0\nIg== 1\nIQ== 2\n", "line 3: a token that stands above", CKPT_EFORMAT},
};

static void refused(const char *name, const void *bytes, size_t n, const char *says, int code)
{
    struct ckpt_err err = {0};
    size_t len = strlen(name);

    if (open_bytes(name, bytes, n, &err))
        fail_msg("%s: opened, \"%s\" wanted", name, says);
    if (err.code != code || strncmp(err.text, name, len) != 0 ||
        strncmp(err.text + len, ": ", 2) != 0 || !strstr(err.text + len, says) ||
        strchr(err.text, '\n'))
        fail_msg("%d, \"%s\"; wanted %d, \"%s\"", err.code, err.text, code, says);
}

TEST(files_and_places_are_told)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused(bad[i].name, bad[i].text, strlen(bad[i].text), bad[i].says, bad[i].code);
}

/* Of a real model each front part is refused, and where it breaks off is within it. */
TEST(a_model_that_is_cut)
{
    size_t n;
    unsigned char *bytes = golden_bytes(TOKENIZERS "/t5/spiece.model", &n);

    for (size_t cut = 1; cut < n; cut += cut < 300 ? 1 : 3989)
        refused(SPM, bytes, cut, "", CKPT_EFORMAT);
    refused(SPM, bytes, 5003, " of 5003", CKPT_EFORMAT);
    free(bytes);
}

/* In a directory it is told which of its files it is. */
TEST(directories_name_the_file)
{
    static const struct { const char *name, *text, *config, *says; } one[] = {
        {"tokenizer.json", HEAD "\"model\":3}", "{}", "/tokenizer.json: \"model\" is an integer"},
        {"tokenizer.json", "{", "{}", "/tokenizer.json: json: line 1"},
        {"tokenizer.json", HEAD MODEL "}", "{\"bos_token\":3}",
         ": tokenizer_config.json: bos_token is neither"},
        {"tokenizer.json", HEAD MODEL "}", "[", "/tokenizer_config.json: json: line 1"},
        {"x.tiktoken", "IQ== 0\nIg==\n", "{}", "/x.tiktoken: line 2"},
        {"vocab.txt", "", "{}", "/vocab.txt: no lines"},
    };

    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        const char *path = scratch("tokenizer-bad");
        struct ckpt_err err = {0};
        struct ckpt_dir *dir;
        struct tokenizer *t;
        char says[400];

        put_in(path, one[i].name, one[i].text);
        put_in(path, "tokenizer_config.json", one[i].config);
        assert_int_equal(ckpt_dir_open(&dir, path, 0, &err), 0);
        assert_true(tokenizer_open_dir(&t, dir, &err) < 0 && !t);
        snprintf(says, sizeof says, "%s%s", path, one[i].says);
        if (strncmp(err.text, says, strlen(says)) != 0)
            fail_msg("\"%s\", \"%s\" wanted", err.text, says);
        ckpt_dir_close(dir);
        scratch_remove(path);
    }
}
