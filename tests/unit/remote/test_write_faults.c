/* The writers of buckets and of WebDAV, against the server of the tests: each allocation, read and open fails once.  What
 * failed is told, and what is there is whole. */
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/remote/dav/dav_write.h"
#include "libckpt/remote/s3/s3_write.h"

#define BYTES 6000000u          /* two parts of a bucket */
#define PART  5242880u

static char root[300], source[320], sha256[CKPT_SHA256_HEX];
static pid_t server;

/* Start the server that is built beside this program; its port. */
static int start(void)
{
    char self[4000], serve[4200], log[400];
    int out[2], port = 0;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    FILE *f;

    assert_true(n > 0 && pipe(out) == 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(serve, sizeof serve, "%s/serve", self);
    snprintf(log, sizeof log, "%s/log", root);
    server = fork();
    if (server == 0) {
        dup2(out[1], STDOUT_FILENO);
        execl(serve, "serve", root, log, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    f = fdopen(out[0], "r");
    assert_int_equal(fscanf(f, "%d", &port), 1);
    fclose(f);
    return port;
}

static int port;

BEFORE_ALL()
{
    static unsigned char bytes[BYTES];
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    char text[400];
    FILE *f;

    snprintf(root, sizeof root, "%s", scratch("write_faults"));
    snprintf(source, sizeof source, "%s/source", root);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    f = fopen(source, "w");
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    fclose(f);
    shell(text_of("mkdir -p %s/s3/models %s/dav/f", root, root));
    port = start();
    setenv("CKPT_HTTP_RETRIES", "0", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary-secret", 1);
    snprintf(text, sizeof text, "http://127.0.0.1:%d/s3", port);
    setenv("AWS_ENDPOINT_URL", text, 1);
    setenv("CKPT_DAV_USER", "user", 1);
    setenv("CKPT_DAV_PASSWORD", "hf_canary", 1);
    assert_int_equal(ckpt_file_open(&file, source, 0, &err), 0);
    assert_int_equal(ckpt_sha256_file(sha256, file, &err), 0);
    ckpt_file_close(file);
}

AFTER_ALL()
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    scratch_remove(root);
}

/* Whether the file at a path of the server is the source; it may be absent. */
static bool whole(const char *path)
{
    return system(text_of("[ ! -e %s/%s ] || cmp -s %s/%s %s", root, path, root, path, source)) == 0;
}

static bool exists(const char *path)
{
    return access(text_of("%s/%s", root, path), F_OK) == 0;
}

static int put_whole(struct s3 *s, const struct ckpt_file *file, struct ckpt_err *err)
{
    struct http_body body = {.file = file, .n = BYTES, .sha256 = sha256};

    return s3_put(s, "x/model.bin", &body, sha256, "", err);
}

static int put_parts(struct s3 *s, const struct ckpt_file *file, struct ckpt_err *err)
{
    struct http_body one = {.file = file, .n = PART}, two = {.file = file, .at = PART, .n = BYTES - PART};
    char id[S3_UPLOAD], tag[2][FIELD_BYTES];
    const char *tags[2] = {tag[0], tag[1]};
    struct s3_part part[2];
    int rc = s3_begin(id, s, "x/model.bin", sha256, err);

    if (rc)
        return rc;
    rc = s3_send_part(tag[0], s, "x/model.bin", id, 1, &one, err);
    rc = rc ? rc : s3_send_part(tag[1], s, "x/model.bin", id, 2, &two, err);
    rc = rc ? rc : s3_parts(part, 2, s, "x/model.bin", id, err);
    if (rc == 0)
        assert_true(part[0].size == PART && part[1].size == BYTES - PART);
    rc = rc ? rc : s3_finish(s, "x/model.bin", id, tags, 2, "", err);
    if (rc) {
        struct ckpt_err ignored = {0};

        s3_give_up(s, "x/model.bin", id, &ignored);
    }
    return rc;
}

static void bucket(int (*write)(struct s3 *s, const struct ckpt_file *file, struct ckpt_err *err))
{
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        struct s3 *s = calloc(1, sizeof *s);
        struct ckpt_file *file = NULL;
        struct ckpt_err err = {0};
        struct s3_object o = {0};
        const char *key;
        bool opened;
        int rc = s3_place_open(s, &key, "s3://models/x", &err);

        opened = rc == 0;
        rc = rc ? rc : ckpt_file_open(&file, source, 0, &err);
        rc = rc ? rc : write(s, file, &err);
        rc = rc ? rc : s3_head(&o, s, "x/model.bin", &err);
        rc = rc ? rc : s3_check(s, "x/model.bin", sha256, BYTES, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "a bucket");
        assert_true(whole("s3/models/x/model.bin"));
        assert_true(rc || (exists("s3/models/x/model.bin") && o.exists && o.size == BYTES));
        ckpt_file_close(file);
        if (opened)
            s3_place_close(s);
        free(s);
        shell(text_of("rm -rf %s/s3/models/x %s/s3-meta", root, root));
    }
}

TEST(objects_of_a_bucket) { bucket(put_whole); }

TEST(objects_in_parts) { bucket(put_parts); }

TEST(files_by_webdav)
{
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
        struct dav *d = calloc(1, sizeof *d);
        char aside[DAV_PATH], address[100];
        struct http_body body = {.n = BYTES};
        struct ckpt_file *file = NULL;
        struct dav_file there = {0};
        struct ckpt_err err = {0};
        bool is = false;
        int rc;

        snprintf(address, sizeof address, "dav://127.0.0.1:%d/dav/f", port);
        rc = dav_open_place(d, address, &err);
        rc = rc ? rc : ckpt_file_open(&file, source, 0, &err);
        body.file = file;
        rc = rc ? rc : dav_make_folder(d, "x/", &err);
        rc = rc ? rc : dav_aside(aside, "x/model.bin", sha256, &err);
        rc = rc ? rc : dav_put(d, aside, &body, &err);
        assert_false(exists("dav/f/x/model.bin"));
        rc = rc ? rc : dav_move(d, aside, "x/model.bin", false, &err);
        rc = rc ? rc : dav_head(&there, d, "x/model.bin", &err);
        rc = rc ? rc : dav_check(&is, d, "x/model.bin", sha256, BYTES, &err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "a folder by WebDAV");
        assert_true(whole("dav/f/x/model.bin"));
        assert_true(rc || (is && exists("dav/f/x/model.bin") && there.size == BYTES));
        ckpt_file_close(file);
        free(d);
        shell(text_of("rm -rf %s/dav/f/x", root));
    }
}
