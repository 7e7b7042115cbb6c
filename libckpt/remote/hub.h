/*
 * hub - a repository of the Hugging Face Hub as a tree.
 *
 *   hf://[models/|datasets/|spaces/]owner/name[@revision][/path]
 *
 * A revision is a branch, tag, commit, refs/pr/N or refs/convert/NAME (or the same with %2F for
 * '/'); it is resolved to a commit once, and all further requests name that commit:
 *
 *   GET {E}/api/{models}/{id}/revision/{revision}        {"sha": commit}
 *   GET {E}/api/{models}/{id}/tree/{commit}?recursive=1  [{"type", "path", "size", "oid",
 *                                                          "lfs": {"oid", "size"}}], more by Link
 *   GET {E}/[datasets/]{id}/resolve/{commit}/{path}      the bytes, or a redirect to them
 *
 * {E} and the token: hub_auth.h.  Files that are in the cache of the Hub's own client
 * (HF_HUB_CACHE) are read from there.  Source: huggingface_hub 0.36, hf_api.py, file_download.py.
 */
#ifndef CKPT_LIBCKPT_REMOTE_HUB_H
#define CKPT_LIBCKPT_REMOTE_HUB_H

#include "libckpt/remote/hub_auth.h"
#include "libckpt/remote/tree.h"

struct hub_place {
    char kind[12];              /* "models", "datasets", "spaces" */
    char id[200];               /* "owner/name", or "name" */
    char revision[256];         /* "main" when none is named */
    char root[512];             /* the address without the path, as it was written */
    char path[4096];            /* "" for the repository itself */
};

/* CKPT_EUSAGE when url has another form. */
int hub_parse(struct hub_place *p, const char *url, struct ckpt_err *err);
/*
 * Open the tree of a place.  Offline: its last list; or, when the Hub's own client has a
 * snapshot, the path of that in local (1024 bytes), and *out stays NULL.
 */
int hub_open(struct tree **out, char local[1024], const struct hub_place *p, struct ckpt_err *err);
/* Add the files of a commit to t, and make it ready. */
int hub_list(struct tree *t, const struct hub_auth *auth, const char *kind, const char *id,
             const char *commit, struct ckpt_err *err);
/* Add the files of one page of a tree listing to t. */
int hub_read_page(struct tree *t, const json_t *page, struct ckpt_err *err);
/* Asks a revision for its commit alone: by itself it lists all files, 240 bytes of memory each. */
#define HUB_COMMIT_ONLY "?expand=sha"
/* The commit in the response about a revision; CKPT_EPROTOCOL when there is none. */
int hub_read_commit(char commit[41], const json_t *answer, struct ckpt_err *err);

#endif
