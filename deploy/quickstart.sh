#!/usr/bin/env bash
# From nothing to a trained model: installs, builds, makes a small Llama with random weights, starts
# a daemon of its own, submits a job that trains the model on the licence texts that every Debian
# has, watches it, and compares it with a byte-bigram model on the same held-out text.
#
#   deploy/quickstart.sh [DIRECTORY]     default: ./quickstart; made anew at each call
set -euo pipefail
source_directory=$(cd "$(dirname "$0")/.." && pwd)
directory=$(realpath -m "${1:-quickstart}")
licences=/usr/share/common-licenses

cd "$source_directory"
deploy/install-deps.sh
echo "== building"
bazel build //server:megatraind //client:megatrain //tests/tools:bigram_baseline
binaries=$(bazel info bazel-bin 2>/dev/null)
megatraind=$binaries/server/megatraind
megatrain=$binaries/client/megatrain
bigram_baseline=$binaries/tests/tools/bigram_baseline

# Only a directory that an earlier call made is replaced.
marker=$directory/.megatrain-quickstart
if [[ -e $directory && ! -e $marker && -n $(ls -A "$directory") ]]; then
  echo "quickstart: $directory exists and is not this script's; name another directory" >&2
  exit 1
fi
rm -rf "$directory"
mkdir -p "$directory/text"
touch "$marker"
cd "$directory"

echo "== collecting text from $licences"
files=()
for file in "$licences"/*; do
  # Links are second names of files that are there already; some texts are not in UTF-8.
  [[ -f $file && ! -L $file ]] || continue
  iconv -f UTF-8 -t UTF-8 "$file" >/dev/null 2>&1 || continue
  cp "$file" "text/${file##*/}.txt"
  files+=("text/${file##*/}.txt")
done
if ((${#files[@]} == 0)); then
  echo "quickstart: no texts in $licences" >&2
  exit 1
fi
echo "${#files[@]} files, $(cat "${files[@]}" | wc -c) bytes"

echo "== a Llama with random weights"
"$megatraind" init --preset llama-tiny --out model --seed 1

{
  echo "name: quickstart"
  echo "model: {path: model}"
  echo "data:"
  echo "  train:"
  for file in "${files[@]}"; do echo "    - {path: $file, format: text}"; done
  cat <<'YAML'
  eval_fraction: 0.1
  sequence_length: 256
training:
  steps: 400
  global_batch: 16
  micro_batch: 8
  precision: fp32
  eval_every: 100
optimizer: {learning_rate: 2.0e-3, beta2: 0.98}
schedule: {type: cosine, warmup_steps: 50, final_fraction: 0.05}
checkpoint: {every_steps: 200, keep: 1}
output: {directory: trained}
YAML
} > job.yaml

echo "== a daemon of our own"
# The socket's directory, which nobody else can enter, is a short path: sockets need one.
socket_directory=$(mktemp -d /tmp/megatrain.XXXXXX)
daemon=
stop_daemon() {
  if [[ -n $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    daemon=
  fi
  rm -rf "$socket_directory"
}
trap stop_daemon EXIT
# The device that every machine has; without the key it is a GPU where there is one.
cat > daemon.yaml <<YAML
listen: ["unix:$socket_directory/megatrain.sock"]
state_directory: $directory/state
device: cpu
host_memory: 512MiB
metrics_listen: ""
YAML
"$megatraind" serve --config daemon.yaml > daemon.log 2>&1 &
daemon=$!
export MEGATRAIN_SERVER=unix:$socket_directory/megatrain.sock
# It answers within moments, and is ready when its memory is reserved.
for ((i = 0; i < 600; ++i)); do
  "$megatrain" info > info.txt 2>&1 && grep -q '^state *READY' info.txt && break
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
if ! "$megatrain" info; then
  echo "quickstart: the daemon does not answer; it said:" >&2
  cat daemon.log >&2
  exit 1
fi

echo "== what the job will need"
"$megatrain" plan job.yaml
echo "== training; Ctrl-C leaves the view, and here also ends the daemon"
job=$("$megatrain" submit job.yaml | awk '{ print $NF }')
"$megatrain" watch "$job"
echo "== the job"
"$megatrain" ls --all
"$megatrain" metrics "$job" -o json > metrics.jsonl
stop_daemon

held_out=$(grep -o '"eval_loss":[0-9.]*' metrics.jsonl | tail -n 1 | cut -d: -f2)
bigram=$("$bigram_baseline" job.yaml)
echo
echo "== held-out loss, nats a byte (less is better)"
printf '%-24s %.4f\n' "this model" "$held_out" "byte-bigram model" "$bigram"
echo
echo "== a sample"
"$megatraind" generate trained --device cpu --prompt "The licensee may" --tokens 200 --temperature 0.7 --seed 1
echo
echo "The job file is $directory/job.yaml"
echo "The model, a Hugging Face directory, is $directory/trained"
if ! awk -v a="$held_out" -v b="$bigram" 'BEGIN { exit !(a < b) }'; then
  echo "quickstart: the model is no better than the bigram model" >&2
  exit 1
fi
