#!/usr/bin/env bash
# A Ray cluster on machines that ssh reaches, for as long as a command takes.
#
#   ./ssh.sh HOSTS COMMAND...          such as: ./ssh.sh hosts.txt python sweep.py
#
# HOSTS is a file with a line a machine: its name or address, by which ssh and the other machines
# reach it, and then options of `ray start` for it, if need be:
#
#   10.0.0.1 --node-name=one
#   10.0.0.2 --node-name=two --num-gpus=4
#
# The first machine is the head, and COMMAND runs there, in the directory of this name. The cluster
# asks for a token, made anew each time. Where this script ends, however it does, so does the cluster.
#
# From the environment: PORT of the head (6379), BIN, the directory of `ray` and `python` on the
# machines, where that is not in their PATH, and NODES_S, the seconds that machines may take (120).
set -euo pipefail

if (($# < 2)); then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
hosts_file=$1
shift
hosts=() options=()
while read -r host more; do
  if [[ -n $host && $host != \#* ]]; then
    hosts+=("$host") options+=("$more")
  fi
done <"$hosts_file"
if ((${#hosts[@]} == 0)); then
  echo "$hosts_file names no machine" >&2
  exit 2
fi
head=${hosts[0]}
address=$head:${PORT:-6379}

work=$(mktemp -d)
mkfifo "$work/held"
# Held open here and nowhere else: when this script ends, all that reads it does, and ends Ray.
exec 3<>"$work/held"
trap 'exec 3>&-; wait; rm -rf "$work"' EXIT

# What every command on a machine begins with. Its token is a file that only its user can read.
token_file=.ray/ssh-cluster-${PORT:-6379}.token
environment="export PATH=\"${BIN:+$BIN:}\$PATH\" RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=\"\$HOME/$token_file\" \
RAY_ADDRESS=$address RAY_USAGE_STATS_ENABLED=0"
on() { # HOST COMMAND: standard input is the caller's
  ssh -o BatchMode=yes -o ServerAliveInterval=15 "$1" "$environment; $2" 3>&-
}

# start NUMBER OPTIONS: Ray in the foreground on a machine, until what is held is closed.
start() {
  on "${hosts[$1]}" "ray start $2 --block --disable-usage-stats --object-store-memory=200000000 & ray=\$!
    exec 4<&0; { cat <&4; kill \$ray; } >/dev/null 2>&1 & exec 4<&-; wait \$ray" \
    <"$work/held" >"$work/$1.log" 2>&1 3>&- &
}

token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
for host in "${hosts[@]}"; do
  on "$host" "umask 077; mkdir -p ~/.ray; cat >~/$token_file" <<<"$token"
done
start 0 "--head --port=${PORT:-6379} --include-dashboard=false ${options[0]}"
ray_there=$!
until on "$head" "timeout 15 ray health-check --address $address" </dev/null >/dev/null 2>&1; do
  if ((SECONDS > ${NODES_S:-120})) || ! kill -0 $ray_there 2>/dev/null; then
    echo "Ray's head did not start on $head:" >&2
    cat "$work/0.log" >&2
    exit 1
  fi
  sleep 1
done
for ((i = 1; i < ${#hosts[@]}; i++)); do
  start "$i" "--address=$address ${options[i]}"
done
on "$head" "timeout $((${NODES_S:-120} + 30)) python - ${#hosts[@]} ${NODES_S:-120}" <<'PYTHON' || { cat "$work"/*.log >&2; exit 1; }
import sys, time, ray
ray.init(logging_level="ERROR")
until = time.monotonic() + float(sys.argv[2])
while (there := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[1]):
    if time.monotonic() > until:
        sys.exit(f"{there} of {sys.argv[1]} machines came")
    time.sleep(0.5)
PYTHON

terminal=()
if [[ -t 0 ]]; then
  terminal=(-t) # so that Ctrl-C reaches the command, which stops at checkpoints
fi
# shellcheck disable=SC2029  # this machine knows what to run
ssh "${terminal[@]}" "$head" "$environment; cd $(printf %q "$PWD") && exec $(printf '%q ' "$@")" 3>&-
