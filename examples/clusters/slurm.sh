#!/bin/bash
# A Ray cluster on the nodes of a Slurm job, for as long as a command takes.
#
#   sbatch --nodes=4 slurm.sh python sweep.py
#   sbatch --nodes=4 slurm.sh saturn resume /shared/saturn_runs/sweep --cluster auto
#
# The job's first node is Ray's head, and the command runs there. The cluster asks for a token, made
# anew for each job, in a directory of its user's home. Two environment variables say where things
# are: SATURN_KEEP, a directory on storage that outlives the job (~/saturn-home), and SATURN_DISK,
# one on the node's own disk (/tmp). The journals of runs are on the latter while the job lasts.
#
#SBATCH --job-name=saturn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300
#SBATCH --output=saturn-%j.log
set -euo pipefail

if (($# == 0)); then
  echo 'usage: sbatch slurm.sh COMMAND...' >&2
  exit 2
fi
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
# Of this job alone, where a node has several.
address=$head:$((20000 + SLURM_JOB_ID % 10000))
own=${SATURN_DISK:-/tmp}/saturn-$SLURM_JOB_ID
keep=${SATURN_KEEP:-$HOME/saturn-home}
umask 077
mkdir -p "$own" "$keep" ~/.ray
token_file=~/.ray/slurm-$SLURM_JOB_ID.token
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$token_file"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token_file RAY_USAGE_STATS_ENABLED=0
# /tmp/ray may be another user's.
export RAY_TMPDIR=$own RAY_ADDRESS=$address

newest() { find "$1" -type f -printf '%T@\n' 2>/dev/null | sort -n | tail -n 1; }

# bring FROM TO: what is newer there. A journal goes whole: another's write-ahead log would damage it.
bring() {
  local entry journal to
  for entry in "$1"/*; do
    [[ ! -e $entry || ${entry##*/} = journals ]] || cp -au "$entry" "$2"
  done
  for journal in "$1"/journals/*/*; do
    to=$2${journal#"$1"}
    if [[ -d $journal && $(newest "$journal") > $(newest "$to") ]]; then
      rm -rf "$to"
      mkdir -p "${to%/*}"
      cp -a "$journal" "$to"
    fi
  done
}

# Journals are not for network file systems: they come from there, and go back at the end.
export SATURN_HOME=${SATURN_DISK:-/tmp}/saturn-home-$USER
mkdir -p "$SATURN_HOME"
bring "$keep" "$SATURN_HOME"
pids=()
# shellcheck disable=SC2329  # the trap's
finish() {
  bring "$SATURN_HOME" "$keep"
  if ((${#pids[@]})); then
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" || true
  fi
  rm -rf "$own" "$token_file"
}
trap finish EXIT

# start NODE OPTIONS...: Ray in the foreground there, as a step of the job.
start() {
  # shellcheck disable=SC2016  # expanded on the node
  srun --nodes=1 --ntasks=1 --nodelist="$1" --gpus-per-node="${SLURM_GPUS_PER_NODE:-0}" \
    bash -c 'mkdir -p "$RAY_TMPDIR" && exec ray start "$@"' ray "${@:2}" --block \
    --node-name="$1" --disable-usage-stats --object-store-memory=200000000 &
  pids+=($!)
}
start "$head" --head --port="${address##*:}" --include-dashboard=false
until timeout 15 ray health-check --address "$address" >/dev/null 2>&1; do
  if ((SECONDS > ${NODES_S:-120})) || ! kill -0 "${pids[0]}" 2>/dev/null; then
    echo "Ray's head did not start on $head" >&2
    exit 1
  fi
  sleep 1
done
for node in "${nodes[@]:1}"; do
  start "$node" --address="$address"
done
timeout $((${NODES_S:-120} + 30)) python - ${#nodes[@]} "${NODES_S:-120}" <<'PYTHON'
import sys, time, ray
ray.init(logging_level="ERROR")
until = time.monotonic() + float(sys.argv[2])
while (there := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[1]):
    if time.monotonic() > until:
        sys.exit(f"{there} of {sys.argv[1]} nodes came")
    time.sleep(0.5)
PYTHON

# Slurm tells this shell that the time is nearly over: the command stops at checkpoints.
"$@" &
command=$!
trap 'kill -TERM "$command"' TERM
status=0
wait "$command" || status=$?
if ((status > 128)) && kill -0 "$command" 2>/dev/null; then
  status=0
  wait "$command" || status=$? # the first was cut short by the signal
fi
exit "$status"
