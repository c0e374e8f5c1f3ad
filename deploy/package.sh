#!/usr/bin/env bash
# Makes megatrain-VERSION-linux-ARCHITECTURE.tar.gz: the daemon and the client with every library
# they need beside glibc's own and the GPU driver's, for machines that have neither Bazel nor
# Debian's libraries. It runs from wherever it is unpacked; deploy/install.sh in it installs it.
#
#   deploy/package.sh [--output DIRECTORY] [--binaries DIRECTORY] [--tests TARGET]...
#
#   --output    where the file is put; default: here
#   --binaries  built before, as in bazel-bin; default: built now
#   --tests     a test or benchmark to carry along, as in //tests/bench:kernel_bench; for machines
#               that have a device but no build: tests/run.sh in the package runs them
#
# glibc must be as new there as here: Debian 12's is 2.36. The same tree gives the same bytes.
set -euo pipefail
source_directory=$(cd "$(dirname "$0")/.." && pwd)
output=$PWD
binaries=
tests=()

usage() {
  echo "usage: deploy/package.sh [--output DIRECTORY] [--binaries DIRECTORY] [--tests TARGET]..." >&2
  exit 2
}
fail() {
  echo "package: $*" >&2
  exit 1
}
while (($#)); do
  (($# >= 2)) || usage
  case $1 in
    --output) output=$(realpath -m "$2") ;;
    --binaries) binaries=$(realpath -m "$2") ;;
    --tests)
      [[ $2 =~ ^//[^:]+:[^:]+$ ]] || fail "--tests $2: not a target such as //tests/bench:kernel_bench"
      tests+=("$2")
      ;;
    *) usage ;;
  esac
  shift 2
done

if [[ -z $binaries ]]; then
  cd "$source_directory"
  bazel build //server:megatraind //client:megatrain
  binaries=$(bazel info bazel-bin 2>/dev/null)
  # A test is linked with this tree's libraries in it, as the binaries are.
  if ((${#tests[@]} > 0)); then bazel build --dynamic_mode=off "${tests[@]}"; fi
fi
for binary in server/megatraind client/megatrain; do
  [[ -x $binaries/$binary ]] || fail "$binaries/$binary is not there; build it: bazel build //${binary/\//:}"
done

version=$("$binaries/server/megatraind" --version | cut -d ' ' -f 2)
name=megatrain-$version-linux-$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name
libraries=$root/lib/megatrain
licences=$root/share/licences
mkdir -p "$root/bin" "$libraries" "$licences"

place_binary() {  # SOURCE TARGET
  install -D -m 0755 "$1" "$2"
  strip "$2"
}
place_binary "$binaries/server/megatraind" "$root/bin/megatraind"
place_binary "$binaries/client/megatrain" "$root/bin/megatrain"
for target in "${tests[@]}"; do
  path=${target#//}
  path=${path/://}
  [[ -x $binaries/$path ]] || fail "$target: $binaries/$path is not there"
  place_binary "$binaries/$path" "$root/tests/$path"
  # What it reads. Its own link is in there too, and its libraries: those it does not need.
  if [[ -d $binaries/$path.runfiles/megatrain ]]; then
    mkdir -p "$root/tests/files"
    tar -C "$binaries/$path.runfiles/megatrain" --dereference --exclude="./$path" --exclude='_solib_*' \
      -c . | tar -C "$root/tests/files" -x
  fi
done
if ((${#tests[@]} > 0)); then
  cat > "$root/tests/run.sh" <<'SCRIPT'
#!/usr/bin/env bash
# Runs the tests and benchmarks that this package carries: all, or those whose path holds a word;
# with --under as arguments of a command, as in --under "compute-sanitizer --error-exitcode 9".
#   tests/run.sh [--under COMMAND] [WORD]
set -euo pipefail
under=()
if [[ ${1:-} == --under ]]; then
  read -ra under <<< "${2:?tests/run.sh: --under wants a command}"
  shift 2
fi
cd "$(dirname "$0")/files"
export LD_LIBRARY_PATH=$PWD/../../lib/megatrain
failed=0
tests=$(grep -F -- "${1:-}" ../list) || { echo "no test has '$1' in its path" >&2; exit 2; }
while read -r test; do
  echo "== $test"
  "${under[@]}" "../$test" || { echo "FAILED: $test"; failed=1; }
done <<< "$tests"
exit $failed
SCRIPT
  chmod 0755 "$root/tests/run.sh"
  mkdir -p "$root/tests/files"
  printf '%s\n' "${tests[@]#//}" | tr : / > "$root/tests/list"
fi

# The libraries, with those that they need themselves. ldd's lines: "NAME => PATH (ADDRESS)".
executables=("$root/bin/megatraind" "$root/bin/megatrain")
for target in "${tests[@]}"; do
  path=${target#//}
  executables+=("$root/tests/${path/://}")
done
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
  # A path of its own would keep it from finding its libraries here.
  if readelf -d "$path" | grep -Eq '\((RPATH|RUNPATH)\)'; then fail "$path has a library path of its own"; fi
  install -m 0644 "$(realpath "$path")" "$libraries/$library"
  bundled[${path#/usr}]=$library
done <<< "$needed"

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
((${#bundled[@]} == 0)) || fail "of no package, so that their licences are not known: ${bundled[*]}"
# The texts that Debian's copyright files name by their path.
cp -L --no-preserve=mode -r /usr/share/common-licenses "$licences/common-licenses"

cp "$source_directory/README.md" "$root/"
mkdir -p "$root/deploy"
install -m 0755 "$source_directory/deploy/install.sh" "$root/deploy/"
for part in systemd prometheus grafana; do
  cp -L -r --no-preserve=mode,timestamps "$source_directory/deploy/$part" "$root/deploy/"
done

time=${SOURCE_DATE_EPOCH:-$(git -C "$source_directory" log -1 --format=%ct 2>/dev/null || date +%s)}
mkdir -p "$output"
tar -C "$work" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u+w,go-w,a+rX \
  -c "$name" | gzip -n > "$work/package.tar.gz"
mv "$work/package.tar.gz" "$output/$name.tar.gz"
echo "$output/$name.tar.gz"
