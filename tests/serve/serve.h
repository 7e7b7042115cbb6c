/* serve.h - what the files of the loopback server share; README.md says what it serves. */
#ifndef CKPT_TESTS_SERVE_SERVE_H
#define CKPT_TESTS_SERVE_SERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define SERVE_PATH 8192
/* The user "user" with the token that writes as password. */
#define SERVE_LOGIN "Basic_dXNlcjpoZl9jYW5hcnk="

struct options {
    long long multipart, chunk; /* objects beyond it come in parts of chunk bytes */
    long      page;             /* entries of a page of a tree */
    long      expires;          /* seconds that an address of the storage lives */
    int       ports[2];         /* 0: any */
    int       unproved;         /* objects are what their addresses say: nothing is digested; 2: zeros become holes */
    int       behind;           /* port of a registry, 0: none */
    char      transfer[20];     /* what answers to the LFS batch name; "": basic, or multipart */
};

/* A connection: what was received and not yet used lies in buf[at..have). */
struct conn {
    int    fd, port;
    size_t at, have, size;
    char  *buf;
};

struct request {
    struct conn *conn;
    int          fd, port;
    char         method[12], target[4096], path[4096], query[4096], range[100], token[600];
    bool         close, expect;
    long long    length, received; /* of the body; length -1: in chunks */
    char        *body;
    size_t       n_body;
    /* an object that was received: where it lies, its SHA-256, and the ETag of a part */
    char         spool[SERVE_PATH], sha256[65], etag[33];
    /* what a rule asks for */
    const char  *act, *value;
    const char  *note;  /* at the end of the line of the log */
    bool         mute;  /* the effect alone: no answer, no line */
    int          status;
    const char  *head;  /* the fields, each behind "\r\n" */
};

extern const char *root;
extern int port_of[2];
extern struct options options;

/* serve.c */
/* The value of a field, by "Name:"; "" when there is none. */
void field(char *dst, size_t size, const struct request *r, const char *name);

/* answer.c */
bool log_open(const char *path);
void say(const struct request *r, int status, long long bytes);
bool put(int fd, const void *bytes, size_t n);
bool is(const struct request *r, const char *action);
void hang_up(struct request *r);
void answer(struct request *r, int status, const char *headers, const char *body, size_t n);
void fail(struct request *r, int status, const char *code, const char *message);

/* body.c */
bool conn_fill(struct conn *c);
bool receive_nothing(struct request *r);
bool receive_text(struct request *r);
/* Into the file at path from byte at on, which is made and grows; its digests are r's.  A part gets an
 * ETag, and no SHA-256: the whole is digested when it is complete. */
bool receive_file(struct request *r, const char *path, long long at, bool part);

/* files.c */
char *map_file(const char *path, size_t *n);
void unmap(char *at, size_t n);
void hex_digest(char *hex, const char *algorithm, const char *head, size_t n_head,
                const char *body, size_t n);
void git_sha(char hex[41], const char *body, size_t n);
void make_folders(const char *path); /* that the file at path lies in */
bool write_file(const char *path, const char *bytes, size_t n);
void rot_file(const char *path);
long long file_size(const char *path); /* -1: no file */
void unescape(char *s);
void query_value(char *dst, size_t size, const char *query, const char *name);

/* rules.c */
void add_rule(const char *text);
void apply_rules(struct request *r);
bool by_rule(struct request *r);

/* bucket.c */
bool serve_bucket_write(struct request *r, const char *bucket, const char *key);

/* dav.c */
void serve_dav(struct request *r);

/* read.c */
void serve_static(struct request *r);
void send_file(struct request *r, const char *path, const char *commit);

/* behind.c */
void serve_behind(struct request *r);

/* git.c */
void serve_git(struct request *r);

/* hub.c, hub_read.c, hub_write.c, hub_refs.c, hub_talk.c */
struct call {
    struct request *r;
    char            kind[16], owner[256], name[256], id[600], dir[SERVE_PATH];
    char           *seg[64]; /* of the path behind the verb, unescaped */
    size_t          n_seg;
    int             level; /* of the token: 0 none, 1 reads, 2 writes, -1 unknown */
    json_t         *repo, *in;
    bool            changed; /* repo is to be saved */
    /* the reply */
    int             status;
    char            headers[SERVE_PATH];
    json_t         *out;
};

bool serve_hub(struct request *r);
int token_level(const struct request *r);
void reply(struct call *c, json_t *out);
void refuse(struct call *c, int status, const char *code, const char *message);
const char *text_of(const json_t *object, const char *key, const char *fallback);
/* segments from first on, joined by slashes */
void join_segments(char *dst, size_t size, const struct call *c, size_t first);

typedef void handler(struct call *c);
handler hub_whoami, hub_create, hub_delete, hub_yaml, hub_info, hub_auth, hub_settings, hub_tree,
    hub_paths, hub_commits, hub_preupload, hub_commit, hub_refs, hub_branch_new, hub_branch_drop,
    hub_tag_new, hub_tag_drop, hub_squash, hub_talk_new, hub_talk_list, hub_talk, hub_talk_status,
    hub_talk_comment, hub_talk_merge, hub_batch, hub_verify;
/* What the front matter of a card lacks: "" when nothing does. */
void card_errors(char *dst, size_t size, const char *text, size_t n);
/* A commit of somebody else's, where the rule `moves` asks for one. */
void hub_move(struct call *c, const char *rev, const char *path);
/* A pull request for a commit; its number. */
long talk_open_pull(struct call *c, const char *title, const char *text, const char *status,
                    const char *base, const char *commit);
void talk_add_commit(struct call *c, const char *ref, const char *title, const char *commit);

/* rights.c */
bool attribute_lfs(const char *attributes, const char *path);
bool ignored(const char *ignore, const char *path);

/* repo.c */
json_t *repo_load(const char *dir);
void repo_save(const char *dir, const json_t *repo);
void repo_dir(char *dst, size_t size, const char *kind, const char *owner, const char *name);
/* The commit of a revision, and the whole name of the branch or pull request that it is, or "". */
bool repo_resolve(const char *dir, const json_t *repo, const char *rev, char oid[41],
                  char ref[512]);
json_t *repo_commit_load(const char *dir, const char *oid);
/* Steals files.  The reference moves to the new commit. */
void repo_commit_add(const char *dir, json_t *repo, const char *ref, const char *title,
                     const char *message, const char *parent, json_t *files, char oid[41]);
json_t *repo_blob(const char *dir, const char *bytes, size_t n); /* stored; an entry of files */
json_t *repo_pointer(const char *oid, long long size);
void repo_object(char *dst, size_t size, const char *dir, const char *oid);
char *repo_text(const char *dir, const json_t *files, const char *path); /* malloced or NULL */
void now_text(char dst[32]);
bool is_hex(const char *s, size_t n);

/* storage.c */
bool receive_storage(struct request *r);
void serve_storage(struct request *r);
void storage_address(char *dst, size_t size, const char *verb, const struct call *c,
                     const char *rest);

#endif
