# A clone of a tiny T5 with spiece.model alone, 40 rows of instructions; six rows a step on any number of workers.
[ ${#model[@]} -gt 0 ] || model=(--model "$golden/saved/t5-clone")
DATA=${DATA:-$golden/parquet/instructions.parquet}; more=(--max-seq-length 48 --max-steps 6 "${more[@]}"); LIMIT=${LIMIT:-12}
