# recipes.sh - the systems' recipes at a small size.
R=$PWD/tools/recipes
export GIT_CONFIG_GLOBAL=$T/gitconfig GIT_CONFIG_NOSYSTEM=1 HOME=$T
# small NAME CONFIG TOKENIZER [OPTION...] - a fresh model in $T/NAME, which is MODEL from now on.
small() {
    local tokenizer=$R/demo/tokenizer
    [ "$3" = demo ] || tokenizer=$3
    t "a small $1" ckpt-train -q --init "$2" --tokenizer "$tokenizer" --init-only -o "$T/$1"
    export MODEL=$T/$1
}
# recipe NAME DATA OPTION... - its run, and a line for each of its duties.
recipe() {
    local name=$1 got
    (cd "$T" && DATA=$2 OUT=$T/out "$R/$1/run.sh" "${@:3}") >"$T/.recipe" 2>"$T/.err"; got=$?
    awk '/^[ABCDEX][0-9]+ ✓/ { sub(/ ✓/, ""); print "ok " $0; told = 0; next } /^[ABCDEX][0-9]+ ✗/ { sub(/ ✗/, ""); print "not ok " $0; told = 1; next } told && /^    /' "$T/.recipe"
    [ $got = 0 ] && echo "ok $name ends with 0" || fail "$name ends with $got" "$T/.err"
}
