/*
 * hub_write - what changes a repository of the Hugging Face Hub: one request a function.
 *
 *   GET    {E}/api/{t}s/{id}/auth-check/write
 *   POST   {E}/api/repos/create               {"name", "organization", "type", "private"}
 *   GET    {E}/api/{t}s/{id}/refs              {"branches": [{"name", "targetCommit"}]}
 *   POST   {E}/api/{t}s/{id}/branch/{branch}   {"startingPoint": commit}
 *   POST   {E}/api/{t}s/{id}/tag/{commit}      {"tag", "message"}
 *   POST   {E}/api/{t}s/{id}/discussions       {"title", "description", "pullRequest": true}
 *   POST   {E}/api/{t}s/{id}/preupload/{rev}   {"files": [{"path", "sample", "size"}]}
 *   POST   {E}/api/{t}s/{id}/commit/{rev}      a header, then one line a file
 *
 * Source: huggingface_hub 1.29 (hf_api.py, _commit_api.py, lfs.py), hub-docs docs/hub.
 */
#ifndef CKPT_LIBCKPT_REMOTE_HUB_WRITE_H
#define CKPT_LIBCKPT_REMOTE_HUB_WRITE_H

#include <jansson.h>

#include "libckpt/remote/hub.h"
#include "libckpt/remote/hub_auth.h"

/* A repository that is written to. */
struct hub_repo {
    struct http     *http;
    struct hub_auth  auth;
    char             kind[12];          /* "models", "datasets", "spaces" */
    char             id[200];           /* "owner/name" */
    char             name[256];         /* "hf://owner/name", for messages */
};

/* CKPT_EREFUSED without a token. */
int hub_repo_open(struct hub_repo *r, const struct hub_place *p, struct ckpt_err *err);
void hub_repo_close(struct hub_repo *r);

/* *exists is false when there is no such repository, or none that the token may see.  CKPT_EREFUSED
 * when the token may not write to it. */
int hub_may_write(bool *exists, const struct hub_repo *r, struct ckpt_err *err);
/* 0 also when it exists already. */
int hub_create(const struct hub_repo *r, bool is_private, struct ckpt_err *err);
/* The commit of a revision; CKPT_ENOTFOUND. */
int hub_head(char commit[41], const struct hub_repo *r, const char *revision,
             struct ckpt_err *err);
int hub_branch(const struct hub_repo *r, const char *branch, const char *commit,
               struct ckpt_err *err);
int hub_tag(const struct hub_repo *r, const char *tag, const char *commit, struct ckpt_err *err);
/* Open a pull request; revision (32 bytes) gets refs/pr/N. */
int hub_pull_request(char revision[32], const struct hub_repo *r, const char *title,
                     const char *description, struct ckpt_err *err);

/* How a file is to be sent, by the Hub's rules. */
struct hub_file {
    const char *path;
    uint64_t    size;
    const char *sample;         /* base64 of the first 512 bytes */
    bool        lfs, ignored;   /* the answer */
    char        oid[65];        /* of what the repository has at path: SHA-256 (lfs) or SHA-1 of
                                   the git blob; "" when it has nothing there */
};

#define HUB_PREUPLOAD_FILES 256         /* of one request */

/* Fill the answers of n files, at most HUB_PREUPLOAD_FILES. */
int hub_preupload(const struct hub_repo *r, const char *revision, struct hub_file *file, size_t n,
                  struct ckpt_err *err);
/*
 * Commit lines of JSON.  CKPT_ESTOPPED "moved" when the revision is not at the parent any
 * more, "unanswered" when the Hub may have committed, "busy" when it commits for
 * another.  id gets the new commit.
 */
int hub_commit(char id[41], const struct hub_repo *r, const char *revision,
               const struct http_body *lines, struct ckpt_err *err);
/* The files of a commit; tree_free it. */
int hub_files(struct tree **out, const struct hub_repo *r, const char *commit,
              struct ckpt_err *err);

#endif
