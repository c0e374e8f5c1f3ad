#!/usr/bin/env bash
# Tries a GPU in one command: a verdict and a table, whatever breaks on the way.
#
#   tests/gpu.sh [check|sanitize|bench|all] [--out DIR] [--without-cudnn] [--without-nccl]
#                [--pool SIZE]
#
#   check      kernels, whole models and jobs against their references, each path of attention too,
#              NCCL and jobs on two GPUs and on all; after a failure, which of the fast paths can be
#              trusted. 8 minutes at most, 12 with several GPUs.
#   sanitize   compute-sanitizer's four tools over small shapes. 8 minutes at most.
#   bench      the card's limits, the 7B step, kernels, the 1.5B step (as planned, with AdamW on the
#              host, with two threads fewer), 32k tokens; what GPUs exchange, and the 1.5B step on
#              one, two and all. 9 minutes at most, 13 with several GPUs.
#   all        (the default) check, bench and sanitize, in this order
#
#   --out DIR        gets logs, results.json and results.md, as they are known, instead of those of
#                    another run; default: gpu-results-MODE
#   --without-cudnn  that cuDNN is not found is no failure
#   --without-nccl   that NCCL is not found, where there are several GPUs, is no failure
#   --pool SIZE      host memory of the bench's steps, as 105GiB; default: what each step plans
#
# Runs in an unpacked package (deploy/package.sh --tests-only), and in a checkout on what
# `bazel build //tests/gpu:gpu_tests //tests/bench/gpu:gpu_bench` made. Libraries are
# looked for where LD_LIBRARY_PATH says and in the places of engine/device/cuda/libraries/shared_library.h; a
# driver that the loader does not know, in /usr/local/nvidia.
#
# Steps that need two GPUs are skipped, and counted, where there is one, or with --without-nccl no
# NCCL. All else that is skipped has failed.
#
# Exit codes: 0 all is well; 1 something failed, hung or did not fit into its time; 2 usage; 3 no GPU,
# driver, cuBLASLt or program to run.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=all
out=
without_cudnn=false
without_nccl=false
pool=()

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}
while (($#)); do
  case $1 in
    check|sanitize|bench|all) mode=$1 ;;
    --without-cudnn) without_cudnn=true ;;
    --without-nccl) without_nccl=true ;;
    --out|--pool)
      (($# >= 2)) || { usage >&2; exit 2; }
      if [[ $1 == --out ]]; then out=$(realpath -m "$2"); else pool=(--pool "$2"); fi
      shift
      ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

out=${out:-$PWD/gpu-results-$mode}

# --- The programs, and what they read. ---
if [[ -x $here/../bin/gpu_tests ]]; then
  gpu_tests=$here/../bin/gpu_tests
  gpu_bench=$here/../bin/gpu_bench
  files=$here/files
else
  gpu_tests=$here/../bazel-bin/tests/gpu/gpu_tests
  gpu_bench=$here/../bazel-bin/tests/bench/gpu/gpu_bench
  files=$here/..
fi
for program in "$gpu_tests" "$gpu_bench"; do
  [[ -x $program ]] || { echo "gpu.sh: $program is not there: see --help" >&2; exit 3; }
done

# A sanitizer's shapes, and those of an emulated GPU.
small=false
[[ ${MEGATRAIN_TEST_SIZES:-} == small ]] && small=true
test_seconds=${MEGATRAIN_GPU_TEST_SECONDS:-40}  # for one test
stop_at_hang=false  # whether what follows a test that hangs is left out

logs=$out/logs
mkdir -p "$logs" || exit 2
scratch=$(mktemp -d) || exit 2
export TEST_TMPDIR=$scratch TMPDIR=$scratch
running=
failed=0
skipped=0
deadline=0
rm -f "$logs"/*.log "$out"/results.{json,md}
: > "$out/steps.tsv" || exit 2
# Logs and results are a few MiB; without room for them every item would fail, and none say why.
if ! head -c 16777216 /dev/zero > "$out/room"; then
  echo "gpu.sh: $out has no room for 16 MiB of logs and results; give another with --out" >&2
  rm -f "$out/room"
  exit 2
fi
rm "$out/room"

finish() {
  [[ -z $running ]] || kill -TERM "$running" 2>/dev/null
  rm -rf "$scratch"
}
trap finish EXIT
trap 'echo "gpu.sh: interrupted; what is known lies in $out" >&2; exit 130' INT TERM

. "$here/gpu_steps.sh"

# --- What is tested. ---
models='Families/TrainerNumericsTest.Fp32/*:Families/TrainerNumericsTest.Bf16/*:Families/UpdatePlacesTest.*'
some_models=Families/UpdatePlacesTest.GiveTheSameBits/qwen3
for precision in Fp32 Bf16; do
  for model in qwen2_sweeps_in_chunks qwen3_whole gpt_oss_whole deepseek_v3_micro_batches qwen3_next_whole; do
    some_models+=:Families/TrainerNumericsTest.$precision/$model
  done
done
# Curves of a family for each kind of layer; single steps are of all families. _????: _fp32 and _bf16,
# and no family whose name goes on.
jobs='Families/GpuJobTest.*/qwen2_????:Families/GpuJobTest.*/qwen3_bf16:Families/GpuJobTest.*/llama_fp32'
for model in llama llama_tied qwen3 phi3 gemma2 gemma4_shared granite gpt_oss mixtral deepseek_v3 qwen3_next; do
  jobs+=:Families/GpuJobTest.FollowsTheReferencesLosses/${model}_????
done
# Tests of several GPUs have steps of their own: opening a GPU takes seconds.
nccl_tests='GpuNcclTest.*'
several_jobs='Families/GpuRanksTest.*/qwen2_bf16:Families/GpuRanksTest.TrainAsOneDoes/*'
several_jobs+=':Families/GpuRanksTest.FollowTheReferencesLosses/*'
several_jobs+=':Families/GpuRanksTest.WithGradientShardsTheirNumberDoesNotShow/*'
all_filters=$models:$some_models:$jobs:$nccl_tests:$several_jobs
if $small; then
  models='Families/GpuJobTest.IsLikeTheCpus/qwen2_????'
  some_models='Families/GpuJobTest.IsLikeTheCpus/qwen2_bf16'
  jobs='Families/GpuJobTest.GivesTheSameBitsWhenStoppedAndResumed/qwen2_bf16'
  several_jobs='Families/GpuRanksTest.*/qwen2_bf16-*.FollowTheReferencesLosses/*:*.GiveTheSameBits*'
fi
kernels='Gpu/KernelsSuite.*'
attention='Gpu/KernelsSuite.Attention*'
sanitized=$kernels
for test in Fp32/qwen2_sweeps_in_chunks Bf16/gpt_oss_whole; do
  sanitized+=:Families/TrainerNumericsTest.$test
done
all_filters+=:$kernels:$attention:$sanitized:CudnnTest.*
if $small; then sanitized='Gpu/KernelsSuite.Rope/*:Gpu/KernelsSuite.GluAndBackward/*'; fi
# Of each item of the bench the seconds without which it is not begun, and those it may take.
declare -A least=([limits]=20 [7b]=90 [kernels]=20 [1.5b]=40 [32k]=90 [exchange]=30 [devices]=60)
declare -A most=([limits]=90 [7b]=240 [kernels]=60 [1.5b]=150 [32k]=200 [exchange]=90 [devices]=150)
several_seconds=$((most[exchange] + most[devices]))
if $small; then for item in "${!most[@]}"; do least[$item]=1 most[$item]=$test_seconds; done; fi

# The paths that are there for speed, and what sets each aside.
declare -A aside=(
  ["cuDNN"]="MEGATRAIN_CUDNN=off"
  ["tensor-core attention"]="MEGATRAIN_TENSOR_CORE_ATTENTION=off"
  ["vector loads"]="MEGATRAIN_VECTOR_LOADS=off"
  ["split sums"]="MEGATRAIN_SPLIT_SUMS=off"
)
paths=("cuDNN" "tensor-core attention" "vector loads" "split sums")

# try STEP FILTER SECONDS VARIABLE=VALUE...: a step of the check, before the time for the verdict.
try() {
  local step=$1 filter=$2 limit=$3
  shift 3
  failures=()
  if $small; then limit=$(left); fi  # how long an emulation takes says nothing
  limit=$(min "$limit" "$(left 90)")
  if ((limit < 5)); then
    record check "$step" late 0 "no time was left"
    return 1
  fi
  run_tests check "$step" "$filter" "$limit" env "$@"
}

check() {
  local -a as_is=() own=() plain=()
  deadline=$((SECONDS + 470))
  if ((gpus > 1)); then deadline=$((deadline + 240)); fi
  try "kernels" "$kernels" 150
  as_is+=("${failures[@]}")
  try "whole models" "$models" 90
  as_is+=("${failures[@]}")
  try "jobs, same bits" "$jobs" 100
  as_is+=("${failures[@]}")
  # The first test of a process opens all GPUs, and cuDNN takes seconds to make each of its graphs.
  test_seconds=$((2 * test_seconds))
  if several check "NCCL"; then try "NCCL" "$nccl_tests" 100; fi
  if several check "jobs on several GPUs"; then try "jobs on several GPUs" "$several_jobs" 150; fi
  if $cudnn && ! try "cuDNN takes its calls" 'CudnnTest.*' 120; then
    tell "cuDNN does not take what it should, or gets it wrong: ${aside[cuDNN]}"
  fi
  test_seconds=$((test_seconds / 2))
  # What is used where cuDNN or a fast path takes no call.
  try "our own attention" "$attention" 40 "${aside[cuDNN]}"
  own=("${failures[@]}")
  try "plain attention" "$attention" 40 "${aside[cuDNN]}" "${aside[tensor-core attention]}" \
    "${aside[vector loads]}"
  plain=("${failures[@]}")
  try "kernels without fast paths" "$kernels-$attention" 60 "${aside[vector loads]}" \
    "${aside[split sums]}"
  plain+=("${failures[@]}")
  if ((${#as_is[@]} > 0)); then
    verdict "" "${as_is[@]}"
  elif ((${#own[@]} > 0)); then
    verdict "cuDNN" "${own[@]}"
  fi
  if ((${#plain[@]} > 0)); then
    tell "with the fast paths aside kernels fail, so that there is nothing to fall back to: ${plain[*]}"
  fi
}

told=0
tell() {
  echo "VERDICT: $1"
  keep verdict "verdict $((++told))" "told" 0 "$1"
}

# verdict PATH TEST...: which paths can be trusted. The tests, which failed with this path aside or,
# if it is empty, with none, and whole models are run with each of the others aside too.
verdict() {
  local base=$1 filter path limit text seconds=$test_seconds test results models_that_fail
  local -a only_all=() never=() untried=() by_chance=() its_tests=()
  local -a off=() others=()
  local -A heals=() healed=()  # the tests by path; their number of paths by test
  local -A whole=()            # what became of whole models, by path
  shift
  filter=$(printf '%s\n' "$@" | sort -u | paste -sd :):$some_models
  test_seconds=$(min "$test_seconds" 20)
  stop_at_hang=true
  for path in "${paths[@]}"; do [[ $path == "$base" ]] || others+=("$path"); done
  for path in "${others[@]}" "all of these"; do
    off=("${base:+${aside[$base]}}" "${aside[$path]:-}")
    if [[ $path == "all of these" ]]; then off=("${aside[@]}"); fi
    mapfile -t off < <(printf '%s\n' "${off[@]}" | sed '/^$/d')
    limit=$(min 60 $(($(left 2) / 2)))
    if ((limit < 5)); then
      record verdict "without $path" late 0 "no time was left"
      untried+=("$path")
      continue
    fi
    run_tests verdict "without $path" "$filter" "$limit" env "${off[@]}"
    results=$(named ok "$scratch/results")
    models_that_fail=$(printf '%s\n' "${failures[@]}" | grep '^Families/' | paste -sd ' ')
    if [[ -n $models_that_fail ]]; then
      whole[$path]="whole models fail all the same: $models_that_fail"
    elif ! grep -qE '^(late|hung|start) ' "$scratch/results" && grep -q '^Families/' <<< "$results"; then
      whole[$path]="whole models pass then"
    fi
    for test in "$@"; do
      grep -qxF -- "$test" <<< "$results" || continue
      if [[ $path != "all of these" ]]; then
        heals[$path]+=" $test"
        healed[$test]=$((${healed[$test]:-0} + 1))
      elif [[ -z ${healed[$test]:-} ]]; then
        only_all+=("$test")
        healed[$test]=0
      fi
    done
  done
  test_seconds=$seconds
  stop_at_hang=false
  for test in "$@"; do [[ -n ${healed[$test]:-} ]] || never+=("$test"); done
  text=${base:+$base can be trusted; without it: }
  # What passes whichever path is aside failed by chance: it accuses none of them.
  for test in "$@"; do
    ((${healed[$test]:-0} == ${#others[@]})) || continue
    by_chance+=("$test")
    for path in "${!heals[@]}"; do
      heals[$path]=" ${heals[$path]} "
      heals[$path]=${heals[$path]/ $test / }
    done
  done
  for path in "${!heals[@]}"; do
    read -ra its_tests <<< "${heals[$path]}"
    ((${#its_tests[@]} > 0)) || continue
    tell "${text}do not trust $path: ${aside[$path]} heals ${its_tests[*]}${whole[$path]:+; ${whole[$path]}}"
  done
  if ((${#by_chance[@]} > 0)); then
    tell "${text}failed, and did not when run again, whichever path was aside: ${by_chance[*]}"
  fi
  if ((${#only_all[@]} > 0)); then
    tell "${text}more than one fast path is at fault: ${aside[*]} together heal ${only_all[*]}${whole[all of these]:+; ${whole[all of these]}}"
  fi
  if ((${#untried[@]} > 0)); then
    tell "${text}nothing is known of ${untried[*]}: no time was left"
  elif ((${#never[@]} > 0)); then
    tell "${text}no fast path is at fault: setting them aside does not heal ${never[*]}"
  elif ((${#only_all[@]} == 0 && ${#by_chance[@]} == 0)); then
    tell "${text}the other fast paths can be trusted"
  fi
}

sanitize() {
  local sanitizer tool each place
  deadline=$((SECONDS + 470))
  sanitizer=$(command -v compute-sanitizer)
  for place in /usr/local/cuda/bin /usr/local/cuda-*/bin /usr/local/cuda*/compute-sanitizer; do
    [[ -n $sanitizer || ! -x $place/compute-sanitizer ]] || sanitizer=$place/compute-sanitizer
  done
  if [[ -z $sanitizer ]]; then
    record sanitize "compute-sanitizer" failed 0 "not found on PATH, nor beneath /usr/local/cuda*"
    return
  fi
  local tools=(memcheck racecheck initcheck synccheck) i
  local -a off
  for i in "${!tools[@]}"; do
    tool=${tools[i]}
    each=$(($(left) / (${#tools[@]} - i)))
    # cuDNN's kernels wait by means that these two do not follow: they find faults in each of them.
    off=()
    case $tool in racecheck | synccheck) off=("${aside[cuDNN]}") ;; esac
    run_tests sanitize "$tool" "$sanitized" "$each" env MEGATRAIN_TEST_SIZES=small "${off[@]}" \
      "$sanitizer" --tool "$tool" --error-exitcode 9
  done
}

bench() {
  deadline=$((SECONDS + 530))
  local item start code limit detail
  if ((gpus > 1)); then deadline=$((deadline + several_seconds)); fi
  for item in limits 7b kernels 1.5b exchange devices 32k; do
    case $item in exchange | devices) several bench "$item" || continue ;; esac
    start=$SECONDS
    limit=$(min "${most[$item]}" "$(left)")
    if ((limit < least[$item])); then
      record bench "$item" late 0 "not begun: $(left) s are left, it needs ${least[$item]}"
      continue
    fi
    # What is under way is finished: the program stops by itself before it is stopped.
    limited "$limit" "$logs/bench-$item.log" "$gpu_bench" --out "$out" --seconds $((limit * 2 / 3)) \
      "${pool[@]}" "$item"
    code=$?
    detail=$(grep '^gpu_bench: ' "$logs/bench-$item.log" | tail -n 1)
    record bench "$item" "$(outcome_of "$code")" $((SECONDS - start)) "${detail#gpu_bench: }"
    grep "^$item: " "$logs/bench-$item.log" | sed 's/^/  /'
  done
  echo "the table: $out/results.md"
}

# --- The machine. ---

cudnn=false
nccl=false
gpus=  # empty: not known
machine() {
  local code log=$logs/info.log start=$SECONDS
  head -n 1 /proc/driver/nvidia/version 2>/dev/null
  limited "$(min 90 $((2 * test_seconds)))" "$log" "$gpu_bench" --out "$out" info
  code=$?
  cat "$log"
  case $code in
    0 | 4 | 8 | 12)
      gpus=$(awk '$1 == "GPUs" { print $2 }' "$log")
      record info machine ok $((SECONDS - start)) "GPUs: $gpus"
      if ((code & 4)); then missing cuDNN "$without_cudnn"; else cudnn=true; fi
      if ! ((code & 8)); then nccl=true; elif ((gpus > 1)); then missing NCCL "$without_nccl"; fi
      ;;
    3 | 126 | 127)
      record info machine missing $((SECONDS - start)) "$(tail -n 1 "$log")"
      echo "gpu.sh: there is nothing to test here: $(tail -n 1 "$log")" >&2
      exit 3
      ;;
    *) record info machine "$(outcome_of "$code")" $((SECONDS - start)) "$log" ;;
  esac
}

# A filter that matches no test would leave a hole that nobody sees.
check_filters() {
  local pattern names
  local -a patterns=() unknown=()
  names=$(cd "$files" && timeout -k 5 60 "$gpu_tests" --gtest_list_tests 2>/dev/null </dev/null |
    awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }')
  if [[ -z $names ]]; then
    record info "tests' names" failed 0 "$gpu_tests does not list its tests"
    return
  fi
  IFS=: read -ra patterns <<< "$all_filters"
  for pattern in "${patterns[@]}"; do
    grep -qx -- "$(sed 's/[.]/\\&/g; s/[*]/.*/g; s/?/./g' <<< "$pattern")" <<< "$names" || unknown+=("$pattern")
  done
  ((${#unknown[@]} == 0)) || record info "tests' names" failed 0 "no test is called ${unknown[*]}"
}

find_driver
machine
check_filters
if $small; then cudnn=false; fi  # the emulated one takes no call
case $mode in
  all) check; bench; sanitize ;;
  *) "$mode" ;;
esac
if ((skipped)); then echo "skipped: $skipped steps, for the reasons told above"; fi
if ((failed)); then
  echo "FAILED, in ${SECONDS} s:"
  awk -F '\t' '$1 != "verdict" && $3 != "ok" && $3 != "accepted" && $3 != "skipped" { print "  " $1 ": " $2 ": " $3 "; " $5 }
               $3 == "told" { print "  VERDICT: " $5 }' "$out/steps.tsv"
  echo "all of it: $out"
  exit 1
fi
echo "ALL IS WELL, in ${SECONDS} s: $out"
