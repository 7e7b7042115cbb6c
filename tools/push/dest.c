/* dest - see dest.h. */
#include "tools/push/dest.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/remote/dav/dav.h"
#include "libckpt/remote/git/git.h"
#include "libckpt/remote/git/place.h"
#include "tools/push/plan_file.h"

#define COMMIT (DEST_BRANCH | DEST_MESSAGE | DEST_AUTHOR | DEST_CREATE | DEST_DELETE | DEST_REPLACE)

/* A path that does not exist is a repository when its name says so. */
static bool is_git(const char *path)
{
    size_t n = strlen(path);

    return ckpt_git_is_repository(path) || (n > 4 && strcmp(path + n - 4, ".git") == 0);
}

static bool is_folder(const char *path)
{
    (void)path;
    return true;
}

/* Of rows without a scheme the first whose is_address, or is_path, agrees. */
static const struct dest_kind kinds[] = {
    {.name = "a repository of the Hub", .scheme = "hf://", .whole = true, .is_public = true,
     .takes = COMMIT | DEST_PRIVATE | DEST_PR | DEST_TAG | DEST_VERIFY, .check = send_hub_check,
     .send = send_hub},
    {.name = "a model in an OCI registry", .scheme = "oci://", .whole = true, .is_public = true,
     .takes = DEST_TAG | DEST_VERIFY | DEST_REPLACE, .check = send_oci_check, .send = send_oci},
    {.name = "a bucket of S3", .scheme = "s3://", .whole = true, .is_public = true,
     .takes = DEST_CREATE | DEST_DELETE | DEST_VERIFY, .check = send_s3_check, .send = send_s3},
    {.name = "a folder of a WebDAV server", .is_address = dav_is_address, .whole = true,
     .is_public = true,
     .takes = DEST_CREATE | DEST_DELETE | DEST_VERIFY, .check = send_dav_check, .send = send_dav},
    {.name = "a git repository on another host", .is_address = git_place_is, .whole = true,
     .is_public = true,
     .takes = COMMIT & ~(unsigned)DEST_CREATE, .check = send_far_check, .send = send_far},
    {.name = "a git repository", .scheme = "git+file://", .takes = COMMIT,
     .is_public = true, .check = send_git_check, .send = send_git},
    {.name = "a folder", .scheme = "folder://", .check = send_folder_check, .send = send_folder},
    {.name = "a git repository", .is_path = is_git, .takes = COMMIT, .is_public = true,
     .check = send_git_check, .send = send_git},
    {.name = "a folder", .is_path = is_folder, .check = send_folder_check, .send = send_folder},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static int no_destination(const char *address, struct ckpt_err *err)
{
    const char *colon = strstr(address, "://");

    if (!*address)
        ckpt_fail(err, CKPT_EUSAGE, "the destination is empty");
    else if (strcmp(address, "-") == 0)
        ckpt_fail(err, CKPT_EUSAGE, "nothing is published to standard output");
    else
        ckpt_fail(err, CKPT_EUSAGE, "%.300s: nothing is published to %.*s addresses", address,
                  (int)(colon && colon - address < 40 ? colon - address + 3 : 40), address);
    return ckpt_err_hint(err, "hf://, s3://, oci://, davs://, git+https://, "
                         "git@host:owner/name.git, git+file://, folder:// and paths on this host "
                         "are destinations");
}

int dest_find(struct dest *d, const char *address, struct ckpt_err *err)
{
    bool local = strncmp(address, "file://", 7) == 0;
    const char *path = local ? address + 7 : address;

    *d = (struct dest){.address = address};
    for (size_t i = 0; i < N_KINDS && !local; i++) {
        size_t n = kinds[i].scheme ? strlen(kinds[i].scheme) : 0;

        if (n ? strncmp(address, kinds[i].scheme, n) != 0
              : !kinds[i].is_address || !kinds[i].is_address(address))
            continue;
        d->kind = &kinds[i];
        d->place = kinds[i].whole ? address : address + n;
        return address[n] ? 0 : ckpt_fail(err, CKPT_EUSAGE, "%s: says nothing after %s", address,
                                          kinds[i].scheme);
    }
    if (!*path || (!local && (strcmp(address, "-") == 0 || strstr(address, "://"))))
        return no_destination(address, err);
    d->place = path;
    for (size_t i = 0; i < N_KINDS && !d->kind; i++)
        if (kinds[i].is_path && kinds[i].is_path(path))
            d->kind = &kinds[i];
    return 0;
}

/* The first given option that d does not have, or NULL; *takes gets what it belongs to. */
static const char *foreign_option(unsigned *takes, const struct dest *d, const struct send_want *w)
{
    const struct { unsigned takes; bool given; const char *option; } options[] = {
        {DEST_BRANCH, w->branch != NULL, "--branch"},
        {DEST_MESSAGE, w->message != NULL, "--message"},
        {DEST_CREATE, w->create, "--create"}, {DEST_DELETE, w->remove.n > 0, "--delete"},
        {DEST_AUTHOR, w->author != NULL, "--author"}, {DEST_PRIVATE, w->is_private, "--private"},
        {DEST_PR, w->create_pr, "--create-pr"}, {DEST_TAG, w->tag != NULL, "--tag"},
        {DEST_VERIFY, w->verify != NULL, "--verify"},
        {DEST_REPLACE, w->replaces, "--hub-strategy checkpoint"},
    };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].given && !(d->kind->takes & options[i].takes)) {
            *takes = options[i].takes;
            return options[i].option;
        }
    return NULL;
}

/* Say which destinations have that option: "a repository of the Hub, a bucket of S3". */
static int refuse_option(const struct dest *d, const char *option, unsigned takes,
                         struct ckpt_err *err)
{
    char names[300] = "";
    size_t n = 0;

    for (size_t i = 0; i < N_KINDS; i++) {
        bool named = !(kinds[i].takes & takes);

        for (size_t k = 0; k < i; k++)
            named |= strcmp(kinds[k].name, kinds[i].name) == 0;
        if (!named)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
                                  kinds[i].name);
    }
    ckpt_fail(err, CKPT_EUSAGE, "%s: is %s, and %s is for: %s", d->place, d->kind->name, option,
              names);
    return d->kind->takes || !(COMMIT & takes)
               ? CKPT_EUSAGE
               : ckpt_err_hint(err, "git+file://PATH, and a path that ends in .git, name a git "
                               "repository");
}

int dest_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    unsigned takes = 0;
    const char *option = foreign_option(&takes, d, w);

    return option ? refuse_option(d, option, takes, err) : d->kind->check(d, w, err);
}

/* Look first where a plan is carried out: a destination that compares does it once more by itself,
 * with what it then builds on. */
static int look_first(const struct dest *d, struct push_plan *p, const struct send_want *w,
                      const struct cli *cli, struct ckpt_err *err)
{
    struct send_want dry = *w;
    char url[64];
    int rc;

    dry.dry_run = true;
    dry.plan = NULL;
    rc = d->kind->send(url, sizeof url, d, p, &dry, cli, err);
    return rc ? rc : plan_file_agrees(w->plan, p, err);
}

int dest_send(char *url, size_t size, const struct dest *d, struct push_plan *p,
              const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    int rc = w->plan ? look_first(d, p, w, cli, err) : 0;

    return rc ? rc : d->kind->send(url, size, d, p, w, cli, err);
}
