#!/usr/bin/env bash
# tests/gpu.sh as it is met on a machine with a GPU: from an unpacked package, with nothing of the
# environment, over the emulated edge (emulated_edge.cc). The argument says what is met: "machines"
# of several kinds, all well, "faults", or "hangs".
set -uo pipefail
failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}
work=$TEST_TMPDIR/work
mkdir -p "$work/built/tests/gpu" "$work/built/tests/bench/gpu" "$work/a place" "$work/tools"
cp tests/gpu/gpu_tests_emulated "$work/built/tests/gpu/gpu_tests"
cp tests/bench/gpu/gpu_bench_emulated "$work/built/tests/bench/gpu/gpu_bench"

export SOURCE_DATE_EPOCH=1700000000
package=$(XZ_PRESET=0 deploy/package.sh --tests-only --binaries "$work/built" --output "$work") ||
  fail "no package"
[[ ${package##*/} == megatrain-tests-*-nocudnn-linux-$(uname -m).tar.xz ]] || fail "is called $package"
bytes=$(stat -c %s "$package")
((bytes <= 40 << 20)) || fail "the package has $bytes bytes, more than 40 MiB"
tar -C "$work/a place" -xJf "$package"
root=$(echo "$work/a place"/megatrain-tests-*)
[[ ! -e $root/bin/megatraind && ! -e $root/bin/megatrain ]] || fail "has the daemon or the client"
[[ -s $root/share/licences/libdnnl2/copyright ]] || fail "has no licences"
for program in gpu_tests gpu_bench; do
  while read -r library path; do
    case $library in
      libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|libresolv.so.*) ;;
      *) [[ $path == */lib/megatrain/$library ]] || fail "$program takes $library from $path" ;;
    esac
  done < <(ldd "$root/bin/$program" | sed -n 's/^\s*\(\S*\) => \(.*\) (.*/\1 \2/p' | sed "s|$root|PACKAGE|")
done

# said NAME CODE FAULTS ARGUMENTS...: gpu.sh with these faults ends with this code.
seconds=60
gpus=1
said() {
  local name=$1 code=$2 faults=$3 got=0
  shift 3
  env -i PATH="$work/tools:$PATH" MEGATRAIN_TEST_SIZES=small MEGATRAIN_GPU_TEST_SECONDS="$seconds" \
    MEGATRAIN_EMULATED_FAULTS="$faults" MEGATRAIN_EMULATED_GPUS="$gpus" LD_LIBRARY_PATH=/of/the/user TMPDIR="$TEST_TMPDIR" \
    "$root/tests/gpu.sh" "$@" --out "$work/$name" >"$work/$name.said" 2>&1 || got=$?
  ((got == code)) || fail "$name: exit code $got, not $code: $(cat "$work/$name.said")"
}
has() {  # NAME PATTERN...
  local name=$1 pattern
  shift
  for pattern in "$@"; do
    grep -Eq -- "$pattern" "$work/$name.said" || fail "$name: nothing like $pattern: $(cat "$work/$name.said")"
  done
}

machines() {
# Usage, and machines without anything to test.
said usage 2 "" nonsense
has usage '^tests/gpu.sh \[check|exit codes|Exit codes'
said no_gpu 3 DeviceCount=100 check
has no_gpu 'nothing to test here' 'GPU'
said no_cublas 3 LoadLibraries=1 bench
has no_cublas 'no library of products'
mv "$root/bin/gpu_tests" "$root/bin/away"
said no_program 3 "" check
mv "$root/bin/away" "$root/bin/gpu_tests"

# compute-sanitizer is not there; then one that only tells how it is called.
said no_sanitizer 1 "" sanitize
has no_sanitizer 'compute-sanitizer +failed .*not found'
cat > "$work/tools/compute-sanitizer" <<'SCRIPT'
#!/usr/bin/env bash
echo "$* with $LD_LIBRARY_PATH, $MEGATRAIN_TEST_SIZES" >> "${0%/*}/calls"
tool=$2
shift 4
[[ $tool != "${FINDS:-racecheck}" || ! -e ${0%/*}/finds ]] || { "$@"; echo "ERROR SUMMARY: 1 error"; exit 9; }
exec "$@"
SCRIPT
chmod +x "$work/tools/compute-sanitizer"

# All is well, on two GPUs.
gpus=2
said well 0 "" all
gpus=1
has well 'ALL IS WELL' 'check +kernels +ok' 'check +whole models +ok' 'check +jobs, same bits +ok' \
  'check +plain attention +ok' 'sanitize +synccheck +ok' 'bench +7b +ok' 'bench +32k +ok' \
  'check +NCCL +ok' 'check +jobs on several GPUs +ok .*4 tests' 'bench +exchange +ok' \
  'devices: step of 2 GPUs over 1/2' 'GPUs +2' 'NCCL +0.0.0 .fake.' 'cuBLASLt +13' 'cuDNN +9' 'DRAM +[0-9.]+ GB/s' 'card +Emulated'
! grep -q skipped "$work/well.said" || fail "well: something is skipped: $(cat "$work/well.said")"
for tool in memcheck racecheck initcheck synccheck; do
  grep -q -- "^--tool $tool --error-exitcode 9 .*/gpu_tests .* with /of/the/user, small$" "$work/tools/calls" ||
    fail "$tool is not called as it should be: $(cat "$work/tools/calls")"
done
for words in '| link, host to device | `gpu_bench limits` | | ' '`gpu_bench 7b`' '`gpu_bench kernels`' \
  '| check | kernels | ok |' '- card: Emulated'; do
  grep -qF -- "$words" "$work/well/results.md" || fail "results.md has no $words: $(cat "$work/well/results.md")"
done
grep -q '"outcome": "ok"' "$work/well/results.json" || fail "results.json: $(cat "$work/well/results.json")"
touch "$work/tools/finds"
said finds 1 "" sanitize
has finds 'sanitize +racecheck +failed .*1 error' 'sanitize +synccheck +ok'
said finds_lost 1 "Launch=700!" sanitize
has finds_lost 'sanitize +racecheck +failed .*4 of 4 tests'

# One GPU: what needs two is skipped, and counted.
said one_gpu 0 "" bench
has one_gpu 'GPUs +1' 'bench +exchange +skipped .*needs two GPUs, has one' 'bench +devices +skipped' \
  '^skipped: 2 steps' 'ALL IS WELL'
grep -q '| bench | exchange | skipped |' "$work/one_gpu/results.md" || fail "one_gpu: no row tells of what is skipped"

# No cuDNN, and two GPUs without NCCL.
gpus=2
said no_library 1 cudnn=none,nccl=none bench
has no_library 'cuDNN +not used' 'info +cuDNN +failed' 'bench +limits +ok' \
  'NCCL +not used: .*install it' 'info +NCCL +failed .*--without-nccl' \
  '^bench +exchange +failed .*needs NCCL' '^  bench: devices: failed'
said without_libraries 0 cudnn=none,nccl=none bench --without-cudnn --without-nccl --pool 64MiB
has without_libraries 'info +cuDNN +accepted' 'info +NCCL +accepted' 'bench +exchange +skipped .*needs NCCL' \
  '^skipped: 2 steps'
gpus=1
}

faults() {
# A kernel that is wrong, on one path, and casts that end their process, in a product's bias too: the
# rest is tried all the same.
said wrong 1 tensor_attention_forward=wrong,cast=crash check
has wrong 'check +jobs on several GPUs +skipped .*needs two GPUs' '^skipped: 2 steps' 'KernelsSuite.Attention/BF16: failed' 'WRONG: operand [0-9]+ \(bf16 \[[0-9]+\], seed 3\): relative error' \
  '\* \[[0-9]+\] got .*, want ' 'heads, 1 of keys, head_dim 64, documents end at 11 40' \
  'check +kernels +failed .*8 of [0-9]+ tests' 'check +plain attention +ok' \
  'CastToBf16InPlaceRoundsToNearestEven/BF16: ended crashed \(SIGSEGV\)' \
  'VERDICT: do not trust tensor-core attention: MEGATRAIN_TENSOR_CORE_ATTENTION=off heals .*Attention/BF16' \
  'VERDICT: no fast path is at fault: setting them aside does not heal .*CastToBf16' \
  'VERDICT: with the fast paths aside kernels fail, .*CastToBf16'

# An error that CUDA repeats from then on: the tests behind it have processes of their own.
said lost 1 "Product=700!" check
has lost 'check +kernels +failed .* [1-9] of [0-9]+ tests' 'check +plain attention +ok' \
  'KernelsSuite.MatMul/F32: failed' 'no fast path is at fault: .*MatMul/F32'
! grep -q 'KernelsSuite.Rope.*: failed' "$work/lost.said" || fail "lost: tests behind a failure fail"

# cuDNN is at fault.
said cudnn 1 Attention=wrong check
has cudnn 'VERDICT: do not trust cuDNN: MEGATRAIN_CUDNN=off heals .*Attention/BF16.*; whole models pass then'

# A name of a test that is gone.
sed -i 's/qwen3_whole/qwen3_hole/' "$root/tests/gpu.sh"
said renamed 1 "" bench
has renamed "info +tests' names +failed .*Families/TrainerNumericsTest.Fp32/qwen3_hole"
sed -i 's/qwen3_hole/qwen3_whole/' "$root/tests/gpu.sh"

# A test that fails once accuses no path.
mv "$root/bin/gpu_tests" "$root/bin/gpu_tests_itself"
cat > "$root/bin/gpu_tests" <<'SCRIPT'
#!/usr/bin/env bash
if [[ $* == *IsLikeTheCpus* && ! -e ${TEST_TMPDIR%/*}/once ]]; then
  touch "${TEST_TMPDIR%/*}/once"
  export MEGATRAIN_EMULATED_FAULTS=heads=crash
fi
exec "${0%/*}/gpu_tests_itself" "$@"
SCRIPT
chmod +x "$root/bin/gpu_tests"
said once 1 "" check
has once 'check +whole models +failed' 'VERDICT: failed, and did not when run again, .*IsLikeTheCpus'
! grep -E 'do not trust|can be trusted' "$work/once.said" || fail "once: a path is accused or cleared"
mv "$root/bin/gpu_tests_itself" "$root/bin/gpu_tests"

# NaN, and different from run to run, are told as such.
for fault in Product=nan:NAN: heads=unsteady:"DIFFERENT FROM RUN TO RUN:"; do
  (cd "$root/tests/files" && MEGATRAIN_TEST_SIZES=small MEGATRAIN_EMULATED_FAULTS=${fault%%:*} \
    "$root/bin/gpu_tests" --gtest_filter='Gpu/KernelsSuite.MatMulOverManyTiles/*:Gpu/KernelsSuite.Rope/*') \
    > "$work/told" 2>&1 && fail "$fault is not seen"
  grep -q "^${fault#*:} operand" "$work/told" || fail "$fault: $(cat "$work/told")"
done
}

hangs() {
# What hangs is given up; what was measured before is kept.
seconds=5
said hang 1 delta/causal_conv=hang check
has hang 'KernelsSuite.CausalConv.*: hung' 'check +plain attention'
seconds=3
said bench_hang 1 heads=hang bench
has bench_hang 'bench +limits +ok' 'bench +7b +hung' 'bench +kernels +hung'
grep -q 'gpu_bench limits' "$work/bench_hang/results.md" || fail "bench_hang: no limits are kept"
grep -q 'tokens: qkv | `gpu_bench kernels`' "$work/bench_hang/results.md" || fail "bench_hang: no kernel is kept"
}

"$1"
((failures == 0)) && echo "all checks passed"
