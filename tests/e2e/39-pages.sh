# Pages of runs in a browser, and settings side by side: stages and ranks in one table, what the runs were made on.  [B3, C4]
. "$(dirname "$0")/lib.sh"
M=$G/lora/bloom-qkv
cd "$T" || exit 1
for z in 0 2 3; do
    ckpt-train -q --model "$M/base" --train-file "$M/rows.jsonl" --eval-file "$M/rows.jsonl" --per-device-train-batch-size 2 --max-steps 6 --eval-steps 2 \
        --save-steps 3 --logging-steps 1 --threads 1 --nproc $((z ? 2 : 1)) --per-device-train-batch-size $((z ? 1 : 2)) --zero-stage $z \
        --offload-optimizer $([ $z = 3 ] && echo cpu || echo none) -o "stage$z" >/dev/null 2>err || cat err
done
t "the first row of a run says where it was made" grep -qE '"device":"[^"]+","ranks":2,"threads":1,"zero_stage":3,"offload":"[a-z ]+"' stage3/metrics.jsonl
expect_prints 0 "settings side by side" "stage  ranks" ckpt-inspect --compare stage0 stage2 stage3
t "a row each" [ "$(awk '/^stage/ { print $1, $2, $3 }' .out | tr '\n' ';')" = "stage0 0 1;stage2 2 2;stage3 3 2;" ]
t "pages" bash -c "ckpt-inspect --html run.html stage3 && ckpt-inspect --html runs.html --compare stage0 stage2 stage3; ckpt-inspect --html diff.html --diff stage3/checkpoint-3 stage3/checkpoint-6; ckpt-inspect --html model.html stage3/checkpoint-6" >pages
t "four" [ "$(ls run.html runs.html diff.html model.html | wc -l)" = 4 ]
t "a run's has its hardware" bash -c "sed -n '/Hardware/,/<\/dl>/p' run.html | grep -q '<dt>Device</dt>' && grep -q '<dt>Offload</dt>' run.html"
t "the figure of a whole run is no point of its curve" bash -c "grep -o 'data-name=.Communication share.[^>]*data-points=\"[^\"]*' run.html | grep -o ' *6,[0-9.]*' | wc -l | grep -qx 1"
t "the table of several has their stages" grep -q '>ZeRO stage<\|>Zero stage<' runs.html

# In a real browser, where there is one: nothing is wider than the window, at the width of a phone or of a large screen, with the
# page's script or without.
if [ -n "$browser" ]; then
    for page in run runs diff model; do
        for width in 420 1920; do
            t "$page.html fits into $width pixels" fits_window $page.html $width
        done
    done
    sed 's/<script>.*//; /^.use strict/,/^<\/script>/d' run.html >bare.html
    t "without its script too" fits_window bare.html 420
else
    echo "# no browser is installed: widths of pages are not tried"
fi
