#!/usr/bin/env bash
# bench_gpu.sh BUILD - training and generation on a GPU at full length, beside PyTorch in the same
# call where it is installed.  Prints a table in Markdown as it goes; what each program said is kept.
#
#   LINES="560m 1b1"   only these of the table below (default: all but tiny)
#   PEER=python3       a Python with torch and transformers (peft for LoRA); PEER= for none
#   PROFILE=1          where a step's time goes, in DIR/NAME.profile, and shares in a second table
#   DIR=...            where files go, default build/bench-gpu
#   STEPS=50           so many steps of ours behind those that warm up, however long they take
#                      (generation: a hundred always)
#   SECONDS_EACH=5     instead: the most that a line's steps may take; ten are always done.  A peer's
#                      take a minute at most without it
#
# A line: name | work | goals | options of bench_gpu | options of each peer beside those, by ";".  Of
# several peers the fastest counts.  "-": no peer.  Goals: tok_s, ex_s, bound (percent), gib (as planned
# and as NVML reads it), peer (so many times its peer), and NAME:RATIO (so many times that line).
#
# What is to be reached is meant for steps of 65,536 tokens (of 128 examples), as one trains: AdamW
# reads and writes all states once a step, which takes as long as 400 to 700 tokens do.  The short
# lines show one micro-batch a step beside it.
set -u
shopt -u checkwinsize; only=${LINES:-}          # bash would put a terminal's height there
cd "$(dirname "$0")/../.."
case $1 in /*) CKPT_PLUGIN_PATH=$1 ;; *) CKPT_PLUGIN_PATH=$PWD/$1 ;; esac
export CKPT_PLUGIN_PATH             # bench_gpu lies in a folder below it
B=$1 DIR=${DIR:-build/bench-gpu} PEER=${PEER-python3} EACH=${SECONDS_EACH:-60}
STEPS=${STEPS-$([ -n "${SECONDS_EACH:-}" ] || echo 50)}
mkdir -p "$DIR" || exit 73
table='
tiny       | a toy on the CPU                                        |                      | tiny --batch 2 --length 64 --device cpu --steps 10 | --eager
560m       | bloomz-560m, 16 × 512, 8 micro-batches a step           | tok_s=148000         | bloomz-560m --batch 16 --accumulate 8 |
560m-short | the same, one                                           |                      | bloomz-560m --batch 16 --steps 100 | -
560m-half  | the same as the first, half of each sequence prompt     | 560m:1.2             | bloomz-560m --batch 16 --accumulate 8 --prompt 50 | -
1b1        | bloomz-1b1, 16 × 512, 8 micro-batches a step            | tok_s=85000 gib=30   | bloomz-1b1 --batch 16 --accumulate 8 |
1b1-short  | the same, one                                           | gib=30               | bloomz-1b1 --batch 16 --steps 100 | -
1b1-half   | the same as the first, half of each sequence prompt     | 1b1:1.15             | bloomz-1b1 --batch 16 --accumulate 8 --prompt 50 | -
1b1-packed | bloomz-1b1, texts of real lengths (75 tokens in the median, 154 in the mean) packed into 16 × 512, one micro-batch a step; the peer pads | | bloomz-1b1 --batch 16 --packed --steps 100 |
1b1-15g    | bloomz-1b1, f16, blocks made again, paged moments of 8 bits, 1 × 512, in 15 GiB | gib=15 | bloomz-1b1 --batch 1 --fp16 --recompute full --moments 8bit --paged --memory 15 | -
1b1-host   | bloomz-1b1, 16 × 512, 8 micro-batches a step, all states on the host | | bloomz-1b1 --batch 16 --accumulate 8 --offload states | -
opt        | opt-1.3b, 8 × 2048, 4 micro-batches a step              | tok_s=65000          | opt-1.3b --batch 8 --length 2048 --accumulate 4 |
opt-short  | the same, one                                           |                      | opt-1.3b --batch 8 --length 2048 | -
qwen-lora  | Qwen3-8B, LoRA r 32 on all linear layers, 4 × 2048      | tok_s=17000 gib=55   | qwen3-8b --lora --batch 4 --length 2048 |
qwen-fp8   | the same with --fp8, its weights kept in 8 bits too     |                      | qwen3-8b --lora --batch 4 --length 2048 --fp8 | -
qwen-full  | Qwen3-8B, full, moments of 8 bits, norms and activations made again, 4 × 2048, 8 micro-batches a step; the peer all in bf16 | tok_s=12500 gib=139 | qwen3-8b --batch 4 --length 2048 --accumulate 8 --moments 8bit --recompute norms | --all-bf16;--all-bf16 --batch 2 --accumulate 16
qwen-full2 | the same, 2 × 2048, 16 micro-batches                    | tok_s=12500 gib=139  | qwen3-8b --batch 2 --length 2048 --accumulate 16 --moments 8bit --recompute norms | -
qwen-short | the same, 2 × 2048, 4 micro-batches                     |                      | qwen3-8b --batch 2 --length 2048 --accumulate 4 --moments 8bit --recompute norms | -
mixtral    | Mixtral-shaped (2048, 16 layers, 8 experts of 5632), LoRA r 32 on attention (q, k, v, o), 4 × 2048 | peer=2 | mixtral-2b --lora --batch 4 --length 2048 | ;--eager;--experts grouped_mm;--experts grouped_mm --eager;--experts batched_mm --eager
t5-8       | T5-3b, 8 × 512/128, 16 micro-batches a step             | ex_s=88              | t5-3b --batch 8 --length 512 --target 128 --accumulate 16 | -
t5-16      | T5-3b, 16 × 512/128, 8 micro-batches a step             | ex_s=88              | t5-3b --batch 16 --length 512 --target 128 --accumulate 8 |
t5-32      | T5-3b, 32 × 512/128, 4 micro-batches a step             | ex_s=88              | t5-3b --batch 32 --length 512 --target 128 --accumulate 4 | -
t5-short   | T5-3b, 8 × 512/128, one micro-batch a step              |                      | t5-3b --batch 8 --length 512 --target 128 | -
decode-1   | Qwen3-8B, generation behind 128 ids, 1 sequence         | bound=80             | qwen3-8b --decode --batch 1 --length 128 --steps 100 | ;--eager
decode-64  | the same, 64 sequences                                  | bound=60             | qwen3-8b --decode --batch 64 --length 128 --steps 100 | ;--eager
mixed-64   | Qwen3-8B, 1000 prompts of 50 to 1500 ids, 20 to 400 new, 64 at once | peer=5   | qwen3-8b --mixed 1000 --batch 64 |
'
trim() { local s=$1; s=${s#"${s%%[! ]*}"}; printf '%s' "${s%"${s##*[! ]}"}"; }
# of LINE NAME - the value of NAME in a line of name=value; several of a name by commas.
of() { tr ' ' '\n' <<<"$1" | sed -n "s/^$2=//p" | paste -sd, | sed 's/,/, /g'; }
# rate LINE - in the unit of the goal.
rate() { if [ -n "$(of "$goal" ex_s)" ]; then echo "$(of "$1" ex_s) ex/s"; else echo "$(of "$1" tok_s) tok/s"; fi; }
# chip LINE - clock, power, and what held the clock back.
chip() {
    local held
    [ -n "$(of "$1" mhz)" ] || { echo "not known"; return; }
    held=$(of "$1" held)
    echo "$(of "$1" mhz) MHz, $(of "$1" watt) W${held:+; $held}"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b }'; }
# peers NAME OPTIONS VARIANTS - the fastest one's line, in $best.
peers() {
    local i=0 variant line
    best=
    [ "$3" != - ] && [ -n "$PEER" ] && "$PEER" -c 'import torch, transformers' 2>/dev/null || return
    while IFS= read -r -d ';' variant; do
        i=$((i + 1))
        if line=$(timeout 400 "$PEER" tests/perf/peer_torch.py $2 $variant --seconds "$EACH" 2>"$DIR/$1.peer$i.log"); then
            line=$(grep '^model=' <<<"$line" | tail -1)
            echo "$line" >>"$DIR/figures"
            [ -z "$best" ] || awk -v a="$(of "$line" tok_s)" -v b="$(of "$best" tok_s)" 'BEGIN { exit !(a > b) }' && best=$line
        else
            echo "$1: the peer ($variant) gives nothing: $(grep -v '^ *$' "$DIR/$1.peer$i.log" | tail -1 | cut -c1-160)" >&2
        fi
    done <<<"$3;"
}
goals() {       # OURS PEER - how far from each goal
    local what want is text= used line
    used=$(of "$1" used_gib)
    for what in tok_s ex_s bound gib; do
        want=$(of "$goal" $what); is=$(of "$1" $what)
        [ -n "$want" ] && [ -n "$is" ] || continue
        case $what in
        gib) text="$text, ≤ $want GiB: $(awk -v w="$want" -v a="$is" -v b="${used:-0}" 'BEGIN { print (a > w ? "not met" : b > w ? "met as planned, not by NVML" : "met") }')" ;;
        bound) text="$text, $want % of the bound: $is" ;;
        *) text="$text, $want: $(awk -v a="$is" -v b="$want" 'BEGIN { printf "%.0f", 100 * a / b }') %" ;;
        esac
    done
    want=$(of "$goal" peer)
    [ -z "$want" ] || text="$text, ≥ $want× its peer"
    line=${goal%%:*}
    if [ "$line" != "$goal" ] && is=$(grep "^$line " "$DIR/lines" 2>/dev/null); then
        text="$text, ≥ ${goal#*:}× $line: $(ratio "$(of "$1" tok_s)" "$(of "$is" tok_s)")×"
    fi
    echo "${text#, }"
}
row() {
    local name=$1 what=$2 options=$4 ours peer=— by=— mfu median experts used more="--seconds $EACH"
    case $options in *--decode* | *--mixed*) ;; *) [ -z "$STEPS" ] || more="--steps $STEPS --seconds 100000" ;; esac
    if ! ours=$(timeout 600 "$B/gpu/bench_gpu" $options $more ${PROFILE:+--profile} 2>"$DIR/$name.profile"); then
        echo "| $what | fails: $(tail -1 "$DIR/$name.profile") | | | | | |"; return 1
    fi
    ours=$(grep '^model=' <<<"$ours"); echo "$ours" >>"$DIR/figures"; echo "$name $ours" >>"$DIR/lines"
    peers "$name" "$options" "$5"
    if [ -n "$best" ]; then
        experts=$(of "$best" experts)
        peer="$(rate "$best"), $(of "$best" gib) GiB, $(chip "$best") ($(of "$best" how)${experts:+, $experts})"
        by=$(ratio "$(of "$ours" tok_s)" "$(of "$best" tok_s)")×
    fi
    used=$(of "$ours" used_gib) mfu=$(of "$ours" mfu) median=$(of "$ours" median_ms)
    echo "| $what, $(of "$ours" steps) steps | $(rate "$ours"), $(of "$ours" ms) ms${median:+ (median $median)}${mfu:+, MFU $mfu %} | $(of "$ours" gib) GiB${used:+, $used by NVML} | $(chip "$ours") | $peer | $by | $(goals "$ours") |"
}
# where NAME - its profile by kinds of operations: share of the step, and TFLOP/s or TB/s.
where() {
    awk -v name="$1" '
        $1 == "operation" { on = 1; next }
        $1 == "all" { on = 0 }
        { sub(/^ *[a-z_]+, /, "") }             # an operation with the norm before it
        !on || NF < 6 { next }
        {
            at = 2 + ($2 ~ /x/); k = "rest"
            if ($1 ~ /^(linear|experts|gated)/) k = "product"
            else if ($1 ~ /^head/) k = "head"
            else if ($1 == "attention_bwd") k = "back"
            else if ($1 ~ /^attention/) k = "forward"
            else if ($1 ~ /^(norm|rope|gate)_/) k = "norm"
            else if ($1 == "adamw" || $1 == "grad_norm") k = "adamw"
            ms[k] += $(at + 1); flops[k] += $(at + 1) * $(at + 3); bytes[k] += $(at + 1) * $(at + 4); all += $(at + 1)
        }
        function cell(k) {
            if (!ms[k]) return " — |"
            if (k == "rest") return sprintf(" %.1f |", 100 * ms[k] / all)
            if (flops[k] / ms[k] >= 10) return sprintf(" %.1f (%.0f TFLOP/s) |", 100 * ms[k] / all, flops[k] / ms[k])
            return sprintf(" %.1f (%.1f TB/s) |", 100 * ms[k] / all, bytes[k] / ms[k] / 1000)
        }
        END {
            if (all)
                print "| " name " | " sprintf("%.1f", all) " |" cell("product") cell("head") cell("back") cell("forward") cell("norm") \
                    cell("adamw") cell("rest")
        }' "$DIR/$1.profile"
}
failed=0
: >"$DIR/figures"; : >"$DIR/lines"
{
    echo "$(git rev-parse --short HEAD 2>/dev/null), $(nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader 2>/dev/null | head -1)"
    echo
    echo "| work | figure | memory | chip; held back by | peer in the same call | ratio | goal |"
    echo "|---|---|---|---|---|---|---|"
} | tee "$DIR/table.md"
while IFS='|' read -r name what goal options variants; do
    name=$(trim "$name"); goal=$(trim "$goal")
    [ -n "$name" ] || continue
    case $only in *[!0-9]*) case " $only " in *" $name "*) ;; *) continue ;; esac ;; *) [ "$name" != tiny ] || continue ;; esac
    text=$(row "$name" "$(trim "$what")" "$goal" "$(trim "$options")" "$(trim "$variants")") || failed=1
    tee -a "$DIR/table.md" <<<"$text"
done <<<"$table"
[ -z "${PROFILE:-}" ] || {
    echo
    echo "| share of a step, % (line of bench_gpu.sh) | ms with events | projections, experts | head, loss | attention back | forward | norms, rotary, gates | AdamW, norm of the gradient | rest |"
    echo "|---|---|---|---|---|---|---|---|---|"
    cut -d' ' -f1 "$DIR/lines" | while read -r name; do where "$name"; done
} | tee -a "$DIR/table.md"
exit $failed
