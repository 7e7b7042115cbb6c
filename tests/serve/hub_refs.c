/* hub_refs.c - branches and tags. */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hub_refs(struct call *c)
{
    static const struct {
        const char *folder, *list;
    } kinds[] = {{"refs/heads/", "branches"}, {"refs/tags/", "tags"}, {"refs/pr/", "pullRequests"}};
    json_t *out = json_pack("{s:[],s:[],s:[]}", "branches", "converts", "tags"), *oid;
    const char *ref;

    if (strstr(c->r->query, "include_prs=1") || strcasestr(c->r->query, "include_prs=true"))
        json_object_set_new(out, "pullRequests", json_array());
    json_object_foreach(json_object_get(c->repo, "refs"), ref, oid)
        for (size_t i = 0; i < 3; i++)
            if (strncmp(ref, kinds[i].folder, strlen(kinds[i].folder)) == 0)
                json_array_append_new(json_object_get(out, kinds[i].list),
                                      json_pack("{s:s,s:s,s:O}", "name",
                                                ref + strlen(kinds[i].folder), "ref", ref,
                                                "targetCommit", oid));
    reply(c, out);
}

/* A new reference to the commit of a revision. */
static void add(struct call *c, const char *folder, const char *name, const char *rev)
{
    json_t *refs = json_object_get(c->repo, "refs");
    char ref[512], whole[600], oid[41];

    snprintf(whole, sizeof whole, "%s%s", folder, name);
    if (!*name) {
        refuse(c, 400, "", "a name is missing");
    } else if (!repo_resolve(c->dir, c->repo, rev, oid, ref)) {
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    } else if (json_object_get(refs, whole)) {
        refuse(c, 409, "", "Reference already exists");
    } else {
        json_object_set_new(refs, whole, json_string(oid));
        c->changed = true;
        reply(c, json_object());
    }
}

static void drop(struct call *c, const char *folder)
{
    char name[500], whole[600];

    join_segments(name, sizeof name, c, 0);
    snprintf(whole, sizeof whole, "%s%s", folder, name);
    if (strcmp(whole, "refs/heads/main") == 0) {
        refuse(c, 403, "", "The main branch cannot be deleted");
    } else if (json_object_del(json_object_get(c->repo, "refs"), whole)) {
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    } else {
        c->changed = true;
        reply(c, json_object());
    }
}

void hub_branch_new(struct call *c)
{
    char name[500];

    join_segments(name, sizeof name, c, 0);
    add(c, "refs/heads/", name, text_of(c->in, "startingPoint", "main"));
}

void hub_branch_drop(struct call *c)
{
    drop(c, "refs/heads/");
}

void hub_tag_new(struct call *c)
{
    char rev[500];

    join_segments(rev, sizeof rev, c, 0);
    add(c, "refs/tags/", text_of(c->in, "tag", ""), rev);
}

void hub_tag_drop(struct call *c)
{
    drop(c, "refs/tags/");
}

/* The history of a branch as one commit. */
void hub_squash(struct call *c)
{
    char rev[500], ref[512], oid[41], made[41];
    json_t *commit;

    join_segments(rev, sizeof rev, c, 0);
    if (!repo_resolve(c->dir, c->repo, rev, oid, ref) || !*ref) {
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
        return;
    }
    commit = repo_commit_load(c->dir, oid);
    repo_commit_add(c->dir, c->repo, ref, text_of(c->in, "message", "Super-squash branch"), "", "",
                    json_incref(json_object_get(commit, "files")), made);
    json_decref(commit);
    c->changed = true;
    reply(c, json_object());
}
