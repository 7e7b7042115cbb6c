# begin.sh NAME MODEL DATA - sourced by the recipes' run.sh: what the environment leaves open, and an empty folder.
#
#   OUT     folder of the run (NAME)              MODEL   model to begin with
#   HUB     where to publish (OUT/hub.git)        DATA    raw data
#   NPROC   ranks (2)
here=$(cd "$(dirname "$0")" && pwd)
: "${OUT:=$1}" "${HUB:=$OUT/hub.git}" "${MODEL:=$2}" "${DATA:=$3}" "${NPROC:=2}"
export OUT HUB MODEL DATA NPROC
mkdir -p "$OUT"
rm -f "$OUT/saved"; mkfifo "$OUT/saved"
