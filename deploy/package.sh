#!/usr/bin/env bash
# Makes megatrain-VERSION-linux-ARCHITECTURE.tar.gz: the daemon and the client with every library
# they need beside glibc's own and the GPU driver's, for machines that have neither Bazel nor
# Debian's libraries; and the reader of Parquet with Apache Arrow's, if it was built. It runs from
# wherever it is unpacked; deploy/install.sh in it installs it.
#
#   deploy/package.sh [--tests-only] [--output DIRECTORY] [--binaries DIRECTORY]
#
#   --tests-only  makes megatrain-tests-VERSION-linux-ARCHITECTURE.tar.xz instead: what a machine with
#                 a GPU is tried with, by tests/gpu.sh in it. Has "-nocudnn" behind the version if
#                 the headers of cuDNN were not there: see deploy/install-deps.sh --cuda
#   --output      where the file is put; default: here
#   --binaries    built before, as in bazel-bin; default: built now
#
# glibc must be as new there as here: Debian 12's is 2.36. The same tree gives the same bytes.
set -euo pipefail
source_directory=$(cd "$(dirname "$0")/.." && pwd)
output=$PWD
binaries=
tests_only=false

usage() {
  echo "usage: deploy/package.sh [--tests-only] [--output DIRECTORY] [--binaries DIRECTORY]" >&2
  exit 2
}
fail() {
  echo "package: $*" >&2
  exit 1
}
while (($#)); do
  case $1 in
    --tests-only) tests_only=true ;;
    --output|--binaries)
      (($# >= 2)) || usage
      if [[ $1 == --output ]]; then output=$(realpath -m "$2"); else binaries=$(realpath -m "$2"); fi
      shift
      ;;
    *) usage ;;
  esac
  shift
done

# In bazel-bin; they become bin/NAME.
programs=(server/megatraind client/megatrain)
# Reads Parquet; built where Apache Arrow is (deploy/install-deps.sh --parquet).
parquet_program=server/megatrain-parquet
# Calls MPI; built where that is (deploy/install-deps.sh --mpi).
mpi_library=server/libmegatrain-mpi.so
if $tests_only; then programs=(tests/gpu/gpu_tests tests/bench/gpu/gpu_bench); fi
if [[ -z $binaries ]]; then
  cd "$source_directory"
  targets=()
  for program in "${programs[@]}"; do targets+=("//${program%/*}:${program##*/}"); done
  bazel build "${targets[@]}"
  binaries=$(bazel info bazel-bin 2>/dev/null)
fi
if ! $tests_only; then
  if [[ -x $binaries/$parquet_program ]]; then
    programs+=("$parquet_program")
  else
    echo "package: without Apache Arrow: .parquet files cannot be read with it" >&2
  fi
fi
for program in "${programs[@]}"; do
  [[ -x $binaries/$program ]] ||
    fail "$binaries/$program is not there; build it: bazel build //${program%/*}:${program##*/}"
done

version=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$source_directory/server/base/version.h")
name=megatrain-$version-linux-$(uname -m)
if $tests_only; then
  # A function of cuDNN's that is looked for by its name.
  cudnn=
  grep -q 'cudnnBackendExecute' "$binaries/${programs[0]}" || cudnn=-nocudnn
  name=megatrain-tests-$version$cudnn-linux-$(uname -m)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name
libraries=$root/lib/megatrain
licences=$root/share/licences
mkdir -p "$root/bin" "$libraries" "$licences"
executables=()
for program in "${programs[@]}"; do
  install -m 0755 "$binaries/$program" "$root/bin/"
  strip "$root/bin/${program##*/}"
  executables+=("$root/bin/${program##*/}")
done

# The libraries, with those that they need themselves. ldd's lines: "NAME => PATH (ADDRESS)".
needed=$(ldd "${executables[@]}" | grep -F '=>' | sort -u)
if grep -q 'not found' <<< "$needed"; then fail "missing here: $(grep 'not found' <<< "$needed")"; fi
declare -A bundled=()  # path -> library
while read -r library _ path _; do
  case $library in
    # glibc is the system's: its parts must be of one version.
    ld-linux*|libc.so.*|libm.so.*|libmvec.so.*|libpthread.so.*|libdl.so.*|librt.so.*|libresolv.so.*|libutil.so.*|libanl.so.*)
      continue
      ;;
    # So is the driver: its parts must be of the kernel module's version.
    libcuda.so.*|libnvidia-*) continue ;;
  esac
  # A path of its own would keep it from finding its libraries here, unless it is their directory.
  # shellcheck disable=SC2016
  if readelf -d "$path" | grep -E '\((RPATH|RUNPATH)\)' | grep -Fvq '[$ORIGIN]'; then
    fail "$path has a library path of its own"
  fi
  install -m 0644 "$(realpath "$path")" "$libraries/$library"
  bundled[${path#/usr}]=$library
done <<< "$needed"

# It takes the machine's MPI, which suits its network.
if ! $tests_only; then
  if [[ -e $binaries/$mpi_library ]]; then
    install -m 0644 "$binaries/$mpi_library" "$libraries/"
    strip --strip-unneeded "$libraries/${mpi_library##*/}"
  else
    echo "package: without MPI: a job cannot run on several processes with it" >&2
  fi
fi

# Their licences. Debian 12 installs some libraries beneath /lib, which is a link to /usr/lib.
# dpkg-query's lines: "PACKAGE[:ARCHITECTURE]: PATH"; it fails as half of the names are not known.
paths=("${!bundled[@]}")
packages=$(dpkg-query -S "${paths[@]}" "${paths[@]/#//usr}" 2>/dev/null || true)
while read -r package path; do
  package=${package%%:*}
  [[ -e $licences/$package ]] ||
    install -D -m 0644 "/usr/share/doc/$package/copyright" "$licences/$package/copyright"
  unset "bundled[${path#/usr}]"
done <<< "$packages"
# Those that deploy/install-deps.sh brought have theirs beside them.
for path in "${!bundled[@]}"; do
  texts=$(dirname "$path")/../licences
  [[ $path == /opt/megatrain/* && -d $texts ]] || continue
  package=$(basename "$(realpath "$texts/..")")
  mkdir -p "$licences/$package"
  cp --no-preserve=mode -r "$texts/." "$licences/$package/"
  unset "bundled[$path]"
done
((${#bundled[@]} == 0)) || fail "of no package, so that their licences are not known: ${bundled[*]}"
# The texts that Debian's copyright files name by their path.
cp -L --no-preserve=mode -r /usr/share/common-licenses "$licences/common-licenses"

if $tests_only; then
  mkdir -p "$root/tests/files/tests/golden"
  install -m 0755 "$source_directory/tests/gpu.sh" "$root/tests/"
  install -m 0644 "$source_directory/tests/gpu_steps.sh" "$root/tests/"
  cp -L -r --no-preserve=mode "$source_directory/tests/golden/models" "$root/tests/files/tests/golden/"
  # No suite of a GPU reads the others.
  rm -rf "$root/tests/files/tests/golden/models/"{BUILD.bazel,choices,preference}
  file=$name.tar.xz
  # Machine code repeats itself more once its calls name where they lead.
  compress=(xz -T 1)
  if [[ $(uname -m) == x86_64 ]]; then compress+=(--x86); fi
  compress+=("--lzma2=preset=${XZ_PRESET:-9}")
else
  # The pages of users, linked to each other by where they lie; //:pages names them for tests.
  (cd "$source_directory" && cp --parents --no-preserve=mode -L \
    README.md {client,deploy,server}/README.md engine/*/README.md "$root/")
  install -m 0755 "$source_directory/deploy/install.sh" "$root/deploy/"
  for part in systemd prometheus grafana slurm; do
    cp -L -r --no-preserve=mode,timestamps "$source_directory/deploy/$part" "$root/deploy/"
  done
  file=$name.tar.gz
  compress=(gzip -n)
fi

time=${SOURCE_DATE_EPOCH:-$(git -C "$source_directory" log -1 --format=%ct 2>/dev/null || date +%s)}
mkdir -p "$output"
tar -C "$work" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u+w,go-w,a+rX \
  -c "$name" | "${compress[@]}" > "$work/$file"
mv "$work/$file" "$output/$file"
echo "$output/$file"
