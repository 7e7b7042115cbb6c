/* git/aside - see git/aside.h. */
#include "libckpt/remote/git/aside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/odb_backend.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/commit_sys.h"

#define PRIORITY 1000           /* higher than the repository's own stores */

struct git_aside {
    struct ckpt_outdir *dir;
    char                objects[4096];      /* path of the repository's objects, with or without
                                               "/" at its end */
};

static int fail(struct ckpt_err *err, int code, const char *what)
{
    const git_error *e = git_error_last();

    return ckpt_fail(err, code, "%s: %s", what, e && e->message ? e->message : "git failed");
}

int git_aside_open(struct git_aside **out, git_repository *repo, struct ckpt_err *err)
{
    struct git_aside *a = ckpt_alloc(1, sizeof *a);
    git_odb_backend *backend = NULL;
    git_buf objects = {0};
    char path[4200];
    git_odb *odb = NULL;
    int rc = 0;

    *out = NULL;
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    if (git_repository_item_path(&objects, repo, GIT_REPOSITORY_ITEM_OBJECTS) ||
        (size_t)snprintf(a->objects, sizeof a->objects, "%s", objects.ptr) >= sizeof a->objects)
        rc = fail(err, CKPT_EFORMAT, "objects");
    git_buf_dispose(&objects);
    snprintf(path, sizeof path, "%s/ckpt-push", a->objects);
    if (rc == 0)
        rc = ckpt_outdir_create(&a->dir, path, err);
    if (rc == 0 && (git_odb_backend_loose(&backend, ckpt_outdir_staging(a->dir), -1, 1, 0, 0) ||
                    git_repository_odb(&odb, repo) ||
                    git_odb_add_backend(odb, backend, PRIORITY)))
        rc = fail(err, CKPT_EIO, ckpt_outdir_staging(a->dir));
    git_odb_free(odb);
    if (rc) {
        git_aside_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

/* Move the files of one folder of objects, "ab", to the same folder of the store. */
static int move_folder(struct git_aside *a, const char *name, struct ckpt_err *err)
{
    char from[4600], to[4600], path[4300];
    struct dirent *e;
    DIR *stream;
    int fd, rc = 0;

    snprintf(path, sizeof path, "%s/%s", ckpt_outdir_staging(a->dir), name);
    stream = opendir(path);
    if (!stream)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    snprintf(path, sizeof path, "%s/%s", a->objects, name);
    if (mkdir(path, 0777) && errno != EEXIST)
        rc = ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    while (rc == 0 && (e = readdir(stream)) != NULL) {
        if (strlen(e->d_name) < 38 || strncmp(e->d_name, "tmp_", 4) == 0)
            continue;
        snprintf(from, sizeof from, "%s/%s/%s", ckpt_outdir_staging(a->dir), name, e->d_name);
        snprintf(to, sizeof to, "%s/%s", path, e->d_name);
        if (access(to, F_OK) != 0 && rename(from, to))
            rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", to);
    }
    closedir(stream);
    fd = rc ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rc == 0 && fd < 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    if (fd >= 0) {
        rc = commit_sync_dir(fd, path, err);
        close(fd);
    }
    return rc;
}

int git_aside_move(struct git_aside *a, struct ckpt_err *err)
{
    DIR *stream = opendir(ckpt_outdir_staging(a->dir));
    struct dirent *e;
    int fd, rc = 0;

    if (!stream)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", ckpt_outdir_staging(a->dir));
    while (rc == 0 && (e = readdir(stream)) != NULL)
        if (strlen(e->d_name) == 2 && strspn(e->d_name, "0123456789abcdef") == 2)
            rc = move_folder(a, e->d_name, err);
    closedir(stream);
    fd = rc ? -1 : open(a->objects, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        rc = commit_sync_dir(fd, a->objects, err);
        close(fd);
    }
    return rc;
}

void git_aside_close(struct git_aside *a)
{
    if (!a)
        return;
    ckpt_outdir_abort(a->dir);
    ckpt_free(a);
}
