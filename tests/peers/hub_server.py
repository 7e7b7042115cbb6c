"""hub_server.py FOLDER - huggingface_hub, unchanged, against the writable Hub of our tests.

Called by hub_server.sh with HF_ENDPOINT, HF_TOKEN=hf_canary and HF_HUB_DISABLE_XET=1; the folder is
for its files.  Sizes: the server sends what is longer than 5 MiB in parts of 5 MiB.
"""
import hashlib
import os
import sys

from huggingface_hub import CommitOperationAdd, HfApi, __version__, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

top = sys.argv[1]
api = HfApi()
repo = "acme/toy"


def write(path, data):
    path = os.path.join(top, "up", path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def same(folder, other):
    for root, _, files in os.walk(folder):
        for f in files:
            a = os.path.join(root, f)
            b = os.path.join(other, os.path.relpath(a, folder))
            assert open(a, "rb").read() == open(b, "rb").read(), a


def refused(status, call, *args, **kw):
    try:
        call(*args, **kw)
    except HfHubHTTPError as e:
        assert e.response.status_code == status, (e, status)
        return e
    raise AssertionError(f"{call} is not refused with {status}")


block = bytes((7 * i + 3) % 256 for i in range(1 << 20))
write("config.json", b'{"model_type":"toy"}\n')
write("README.md", b"---\nlicense: mit\n---\n# Toy\n")
write("empty.txt", b"")
write("sub/small.safetensors", os.urandom(70000))
write("model.safetensors", block * 6)
write("large.txt", b"x" * 12_000_000)
write("odd.dat", b"\0\1\2" * 1000)
for i in range(300):
    write(f"many/{i:03d}.json", b"%d" % i)

assert api.whoami()["name"] == "alice"
url = api.create_repo(repo, private=True)
assert url.repo_id == repo, url
api.create_repo(repo, exist_ok=True)
refused(409, api.create_repo, repo)
api.auth_check(repo)
assert api.repo_info(repo).private
try:
    HfApi(token=False).repo_info(repo)
    raise AssertionError("a private repository is shown to anyone")
except RepositoryNotFoundError:
    pass

first = api.upload_folder(repo_id=repo, folder_path=f"{top}/up", commit_message="All of it")
tree = {e.path: e for e in api.list_repo_tree(repo, recursive=True)}
assert tree["config.json"].blob_id == "b44ca83de3f3f4c0311f57d048cd9db556ceaa8d"
assert tree["model.safetensors"].blob_id == "6ce70ec43db2e3e903040bf7ad01574c660a78e9"
assert tree["model.safetensors"].lfs.sha256 == hashlib.sha256(block * 6).hexdigest()
assert tree["model.safetensors"].lfs.pointer_size == 132
assert tree["large.txt"].lfs and tree["odd.dat"].lfs and tree["sub/small.safetensors"].lfs
assert not tree["empty.txt"].lfs and not tree["config.json"].lfs
assert b"odd.dat filter=lfs" in open(api.hf_hub_download(repo, ".gitattributes"), "rb").read()
assert len([e for e in tree if e.startswith("many/")]) == 300 and "many" in tree
flat = {e.path for e in api.list_repo_tree(repo, "sub")}
assert flat == {"sub/small.safetensors"}, flat
got = snapshot_download(repo, local_dir=f"{top}/down")
same(f"{top}/up", got)
info = api.get_paths_info(repo, ["config.json", "sub", "nothing"])
assert sorted(e.path for e in info) == ["config.json", "sub"], info

again = api.upload_folder(repo_id=repo, folder_path=f"{top}/up")
assert again.oid == api.repo_info(repo).sha == first.oid, "nothing changed, and yet a commit"

write("config.json", b'{"model_type":"toy", "a":1}\n')
pull = api.upload_folder(repo_id=repo, folder_path=f"{top}/up", create_pr=True, commit_message="A change")
assert pull.pr_num == 1 and pull.pr_revision == "refs/pr/1", pull
assert api.repo_info(repo).sha == first.oid
assert b'"a":1' in open(api.hf_hub_download(repo, "config.json", revision="refs/pr/1"), "rb").read()
assert [d.title for d in api.get_repo_discussions(repo, discussion_type="pull_request")] == ["A change"]
details = api.get_discussion_details(repo, 1)
assert details.status == "open" and details.target_branch == "refs/heads/main"
api.comment_discussion(repo, 1, comment="Looks right.")
api.merge_pull_request(repo, 1)
details = api.get_discussion_details(repo, 1)
assert details.status == "merged" and details.merge_commit_oid == api.repo_info(repo).sha

draft = api.create_pull_request(repo, title="By hand")
assert draft.status == "draft" and draft.num == 2
api.create_commit(repo, [CommitOperationAdd("by/hand.txt", b"hand\n")], commit_message="Hand",
                  revision="refs/pr/2")
api.change_discussion_status(repo, 2, new_status="open")
api.merge_pull_request(repo, 2)
assert api.file_exists(repo, "by/hand.txt")

head = api.repo_info(repo).sha
refused(412, api.create_commit, repo, [CommitOperationAdd("x", b"x")], commit_message="Late",
        parent_commit=first.oid)
try:
    api.create_commit(repo, [CommitOperationAdd("README.md", b"---\na: [\n---\n")], commit_message="Card")
    raise AssertionError("a card of bad YAML is taken")
except ValueError as e:
    assert "Invalid metadata in README.md" in str(e), e
assert api.repo_info(repo).sha == head
api.delete_files(repo, ["many/*", "by/hand.txt"])
paths = api.list_repo_files(repo)
assert not [p for p in paths if p.startswith(("many/", "by/"))] and "config.json" in paths
api.delete_folder("sub", repo)
assert not [p for p in api.list_repo_files(repo) if p.startswith("sub/")]

api.create_branch(repo, branch="feature/one", revision=first.oid)
refused(409, api.create_branch, repo, branch="feature/one")
api.create_tag(repo, tag="v1.0", tag_message="One")
refs = api.list_repo_refs(repo, include_pull_requests=True)
assert {b.name for b in refs.branches} == {"main", "feature/one"} and refs.tags[0].name == "v1.0"
assert {p.ref for p in refs.pull_requests} == {"refs/pr/1", "refs/pr/2"}
assert api.file_exists(repo, "many/007.json", revision="feature/one")
api.delete_branch(repo, branch="feature/one")
api.delete_tag(repo, tag="v1.0")
titles = [c.title for c in api.list_repo_commits(repo)]
assert titles[-1] == "initial commit" and "All of it" in titles and "A change (#1)" in titles, titles

readonly = HfApi(token="hf_readonly")
assert readonly.repo_info(repo).sha
refused(403, readonly.create_repo, "acme/other")
refused(403, readonly.create_branch, repo, branch="no")
api.create_repo("private/set", repo_type="dataset")
api.upload_file(path_or_fileobj=b"1\n", path_in_repo="rows.jsonl", repo_id="private/set", repo_type="dataset")
assert readonly.list_repo_files("private/set", repo_type="dataset") == [".gitattributes", "rows.jsonl"]
api.delete_repo(repo)
assert not api.repo_exists(repo)
print("huggingface_hub", __version__, "writes to the server and reads back the same")
