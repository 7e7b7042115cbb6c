/* records: JSON documents, CSV, compressed files, token ids, folders and splits. */
#include "tests/unit/records_help.h"

#include <math.h>

#include "formats/records/csv/value.h"
#include "formats/records/card.h"
#include "formats/records/rows.h"
#include "formats/records/split.h"
#include "libckpt/base/json.h"

#define G "tests/golden/data/"
#define HF_ROWS "tests/golden/hf-rows.jsonl"

static const char *dir;

/* The rows of a file of that text, one JSON text a line. */
static void reads(const char *name, const char *text, const struct records_opts *opts,
                  const char *rows)
{
    assert_same_rows(put_in(dir, name, text), opts, put_in(dir, "want.jsonl", rows), 1);
}

/* The error of opening the file, or of its record i. */
static void fails(const char *name, const char *text, const struct records_opts *opts, int64_t i,
                  const char *why)
{
    struct ckpt_err err = {0};
    const char *path = put_in(dir, name, text);
    struct records *r;
    json_t *v;

    if (records_open_with(&r, &path, 1, opts, &err) == 0) {
        assert_int_not_equal(records_get(r, i, &v, &err), 0);
        records_close(r);
    }
    if (!strstr(err.text, why) || !strstr(err.text, name))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

/* -- what other libraries wrote -------------------------------------------------------------- */

TEST(parquet_as_pyarrow_reads_it)
{
    assert_index(G "parquet", "index.json", ".parquet", 24);
}

TEST(flat_files_as_datasets_reads_them)
{
    static const struct records_opts data = {.field = "data"};

    assert_same_rows(G "flat/array.json", NULL, G "flat/rows.jsonl", 1);
    assert_same_rows(G "flat/columns.json", NULL, G "flat/rows.jsonl", 1);
    assert_same_rows(G "flat/field-data.json", NULL, G "flat/rows.jsonl", 1);
    assert_same_rows(G "flat/field-data.json", &data, G "flat/rows.jsonl", 1);
    assert_same_rows(G "flat/rows.jsonl.gz", NULL, G "flat/rows.jsonl", 1);
    assert_same_rows(G "flat/rows.csv", NULL, G "flat/rows-csv.jsonl", 1);
    assert_same_rows(G "flat/rows.crlf.csv", NULL, G "flat/rows-csv.jsonl", 1);
    assert_same_rows(G "flat/bom.csv", NULL, G "flat/rows-csv.jsonl", 1);
    assert_same_rows(G "flat/rows.tsv", NULL, G "flat/rows-csv.jsonl", 1);
    assert_same_rows(G "flat/nulls.csv", NULL, G "flat/nulls.jsonl", 1);
}

TEST(nested_squad_is_one_record_a_question)
{
    struct records *got = must_open_records(G "squad-v2.json", NULL),
                   *want = must_open_records(G "parquet/squad.jsonl", NULL);

    assert_int_equal(records_count(got), records_count(want));
    for (int64_t i = 0; i < records_count(got); i++) {
        json_t *a = must_get(got, i), *b;

        /* "q0007" is row 7 of the flat file; the nested one groups them by context. */
        b = must_get(want, atoi(json_string_value(json_object_get(a, "id")) + 1));
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
    }
    records_close(got);
    records_close(want);
}

TEST(lines_of_text)
{
    struct records *r = must_open_records(G "flat/lines.txt", NULL);
    static const char *const want[] = {"first", "", "third \xc3\xa9", "last without newline"};

    assert_int_equal(records_count(r), 4);
    for (int i = 0; i < 4; i++)
        assert_member(r, i, "text", want[i]);
    records_close(r);
}

/* -- JSON ------------------------------------------------------------------------------------ */

TEST(json_layouts)
{
    static const struct records_opts deep = {.field = "a.rows"};

    reads("a.json", " [ ]", NULL, "");
    reads("b.json", "", NULL, "");
    reads("c.json", "[{\"a\":[1,\"]\\\"\"]},\n {\"a\":NaN}]", NULL,
          "{\"a\":[1,\"]\\\"\"]}\n{\"a\":\"NaN\"}\n");
    reads("d.json", "{\"a\": 1}\n{\"a\": 2}\n", NULL, "{\"a\":1}\n{\"a\":2}");
    reads("e.json", "{\n \"a\": 1\n}\n{\n \"a\": 2\n}", NULL, "{\"a\":1}\n{\"a\":2}");
    reads("f.json", "{\"prompt\":\"x\",\"tags\":[1,2]}", NULL, "{\"prompt\":\"x\",\"tags\":[1,2]}");
    reads("g.json", "{\"v\":1,\"a\":{\"rows\":[{\"b\":1}]}}", &deep, "{\"b\":1}");
    reads("h.json", "{\"a\":{\"rows\":{\"b\":[1,2],\"c\":[null,\"x\"]}}}", &deep,
          "{\"b\":1,\"c\":null}\n{\"b\":2,\"c\":\"x\"}");
    fails("i.json", "{\"a\":[1],\"b\":[]}", NULL, 0, "column \"b\" has 0 values, \"a\" has 1");
    fails("j.json", "[{\"a\":1}", NULL, 0, "ends at byte 8 where ',' or ']' was expected");
    fails("k.json", "[{\"a\":1}, 7]", NULL, 1, "record 2: not a JSON object");
    fails("l.json", "[{\"a\":\"x]", NULL, 0, "where the end of a string was expected");
    fails("m.json", "{\"x\":1}", &deep, 0, "no member \"a.rows\"");
    fails("n.json", "[{\"a\":1,}, {}]", NULL, 0, "record 1: at byte 1: json: line 1");
    fails("p.jsonl", "{\"a\":1}\n\n{\"a\": 1 x}", NULL, 1, "record 2: line 3: json: column 9: ");
    fails("o.json", "[{} {}]", NULL, 0, "byte 4 is '{' where ',' or ']' was expected");
}

/* The record of an error may hold anything before a call. */
TEST(an_earlier_failure_changes_nothing)
{
    struct ckpt_err err = {.code = CKPT_EIO, .text = "before"};
    const char *path = put_in(dir, "late.json", "{\"a\": 1}\n{\"a\": 2}\n");
    struct records *r;
    json_t *v;

    assert_int_equal(records_open(&r, &path, 1, &err), 0);
    assert_int_equal(records_count(r), 2);
    assert_int_equal(records_get(r, 1, &v, &err), 0);
    json_decref(v);
    records_close(r);
}

/* -- CSV ------------------------------------------------------------------------------------- */

/* Each of these is what pandas 3.0 read_csv gives. */
TEST(csv_as_pandas_reads_it)
{
    static const struct records_opts literal = {.literal = true}, semi = {.delimiter = ';'},
                                     named = {.columns = "x,y"};

    reads("a.csv", "a,b,c,d,e,f,g\n1,1.0,true,True,x,,1e3\n,2,False,False,\"1\",,0x10\n"
          " 3,-.5,TRUE,,  q,,inf\n", NULL,
          "{\"a\":1.0,\"b\":1.0,\"c\":true,\"d\":true,\"e\":\"x\",\"f\":null,\"g\":\"1e3\"}\n"
          "{\"a\":null,\"b\":2.0,\"c\":false,\"d\":false,\"e\":\"1\",\"f\":null,\"g\":\"0x10\"}\n"
          "{\"a\":3.0,\"b\":-0.5,\"c\":true,\"d\":null,\"e\":\"  q\",\"f\":null,\"g\":\"inf\"}\n");
    reads("b.csv", "a,a,,c\n1,2,3,x\n4,5\n\n7,8,9,\"a \"\"b\"\" c\"d\n", NULL,
          "{\"a\":1,\"a.1\":2,\"Unnamed: 2\":3.0,\"c\":\"x\"}\n"
          "{\"a\":4,\"a.1\":5,\"Unnamed: 2\":null,\"c\":null}\n"
          "{\"a\":7,\"a.1\":8,\"Unnamed: 2\":9.0,\"c\":\"a \\\"b\\\" cd\"}");
    reads("c.csv", "a,b\n\"x\"y\"z\",1\nq\"r,2\n", NULL,
          "{\"a\":\"xy\\\"z\\\"\",\"b\":1}\n{\"a\":\"q\\\"r\",\"b\":2}");
    reads("d.csv", "\n \na,b\r1,2\r3,4\r", NULL, "{\"a\":1,\"b\":2}\n{\"a\":3,\"b\":4}");
    reads("e.csv", "a\n\"1\n2\"\n\n\"\"\n\"NA\"", NULL, "{\"a\":\"1\\n2\"}\n{\"a\":null}\n{\"a\":null}");
    reads("f.csv", "a,b\n1_0,1d2\n+5,007\n", NULL, "{\"a\":\"1_0\",\"b\":\"1d2\"}\n{\"a\":\"+5\",\"b\":\"007\"}");
    reads("g.csv", "a,b\n+5,007\n 6 ,-1\n", NULL, "{\"a\":5,\"b\":7}\n{\"a\":6,\"b\":-1}");
    reads("h.csv", "a,b\n99999999999999999999,1e400\n1,2\n", &(struct records_opts){0},
          "{\"a\":\"99999999999999999999\",\"b\":\"1e400\"}\n{\"a\":\"1\",\"b\":\"2\"}");
    reads("i.csv", "a,b\nNA,007\n,x\n", &literal, "{\"a\":\"NA\",\"b\":\"007\"}\n{\"a\":null,\"b\":\"x\"}");
    reads("j.csv", "a;b\n1,5;2\n", &semi, "{\"a\":\"1,5\",\"b\":2}");
    reads("k.csv", "1,2\n3,4\n", &named, "{\"x\":1,\"y\":2}\n{\"x\":3,\"y\":4}");
    reads("l.csv", "a,b\n", NULL, "");
    fails("m.csv", "a,b\n1,2\n1,2,3\n", NULL, 1, "record 2: at byte 8: 3 fields, the header names 2");
    fails("mm.csv", "a,b\n1,2,3,4,5\n", NULL, 0, "at byte 4: 5 fields, the header names 2");
    fails("n.csv", "a,b\n1,\"2\n3,4\n", NULL, 0, "record 1: a quote that begins after byte 4 has no end");
    fails("o.csv", "a,b\n1,\xff\n", NULL, 0, "column \"b\" is not UTF-8 text");
    fails("p.csv", "a,\xff\n1,2\n", NULL, 0, "the name of column 2");
}

/* What is read without strtod and strtoll is what they read. */
TEST(csv_numbers)
{
    static const char *const odd[] = {"5.", ".5", "-.5", "+1.", "-0", "-0.0", "000000000000001.5",
                                      "0.000000000000001", "999999999999999", "1e22", "12345678.9e3",
                                      "123456789012345.6", "9223372036854775807"};
    static const char *const none[] = {"", ".", "-", "+", "--1", "1.2.3", "1-", "0x10", "1e400", "1 2",
                                       "9223372036854775808", "-9223372036854775809", "1_0", "e5"};
    char text[64];
    int64_t whole;
    double real;

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_true(csv_as_real(odd[i], strlen(odd[i]), &real));
        assert_true(real == strtod(odd[i], NULL) && !signbit(real) == !signbit(strtod(odd[i], NULL)));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(csv_as_real(none[i], strlen(none[i]), &real));
        assert_false(csv_as_int(none[i], strlen(none[i]), &whole));
    }
    assert_true(csv_as_int(" -9223372036854775808\t", 22, &whole) && whole == INT64_MIN);
    srand(7);
    for (int i = 0; i < 200000; i++) {
        int n = snprintf(text, sizeof text, "%s%.*f", i % 3 ? "" : "-", rand() % 12,
                         (double)rand() / (1 << rand() % 31));

        assert_true(csv_as_real(text, (size_t)n, &real));
        if (real != strtod(text, NULL))
            fail_msg("%s is %.17g, not %.17g", text, real, strtod(text, NULL));
    }
}

/* A record that lies across the blocks of the scan and of a read. */
TEST(csv_over_block_ends)
{
    size_t n = (3u << 20) + 17, at;
    char *text = malloc(n + 64), *long_one = malloc(n);
    struct records *r;
    json_t *v;

    at = (size_t)sprintf(text, "a,b\n1,\"");
    for (size_t i = 0; i < n - 40; i++)
        long_one[i] = "ab,\n\"xyz\r"[i % 9];
    for (size_t i = 0; at < n - 40; i++) {
        if (long_one[i] == '"')
            text[at++] = '"';
        text[at++] = long_one[i];
        long_one[i + 1] = i + 1 < n - 40 ? long_one[i + 1] : 0;
    }
    at += (size_t)sprintf(text + at, "\"\n2,y\n");
    r = must_open_records(put_bytes_in(dir, "big.csv", text, at), NULL);
    assert_int_equal(records_count(r), 2);
    v = must_get(r, 0);
    assert_memory_equal(json_string_value(json_object_get(v, "b")), long_one,
                        json_string_length(json_object_get(v, "b")));
    assert_true(json_string_length(json_object_get(v, "b")) > 2 << 20);
    json_decref(v);
    assert_member(r, 1, "b", "y");
    records_close(r);
    free(text);
    free(long_one);
}

/* -- token ids ------------------------------------------------------------------------------- */

TEST(token_ids)
{
    static const char npy[] = "\x93NUMPY\x01\0\x46\0{'descr': '<u2', 'fortran_order': False, "
                              "'shape': (5,), }            \n\1\0\2\0\3\0\xff\xff\5\0",
                      table[] = "\x93NUMPY\x01\0\x46\0{'descr': '<i4', 'fortran_order': False, "
                                "'shape': (2, 1), }          \n\7\0\0\0\x08\0\0\0",
                      idx[] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                              "\2\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                      bin[] = "\x0a\0\x0b\0\x0c\0";
    static const struct records_opts two = {.stream_tokens = 2};

    assert_same_rows(put_bytes_in(dir, "s.npy", npy, sizeof npy - 1), &two,
                     put_in(dir, "s.jsonl", "{\"input_ids\":[1,2]}\n{\"input_ids\":[3,65535]}\n"
                                            "{\"input_ids\":[5]}"), 1);
    assert_same_rows(put_bytes_in(dir, "t.npy", table, sizeof table - 1), &two,
                     put_in(dir, "t.jsonl", "{\"input_ids\":[7]}\n{\"input_ids\":[8]}"), 1);
    put_bytes_in(dir, "m.bin", bin, sizeof bin - 1);
    assert_same_rows(put_bytes_in(dir, "m.idx", idx, sizeof idx - 1), NULL,
                     put_in(dir, "m.jsonl", "{\"input_ids\":[10,11]}\n{\"input_ids\":[12]}"), 1);
    refuse_records(put_bytes_in(dir, "cut.npy", npy, sizeof npy - 3), NULL, CKPT_EFORMAT,
                   "cut.npy: 5 x 1 ids of 2 bytes, the file has 8 bytes", "");
    refuse_records(put_bytes_in(dir, "cut.idx", idx, sizeof idx - 9), NULL, CKPT_EFORMAT,
                   "cut.idx: 2 sequences and 1 documents do not fit", "");
}

/* -- splits ---------------------------------------------------------------------------------- */

TEST(names_say_the_split)
{
    /* As datasets 5.2 tells them. */
    static const struct { const char *path; enum split_rule rule; const char *split; } rows[] = {
        {"data/train-00000-of-00001.parquet", SPLIT_SHARDED, "train"},
        {"data/my_split-00001-of-00003-abcdef.jsonl.gz", SPLIT_SHARDED, "my_split"},
        {"train-00000-of-00001.parquet", SPLIT_BY_FILE, "train"},
        {"train/a.jsonl", SPLIT_BY_DIR, "train"},
        {"x/my_dev_2/a.jsonl", SPLIT_BY_DIR, "validation"},
        {"trainer/a.jsonl", SPLIT_ALL_TRAIN, "train"},
        {"my-testing.jsonl", SPLIT_BY_FILE, "test"},
        {"latest.jsonl", SPLIT_ALL_TRAIN, "train"},
        {"val.csv", SPLIT_BY_FILE, "validation"},
        {"evaluation 1.csv", SPLIT_BY_FILE, "test"},
        {"train.en-test.csv", SPLIT_BY_FILE, "train"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct split_name got;

        assert_int_equal(split_rule_of(&rows[i].path, 1), rows[i].rule);
        got = split_name_of(rows[i].path, rows[i].rule);
        assert_int_equal(got.len, strlen(rows[i].split));
        assert_memory_equal(got.name, rows[i].split, got.len);
    }
}

/* Expression over 250 records "train" and 7 of "test": from, to of each part. */
TEST(split_expressions)
{
    static const struct { const char *text; int64_t n, from, to; } rows[] = {
        {"train", 250, 0, 250}, {"train[:10%]", 250, 0, 25}, {"train[10%:]", 250, 25, 250},
        {"train[:1%]", 250, 0, 2}, {"train[:3%]", 250, 0, 8}, {"train[:33%]", 7, 0, 2},
        {"train[-10:]", 250, 240, 250}, {"train[-20%:-10%]", 250, 200, 225},
        {"train[100:2_00]", 250, 100, 200}, {"train[300:]", 250, 250, 250},
        {"train[:50%](pct1_dropremainder)", 250, 0, 100}, {"train[:]", 250, 0, 250},
        {"train[:50%](closest)", 7, 0, 4}, {"train[5:2]", 7, 2, 2},
    };
    static const char *const bad[] = {"train[5]", "train[:5", "train+", ""};
    struct split_part part[SPLIT_MAX_PARTS];
    struct ckpt_err err = {0};
    int64_t from, to;
    size_t n;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(split_parse(part, &n, rows[i].text, &err), 0);
        assert_int_equal(n, 1);
        assert_int_equal(split_range(part, rows[i].n, &from, &to, &err), 0);
        if (from != rows[i].from || to != rows[i].to)
            fail_msg("%s of %lld is %lld..%lld", rows[i].text, (long long)rows[i].n,
                     (long long)from, (long long)to);
    }
    assert_int_equal(split_parse(part, &n, " train[:5] + test ", &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(part[1].name, "test");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(split_parse(part, &n, bad[i], &err), CKPT_EUSAGE);
    assert_int_equal(split_parse(part, &n, "train[:500%]", &err), 0);
    assert_int_equal(split_range(part, 10, &from, &to, &err), CKPT_EUSAGE);
}

static void assert_ids(struct records *r, const char *want)
{
    char got[256] = "";

    for (int64_t i = 0; i < records_count(r); i++) {
        json_t *v = must_get(r, i);

        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? " " : "",
                 (long long)json_integer_value(json_object_get(v, "i")));
        json_decref(v);
    }
    assert_string_equal(got, want);
}

static void opens(const char *path, const struct records_opts *opts, const char *ids)
{
    struct records *r = must_open_records(path, opts);

    assert_ids(r, ids);
    records_close(r);
}

TEST(parts_of_a_folder)
{
    static const struct {
        int64_t n, index; bool strided; const char *ids, *second;
    } shard[] = {
        {3, 0, false, "1 2 3", ""}, {3, 1, false, "4 5", ""}, {3, 2, false, "6 7", ""},
        {3, 0, true, "1 4 7", "4"}, {3, 1, true, "2 5", "5"}, {3, 2, true, "3 6", "6"},
        {1, 0, false, "1 2 3 4 5 6 7", ""}, {7, 6, true, "7", ""}, {7, 6, false, "7", ""},
    };
    struct records_opts opts = {.split = "test[1:]+train[:50%]+test[:1]"};
    const char *path = path_in(dir, "set");
    struct ckpt_err err = {0};
    struct records *r;

    put_in(dir, "set/config.json", "{}");
    put_in(dir, "set/data/train-00000-of-00002.jsonl", "{\"i\":1}\n{\"i\":2}\n");
    put_in(dir, "set/data/train-00001-of-00002.jsonl", "{\"i\":3}\n{\"i\":4}\n");
    put_in(dir, "set/data/test-00000-of-00001.jsonl", "{\"i\":5}\n{\"i\":6}\n{\"i\":7}\n");
    r = must_open_records(path, &opts);
    assert_ids(r, "6 7 1 2 5");
    records_slice(r, 1, 4);
    assert_ids(r, "7 1 2");
    records_slice(r, -2, INT64_MAX);
    assert_ids(r, "1 2");
    records_close(r);
    /* Dataset.shard(n, index, contiguous) of datasets 5.2 of seven rows. */
    opts.split = "train+test";
    for (size_t i = 0; i < sizeof shard / sizeof *shard; i++) {
        r = must_open_records(path, &opts);
        assert_int_equal(records_shard(r, shard[i].n, shard[i].index, shard[i].strided, &err), 0);
        assert_ids(r, shard[i].ids);
        if (shard[i].strided) {
            records_slice(r, 1, 2);
            assert_int_equal(records_shard(r, 1, 0, true, &err), 0);
            assert_ids(r, shard[i].second);
        }
        records_close(r);
    }
    r = must_open_records(path, &opts);
    assert_int_equal(records_shard(r, 3, 3, false, &err), CKPT_EUSAGE);
    assert_int_equal(records_shard(r, 2, 1, true, &err), 0);
    assert_int_equal(records_shard(r, 2, 1, false, &err), 0);
    assert_ids(r, "6");
    records_close(r);
    refuse_records(path, NULL, CKPT_EUSAGE, "", "");
    opts.split = "validation";
    refuse_records(path, &opts, CKPT_ENOTFOUND, "no files of split \"validation\"", "");
    opts.split = "train";
    assert_same_rows("tests/golden/hf-imdb", &opts, HF_ROWS, 1);
    assert_same_rows("tests/golden/hf-saved", &opts, HF_ROWS, 1);
    opts.split = "nowhere";
    refuse_records("tests/golden/hf-saved", &opts, CKPT_ENOTFOUND, "", "");
}

TEST(patterns)
{
    static const struct { const char *pattern, *path; bool want; } rows[] = {
        {"data/train-*", "data/train-0.parquet", true}, {"data/train-*", "data/x/train-0", false},
        {"*.jsonl", "a.jsonl", true}, {"*.jsonl", "data/a.jsonl", false}, {"*.jsonl", ".a.jsonl", false},
        {"**/*.jsonl", "a.jsonl", true}, {"**/*.jsonl", "a/b/c.jsonl", true},
        {"**/*.jsonl", ".git/c.jsonl", false}, {"a/**", "a/b/c", true}, {"a/**", "a", false},
        {"**", "a/b", true}, {"a/**/z", "a/z", true}, {"a/**/z", "a/b/c/z", true},
        {"a/**/z", "a/b/c/y", false}, {"a?[0-9]", "ab7", true}, {"a?[0-9]", "a/7", false},
        {"**/b/**/d", "a/b/c/d", true}, {"**/b/**/d", "b/d", true}, {"**/b/**/d", "c/d", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (card_matches(rows[i].pattern, rows[i].path) != rows[i].want)
            fail_msg("%s %s", rows[i].pattern, rows[i].path);
}

/* A README.md with one configuration more than the others. */
static void put_card(const char *more)
{
    char text[1000];

    snprintf(text, sizeof text,
             "---\nlicense: mit\nconfigs:\n"
             "- config_name: main\n  data_files:\n"
             "  - split: train\n    path: [m/a*.jsonl, \"m/**/z.jsonl\"]\n"
             "  - split: test\n    path: m/b.jsonl\n"
             "- config_name: socratic\n  data_dir: ./s/\n  data_files: '*.jsonl'\n"
             "- config_name: whole\n  data_dir: m\n"
             "- config_name: lost\n  data_files: nothing/*\n"
             "%s---\n# Text\n", more);
    put_in(dir, "card/README.md", text);
}

TEST(configurations_of_a_card)
{
    /* `ids` of the records, or the code and words of the refusal. */
    static const struct {
        const char *more, *config, *split, *ids; int code; const char *why;
    } rows[] = {
        {"", NULL, NULL, NULL, CKPT_EUSAGE,
         "several configurations in README.md: main, socratic, whole, lost"},
        {"", "other", NULL, NULL, CKPT_ENOTFOUND,
         "no configuration \"other\" in README.md; there are: main, soc"},
        {"", "main", NULL, NULL, CKPT_EUSAGE, "files of several splits, train and test"},
        {"", "main", "train", "1 2 3", 0, NULL},
        {"", "main", "test+train[:1]", "4 1", 0, NULL},
        {"", "main", "validation", NULL, CKPT_ENOTFOUND,
         "no files of split \"validation\"; README.md names train, test"},
        {"", "socratic", NULL, "5", 0, NULL},
        {"", "whole", NULL, "1 2 4 3", 0, NULL},
        {"", "lost", NULL, NULL, CKPT_ENOTFOUND,
         "configuration \"lost\": no file of data matches \"nothing/*\""},
        /* One that is meant without its name. */
        {"- config_name: d\n  default: true\n  data_files: s\n", NULL, NULL, "5", 0, NULL},
        {"- config_name: out\n  data_files: ../x\n", NULL, NULL, NULL, CKPT_EREFUSED,
         "\"../x\" is no pattern of files below the folder"},
        /* Slashes after "./" lead below the folder, not to the root. */
        {"- config_name: here\n  data_dir: .//m\n  data_files: .///b.jsonl\n", "here", NULL, "4", 0,
         NULL},
        {"- config_name: out\n  data_files: ././/\n", NULL, NULL, NULL, CKPT_EREFUSED,
         "\"\" is no pattern of files below the folder"},
        {"- data_files: x\n", NULL, NULL, NULL, CKPT_EFORMAT,
         "README.md: a configuration without config_name"},
    };
    struct records *r;

    put_in(dir, "card/m/a2.jsonl", "{\"i\":2}\n");
    put_in(dir, "card/m/a1.jsonl", "{\"i\":1}\n");
    put_in(dir, "card/m/deep/z.jsonl", "{\"i\":3}\n");
    put_in(dir, "card/m/b.jsonl", "{\"i\":4}\n");
    put_in(dir, "card/s/x.jsonl", "{\"i\":5}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct records_opts opts = {.config = rows[i].config, .split = rows[i].split};

        put_card(rows[i].more);
        if (rows[i].ids)
            opens(path_in(dir, "card"), &opts, rows[i].ids);
        else
            refuse_records(path_in(dir, "card"), &opts, rows[i].code, rows[i].why, "");
    }
    /* What is no YAML is told, and the names of files decide. */
    put_in(dir, "card/README.md", "---\nconfigs: [\n---\n");
    r = must_open_records(path_in(dir, "card"), NULL);
    assert_int_equal(records_count(r), 5);
    records_close(r);
}

BEFORE_ALL()
{
    dir = scratch("records");
}

AFTER_ALL()
{
    scratch_remove(dir);
}
