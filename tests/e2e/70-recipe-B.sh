# System B by its recipe, small, on one and two ranks of the CPU: from parquet to a clone of what was published.  B1 to B7
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/recipes.sh"
export MODEL=$T/t5-clone WORKERS="1 2"
cp -r "$G/saved/t5-clone" "$MODEL"; rm "$MODEL"/{model.safetensors,expected.json}
mkdir "$T/data"; cp "$G/parquet/instructions.parquet" "$T/data/train-00000-of-00001-36a4b1.parquet"
recipe B-t5-wikisql "$T/data/train-*.parquet" --logging-steps 1 --max-steps 4 --eval-strategy no --save-strategy steps --save-steps 2
