# ckpt-push: one commit in a bare repository with LFS, and what the real git and git-lfs make of it.  A6
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv/base
export HOME=$T GIT_CONFIG_NOSYSTEM=1
git config --global init.defaultBranch main; git config --global user.email a@b.c; git config --global user.name n; git config --global safe.directory '*'
git lfs install --skip-repo >/dev/null 2>&1 || git lfs install >/dev/null 2>&1
t "push creates a repository" ckpt-push -q --create "$T/hub.git" "$M"
t "clone by git and git-lfs" git clone -q "$T/hub.git" "$T/clone"
equal() { (cd "$M" && find . -type f | sort | xargs sha256sum) | (cd "$T/clone" && sha256sum -c --quiet); }
t "every digest is equal" equal
t "git-lfs finds its objects sound" git -C "$T/clone" lfs fsck
t "weights lie by pointer" bash -c "git --git-dir $T/hub.git show main:model.safetensors | grep -q '^oid sha256:'"
t "git finds its objects sound" git --git-dir "$T/hub.git" fsck --strict
t "the same again is no commit" bash -c "a=\$(ckpt-push -q $T/hub.git $M); b=\$(git --git-dir $T/hub.git rev-parse main); [ \"\$a\" = $T/hub.git@\$b ] && [ \$(git --git-dir $T/hub.git rev-list --count main) = 1 ]"
cp -r "$M" "$T/m2"; printf '{}' > "$T/m2/extra.json"; printf x > "$T/m2/training_args.bin"
t "a change is one commit on top" bash -c "ckpt-push -q -m second $T/hub.git $T/m2 && [ \$(git --git-dir $T/hub.git rev-list --count main) = 2 ]"
t "private files stay behind" bash -c "! git --git-dir $T/hub.git ls-tree --name-only main | grep training_args"
expect 0 "only what is included" ckpt-push -q --include '*.json' --exclude extra.json "$T/some" "$T/m2"
t "is there" [ "$(ls "$T/some" | grep -v json; ls "$T/some" | grep -c 'config.json')" = 2 ]
t "of those that are not excluded" [ ! -e "$T/some/extra.json" ]
expect_says 66 "a pattern that nothing matches" "no file of it is matched by --include nothing*" ckpt-push -q --include 'nothing*' "$T/nothing" "$T/m2"
t "makes nothing" [ ! -e "$T/nothing" ]
t "unless they are named" bash -c "ckpt-push -q --also training_args.bin $T/hub.git $T/m2 && git --git-dir $T/hub.git ls-tree --name-only main | grep -q training_args"
t "published files can go" bash -c "ckpt-push -q --delete 'extra*' --exclude 'extra*' $T/hub.git $T/m2 && ! git --git-dir $T/hub.git ls-tree --name-only main | grep extra"
t "into a folder of the repository, on a branch" bash -c "ckpt-push -q -b dev --path-in-repo last $T/hub.git $M && git --git-dir $T/hub.git ls-tree --name-only dev:last | grep -q config.json"
t "to a folder, whole" bash -c "ckpt-push -q $T/out $M && [ -e $T/out/config.json ]"
t "to a folder that exists" ckpt-push -q "$T/out" "$M"
expect 73 "a folder that is the source" ckpt-push -q "$T/m2" "$T/m2"
expect 66 "a source that is not there" ckpt-push -q "$T/hub.git" "$T/nothing"
mkdir "$T/empty"; expect 66 "an empty source" ckpt-push -q "$T/hub.git" "$T/empty"
expect 64 "a destination of no known kind" ckpt-push -q ftp://x "$M"
t "dry run publishes nothing" bash -c "n=\$(git --git-dir $T/hub.git rev-list --count --all); ckpt-push --dry-run $T/hub.git $M | grep -q lfs && [ \$(git --git-dir $T/hub.git rev-list --count --all) = \$n ]"
# What the push refuses before its first byte, its dry run refuses: line by line, with its status.
mkdir -p "$T/way"/{tree/config.json,in,fifos,src/sub}; mkfifo "$T/way/fifos/config.json" "$T/way/fifo"; ln -s nowhere "$T/way/dead"; git init -q --bare "$T/way/there.git"
echo x | tee "$T/way/file" "$T/way/in/sub" >"$T/way/file.git"; echo 1 >"$T/way/src/a.json"; echo 2 >"$T/way/src/sub/b.json"
foretold 73 "no folder for a new one" ckpt-push -q none/out "$M"
foretold 73 "a file where a folder is wanted" ckpt-push -q file "$M"
foretold 73 "a file as its folder" ckpt-push -q file/out "$M"
foretold 73 "a link to nothing" ckpt-push -q dead "$M"
foretold 73 "a directory where a file goes" ckpt-push -q tree "$M"
t "nothing of the others is there" [ "$(ls -A "$T/way/tree")" = config.json ]
foretold 73 "a file where a folder of files goes" ckpt-push -q in src
foretold 73 "a fifo where a file goes" ckpt-push -q fifos "$M"
foretold 73 "the source itself" ckpt-push -q src src
foretold 73 "a file of it" ckpt-push -q src src/a.json
foretold 66 "no repository" ckpt-push -q none.git "$M"
foretold 65 "a file that is none" ckpt-push -q --create file.git "$M"
foretold 73 "a file where its folder would be" ckpt-push -q --create file/new.git "$M"
foretold 64 "no name of a branch" ckpt-push -q -b a..b there.git "$M"
foretold 64 "an option of others" ckpt-push -q --tag v1 there.git "$M"
foretold 64 "a path that leads out" ckpt-push -q --path-in-repo a/../b new "$M"
foretold 0 "a new folder" ckpt-push -q new "$M"
foretold 0 "the same again" ckpt-push -q new "$M"
foretold 0 "a new repository, with its folder" ckpt-push -q --create below/new.git "$M"
mkdir -p "$T/way/small" "$T/way/large"; noise 5000000 >"$T/way/large/w.bin"
if mount -t tmpfs -o size=2M none "$T/way/small" 2>/dev/null; then
    git init -q --bare "$T/way/small/s.git"; mkdir "$T/way/small/d"
    foretold 74 "a disk that is too small" ckpt-push -q small/s.git large
    foretold 74 "nor for a folder" ckpt-push -q small/d large
    umount "$T/way/small"
fi
objects() { find "$T/hub8.git/lfs/objects" -type f | wc -l; }
many() { mkdir "$T/many"; for i in 1 2 3 4 5 6 7 8; do echo "$((i % 4))" >"$T/many/$i.bin"; done; ckpt-push --create -j 4 "$T/hub8.git" "$T/many" 2>"$T/err"; }
t "eight files of four contents, four at a time" many
t "are four objects, counted once" bash -c "grep -q '16 bytes, 8 of them new' $T/err && [ $(objects) = 4 ]"
t "each under its name" bash -c "git clone -q $T/hub8.git $T/clone8 && diff -r -x '.git*' $T/clone8 $T/many"
failing() { rm "$T/clone8"/.git* -rf; mkdir "$T/clone8/deep"; echo new >"$T/clone8/a.bin"; : >"$T/hub8.git/lfs/objects/$(sha256sum "$T/clone8/a.bin" | cut -c1-2)"; expect_fails ckpt-push -q -j 4 "$T/hub8.git" "$T/clone8"; }
expect_fails() { ! "$@" && [ "$(git --git-dir "$T/hub8.git" rev-list --count main)" = 1 ] && [ -z "$(find "$T/hub8.git" -name '*.tmp')" ]; }
t "one that cannot be put ends all: no commit, nothing half" failing
t "the pipe: merge, then push what comes" bash -c "cp -r $G/deepspeed/0.19-s3_w2_bf16/ckpt $T/run; echo $T/run | ckpt-merge -q | ckpt-push -q --create $T/hub2.git | grep -q hub2.git@"
t "the pipe: a model itself, as a tar" bash -c "ckpt-merge -q --to hf -o - $T/run | ckpt-push -q --create $T/hub3.git && git clone -q $T/hub3.git $T/clone3 && ckpt-inspect -q --diff $T/clone3 $T/run-merged"
expect 64 "one file of bytes has no name" bash -c "ckpt-push -q $T/hub3.git < $M/model.safetensors"

# -- several sources, one folder or each its own -----------------------------------------------
mkdir "$T/runs"; for i in 1 2 3; do cp -r "$M" "$T/runs/checkpoint-$i"; echo $i >"$T/runs/checkpoint-$i/step.txt"; done
t "side by side" bash -c "ls -d $T/runs/* | ckpt-push --path-in-repo 'all/{name}' '$T/many'"
t "each in its folder" bash -c "cat $T/many/all/checkpoint-[123]/step.txt | tr -d '\n' | grep -qx 123"
t "a file by its name" bash -c "ckpt-push -q --path-in-repo 'one/{name}' '$T/single' '$M/config.json' && ckpt-push -q --path-in-repo '{name}' '$T/single' '$M/config.json'"
t "is the file, no folder of that name" test -f "$T/single/one/config.json" -a -f "$T/single/config.json"
cp -r "$M" "$T/linked"; mkdir "$T/linked/wandb"; echo x >"$T/linked/wandb/a.log"; ln -s a.log "$T/linked/wandb/latest-run"
ckpt-push "$T/links" "$T/linked" >/dev/null 2>"$T/.err"; t "a link is left out with a warning" says "wandb/latest-run: no regular file, left out"
ckpt-push --exclude 'wandb/*' "$T/links2" "$T/linked" >/dev/null 2>"$T/.err"; t "without one where it is excluded" bash -c "! grep -q latest-run '$T/.err'"
expect 64 "a name that leads out" ckpt-push --path-in-repo '{name}' "$T/many" "$T/runs/.."
# The second and third arrive while the first is published.
t "the latest of those that wait" bash -c "{ echo '$T/runs/checkpoint-1'; for i in 2 3; do echo '$T/runs/checkpoint-'\$i; done; } | ckpt-push -v --latest --path-in-repo last '$T/last' 2>'$T/.err'"
t "is what is published last" grep -qx 3 "$T/last/last/step.txt"

# -- what looks like a secret -------------------------------------------------------------------
cp -r "$M" "$T/open"; printf 'first\ntoken: hf_%s\n' abcdefghijklmnopqrstuvwxyzABCDEFGH >"$T/open/notes.txt"
expect_says 77 "a token in a text file" "notes.txt: line 2 holds a token of the Hub" ckpt-push "$T/open-folder" "$T/open"
t "nothing is published" [ ! -e "$T/open-folder" ]
printf -- '-----BEGIN OPENSSH PRIVATE KEY-----\nx\n' >"$T/open/notes.txt"
expect_says 77 "a private key" "notes.txt: line 1 holds a private key" ckpt-push --create "$T/open.git" "$T/open"
expect 0 "on request it is sent" ckpt-push --allow-secrets "$T/open-folder" "$T/open"
printf 'hf_%s and AKIA%s\n' abcdefghij ABCDEFGH >"$T/open/notes.txt"; rm -r "$T/open-folder"
expect 0 "what is too short is none" ckpt-push "$T/open-folder" "$T/open"
# What an option is for.
expect_says 64 "a tag of a git repository" "is for: a repository of the Hub, a model in an OCI registry" ckpt-push --tag v1 "$T/open.git" "$M"
t "the hint does not send there" bash -c "! grep -q hint $T/.err"
expect_says 64 "a bucket without a name" "says nothing after s3://" ckpt-push s3:// "$M"
