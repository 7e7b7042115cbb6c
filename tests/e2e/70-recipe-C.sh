# System C by its recipe, small, on two ranks of the CPU: every stage of ZeRO, with and without offload, beside none.  C1 to C8
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/shared/recipes.sh"
small bloom "$R/demo/config.json" demo
awk 'BEGIN { for (i = 0; i < 22; i++) printf "{\"id\":\"q%d\",\"title\":\"t\",\"context\":\"The river number %d is %d miles long and flows north.\",\"question\":\"How long is river %d?\",\"answers\":{\"text\":[\"%d miles\"],\"answer_start\":[20]}}\n", i, i, i * 7, i, i * 7 }' >"$T/squad.jsonl"
recipe C-bloom-squad-zero "$T/squad.jsonl" --logging-steps 1 --memory-log 0.02 --gradient-accumulation-steps 1 --max-seq-length 64
