#!/usr/bin/env bash
# The package on a system that has nothing but its base: trains in the foreground and as a daemon,
# in a chroot. As root, on a directory made by one of
#   debootstrap --variant=minbase bookworm DIRECTORY
#   debootstrap --variant=minbase noble DIRECTORY http://archive.ubuntu.com/ubuntu
# with
#   bazel test //tests/deploy:bare_system_test --test_env=BARE_ROOT=DIRECTORY
set -euo pipefail
root=${BARE_ROOT:?set BARE_ROOT to a system of its own: see the top of $0}
[[ -x $root/bin/bash ]] || { echo "$root has no /bin/bash" >&2; exit 1; }

place=$(mktemp -d "$root/tmp/megatrain.XXXXXX")
trap 'rm -rf "$place"' EXIT
package=$(deploy/package.sh --binaries "$PWD" --output "$place")
cat > "$place/check.sh" <<'SCRIPT'
set -euo pipefail
place=$1
cd "$place"
mkdir "a place"
tar -C "a place" -xzf "$place"/megatrain-*.tar.gz
bin=$(echo "$place/a place"/*/bin)
export PATH=$bin:$PATH

megatraind init --preset llama-tiny --out model --seed 1
for ((i = 0; i < 400; ++i)); do echo "the quick brown fox jumps over the lazy dog $i"; done > text.txt
cat > job.yaml <<'YAML'
name: bare
model: {path: model}
data: {train: [{path: text.txt, format: text}], sequence_length: 128}
training: {steps: 5, global_batch: 4, micro_batch: 2, eval_every: 0}
checkpoint: {directory: saved}
output: {directory: trained}
YAML
megatraind plan job.yaml
megatraind run job.yaml
megatraind verify saved/step-00000005

mkdir -m 0700 socket
cat > daemon.yaml <<YAML
listen: ["unix:$place/socket/s"]
state_directory: $place/state
roots: ["$place"]
host_memory: 256MiB
metrics_listen: ""
YAML
megatraind serve --config daemon.yaml > daemon.log 2>&1 &
daemon=$!
export MEGATRAIN_SERVER=unix:$place/socket/s
for ((i = 0; i < 600; ++i)); do
  grep -q '^state *READY' <<<"$(megatrain info 2>/dev/null)" && break
  kill -0 "$daemon" || { cat daemon.log; exit 1; }
  sleep 0.1
done
megatrain submit job.yaml --set output.directory=served --set checkpoint.directory=served-saved --watch
megatrain ls --all
kill "$daemon"
wait "$daemon"
# The same bits, whoever ran it.
cmp trained/model.safetensors served/model.safetensors
SCRIPT
cd /
unshare --mount --pid --fork bash -c '
  mount -t proc proc "$1/proc" && exec chroot "$1" /bin/bash "$2/check.sh" "$2"' bare "$root" "${place#"$root"}"
echo "all checks passed on $(. "$root/etc/os-release" && echo "$PRETTY_NAME")"
