# What runs beside a run: one ckpt-push at a time however often ranks are started again; destinations and hooks that
# are slow, hang or die never hold a step.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/broken.sh"
# A ckpt-train beside a ckpt-push that does what $T/does says, and writes what it is given to $T/log.  When it only looks at
# the destination, at the start of each try, it does what $T/looks says.
mkdir "$T/bin"; cp "$B/ckpt-train" "$T/bin"; ln -s "$B"/*.so "$T/bin"
cat >"$T/bin/ckpt-push" <<'END'
#!/usr/bin/env bash
if [ "$2" = --json ]; then [ ! -e "$T/looks" ] || source "$T/looks"; exit; fi
while read -r path; do
    [ -n "${begun:-}" ] || { begun=1; echo "begin $$" >>"$T/log"; }
    source "$T/does"
    echo "$$ $path" >>"$T/log"; echo "published $path" 2>/dev/null
done
[ -z "${begun:-}" ] || echo "end $$" >>"$T/log"
exit "${status:-0}"
END
chmod +x "$T/bin/ckpt-push"; export T
run() { local does=$1; shift; cd "$T" || return 1; rm -rf run log; : >log; echo "$does" >does
    "$T/bin/ckpt-train" --model base --train-file train.jsonl --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --max-steps 8 --save-steps 1 --push-to dest -o run "$@" >out 2>err; }
has() { grep -qE -- "$1" "$T/err"; }
expect_status() { local want=$1; shift; "$@"; [ $? = "$want" ] || { cat "$T/err"; return 1; }; }
# Publishers follow one another, and no older checkpoint comes after a newer one.
in_turn() { awk '/^begin/ { if (at) exit bad = 1; at = $2; n++ } /^end/ { at = 0 } /checkpoint/ { sub(/.*-/, ""); if ($0 + 0 <= last) exit bad = 1; last = $0 + 0 } END { exit bad || at || n < '"$1"' }' "$T/log" || { cat "$T/log"; return 1; }; }

# A publisher that begins once the run has made its steps and says this, or after twenty seconds.
until_says() { echo "until grep -q '$1' \"\$T/err\" || [ \$((waited += 1)) -gt 400 ]; do sleep 0.05; done"; }
t "a slow one" run "$(until_says 'waiting until ckpt-push')" --save-total-limit 1
t "gets all, in order" in_turn 1
t "each of them" [ "$(grep -c checkpoint "$T/log")" = 8 ]
t "A7 holds no step, and is waited for at the end" has 'waiting until ckpt-push has published [1-8] checkpoints'
one_dies() {        # rank 0 is killed once the third is there
    run "sleep 0.2" --nproc 2 --zero-stage 2 --max-restarts 2 --max-steps 40 --save-steps 4 --on-save 'if [ $CKPT_STEP = 12 ] && mkdir "$T/once"; then kill -KILL $PPID; fi'
}
t "a rank that dies, and another try" one_dies
t "was one" has 'started again|restart|try'
t "its publisher begins after the first try's" in_turn 2
t "the newest is published last" bash -c "tail -n 2 \$T/log | grep -q 'run/checkpoint-40\$'"
# The look at the destination.
echo 'echo "{\"error\": \"dest: no network\", \"hint\": \"--x helps\"}" >&2; exit 69' >"$T/looks"
t "a network that is away ends the run before it trains" expect_status 69 run ':' --nproc 2 --zero-stage 2
t "in one line and a hint" bash -c "[ \"\$(cat \$T/err)\" = \$'ckpt-train: rank 0: --push-to: dest: no network\nhint: ckpt-push --x helps' ] && [ ! -e \$T/run ]"
echo 'kill -SEGV $$' >"$T/looks"; t "so does a look that dies" expect_status 69 run ':'
t "by its signal" has 'ckpt-push was ended by signal 11'
echo 'echo "cannot open shared object" >&2; exit 127' >"$T/looks"; t "or cannot begin" expect_status 69 run ':'
t "in its own words" has 'ckpt-push ended with status 127: cannot open shared object'
echo '[ ! -s "$T/log" ] || exit 75' >"$T/looks"; rm -rf "$T/once"
t "away at another try it ends nothing" one_dies
t "is a warning" has 'warning: --push-to: ckpt-push ended with status 75'
t "and the newest is published last" bash -c "tail -n 2 \$T/log | grep -q 'run/checkpoint-40\$'"
rm "$T/looks"
killed() { rm -f "$T/log"; run "$(until_says 'an earlier try')" --max-steps 100000 --save-steps 20 & wait_for '[ -s "$T/log" ]'; kill -KILL "$(pgrep -P $! -x ckpt-train || echo $!)"; wait $!; cp "$T/log" "$T/log1"
    local n; n=$(cd "$T" && newest_step); n=$((n + 20))
    "$T/bin/ckpt-train" --model base --train-file train.jsonl --max-seq-length 32 --per-device-train-batch-size 2 --threads 1 --max-steps $n --save-steps 20 --push-to dest -o run --resume-from-checkpoint latest >out 2>err; }
t "a run that was killed goes on" killed
t "what it was publishing comes first" in_turn 2
t "said so" has 'the ckpt-push of an earlier try still publishes'
t "one that dies" expect_status 137 run 'kill -KILL $$'
t "is a warning" has 'warning: --push-to: ckpt-push was ended by signal 9'
t "with what is not published" has 'warning: --push-to: [1-8] checkpoints? (is|are) not published'
t "the run is whole" ckpt-inspect -q --verify "$T/run/checkpoint-8"
t "one that fails" expect_status 69 run 'status=69; exit 69'
t "ends the run with its status" has 'ckpt-push ended with status 69'
t "one that hangs for a while" run "$(until_says 'waiting until ckpt-push')"
t "holds no step either" has 'waiting until ckpt-push has published [1-8] checkpoints'
# Hooks that fail, hang and die, with ranks.
t "hooks that fail on two ranks" run ':' --nproc 2 --zero-stage 2 --on-save 'exit 3' --on-log 'kill -KILL $$' --logging-steps 1 --on-end 'echo $CKPT_STATUS > ended'
t "are warnings" has 'warning: --on-save: the command failed with status 3'
t "and signals" has 'warning: --on-log: the command was ended by signal 9'
t "the end is told once" bash -c "[ \"\$(cat \$T/ended)\" = 0 ]"
dead_rank() { run ':' --nproc 2 --zero-stage 2 --max-steps 100000 --save-steps 10 --on-save 'kill -KILL $(pgrep -P $(ps -o ppid= $PPID) -x ckpt-train | grep -vx $PPID); sleep 0.5; echo $CKPT_STEP >> after'; }
rm -f "$T/after"; t "a hook while another rank dies" expect_status 75 dead_rank
t "goes on to its end" bash -c "for _ in \$(seq 40); do [ -s \$T/after ] && exit 0; sleep 0.1; done; exit 1"
