#!/usr/bin/env bash
# The package holds all that a bare machine lacks, finds it wherever it is unpacked, and installs.
set -euo pipefail
failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}
work=$TEST_TMPDIR/work
mkdir -p "$work"

for arguments in "--output" "--nonsense x" "--tests-only x" "--binaries $work"; do
  # shellcheck disable=SC2086
  if deploy/package.sh $arguments 2>"$work/error"; then fail "package.sh $arguments was taken"; fi
  [[ -s $work/error ]] || fail "package.sh $arguments: nothing is said"
done
if deploy/package.sh --binaries "$work" 2>"$work/error"; then fail "packed without binaries"; fi
grep -q 'bazel build //server:megatraind' "$work/error" || fail "does not say how to build"

export SOURCE_DATE_EPOCH=1700000000
package=$(deploy/package.sh --binaries "$PWD" --output "$work")
bytes=$(stat -c %s "$package")
echo "$package: $bytes bytes"
# SOURCE_DATE_EPOCH, so that the same tree gives the same bytes.
days=$(TZ=UTC tar -tvzf "$package" | awk '{ print $4 }' | sort -u)
[[ $days == 2023-11-14 ]] || fail "what is in the package is of $days"
limit=64  # MiB; Apache Arrow's libraries take 21 more
if [[ -x server/megatrain-parquet ]]; then limit=88; fi
((bytes <= limit << 20)) || fail "the package has $bytes bytes, more than $limit MiB"
mkdir "$work/a place"
tar -C "$work/a place" -xzf "$package"
root=$(echo "$work/a place"/megatrain-*)
version=$("$root/bin/megatraind" --version | cut -d ' ' -f 2)
[[ ${package##*/} == "megatrain-$version-linux-$(uname -m).tar.gz" ]] || fail "is called $package"

# All but glibc's from the package, and nothing of glibc or a driver in it.
programs=(megatraind megatrain)
if [[ -x server/megatrain-parquet ]]; then programs+=(megatrain-parquet); fi
for binary in "${programs[@]}"; do
  while read -r library _ path _; do
    case $library in
      libc.so.*|libm.so.*|ld-linux*|libresolv.so.*|librt.so.*|libdl.so.*|libpthread.so.*|libmvec.so.*) ;;
      *) [[ $path == */lib/megatrain/$library ]] || fail "$binary takes $library from $path" ;;
    esac
  done < <(ldd "$root/bin/$binary" | grep -F '=>' | sed "s|$root|PACKAGE|")
done
for library in libgrpc.so.29 libprotobuf.so.32 libdnnl.so.2 libsqlite3.so.0 libstdc++.so.6 libgomp.so.1; do
  [[ -f $root/lib/megatrain/$library ]] || fail "$library is missing"
done
for library in "$root"/lib/megatrain/*; do
  case ${library##*/} in
    ld-*|libc.so.*|libm.so.*|libpthread.so.*|libcuda.so.*|libnvidia*) fail "$library is the system's" ;;
  esac
done
for file in "$root"/bin/* "$root"/lib/megatrain/*; do
  path=$(readelf -d "$file" | sed -n -E 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]/\2/p')
  # shellcheck disable=SC2016
  case $path in
    '') [[ $file == */lib/* ]] || fail "$file has no library path" ;;
    '$ORIGIN/../lib/megatrain') ;;
    # Apache Arrow's: their own directory; their program: where they were when it was built, too.
    '$ORIGIN') [[ $file == */lib/* ]] || fail "$file looks for libraries in its own directory" ;;
    '$ORIGIN/../lib/megatrain:/'*/lib)
      [[ $file == */bin/megatrain-parquet ]] || fail "$file looks for libraries in $path" ;;
    *) fail "$file looks for libraries in $path" ;;
  esac
  newest=$(objdump -T "$file" | { grep -o 'GLIBC_[0-9.]*' || true; } | sort -u -V | tail -n 1)
  [[ $(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -n 1) == GLIBC_2.36 ]] ||
    fail "$file needs $newest, newer than Debian 12's"
done
[[ -z $(ldd "$root/bin/megatrain" | grep -E 'systemd|dnnl|sqlite') ]] || fail "the client is not thin"

# Each library's licence, and the texts it refers to.
for licence in libgrpc29 libdnnl2 libstdc++6 libsystemd0; do
  [[ -s $root/share/licences/$licence/copyright ]] || fail "no licence of $licence"
done
[[ -s $root/share/licences/common-licenses/Apache-2.0 ]] || fail "no common licences"
for file in README.md {client,deploy,server}/README.md engine/{checkpoint,data,device,job}/README.md \
  deploy/install.sh deploy/systemd/megatraind.service deploy/systemd/megatraind.yaml \
  deploy/prometheus/alert_rules.yml deploy/grafana/dashboards/megatrain.json deploy/slurm/megatrain.sbatch; do
  [[ -f $root/$file ]] || fail "$file is missing"
done

if [[ -x server/megatrain-parquet ]]; then
  [[ -s $root/share/licences/arrow/LICENSE.txt ]] || fail "no licence of Apache Arrow"
  env -i "$root/bin/megatrain-parquet" 2>/dev/null || [[ $? == 2 ]] || fail "megatrain-parquet"
fi

if [[ -e server/libmegatrain-mpi.so ]]; then
  [[ -f $root/lib/megatrain/libmegatrain-mpi.so ]] || fail "libmegatrain-mpi.so is missing"
  [[ -z $(find "$root" -name 'libmpi.so*') ]] || fail "an MPI is in the package"
fi

# It works, with nothing of the environment.
env -i "$root/bin/megatraind" init --preset llama-tiny --out "$work/model" --seed 1 >/dev/null || fail "init"
env -i "$root/bin/megatrain" version --server "unix:$work/none" >/dev/null 2>&1 || [[ $? == 6 ]] || fail "version"

# Installed from the package, and then from a build, which leaves no libraries behind.
installed=$work/installed
DESTDIR=$installed "$root/deploy/install.sh" >/dev/null
env -i "$installed/usr/local/bin/megatraind" --version >/dev/null || fail "the installed daemon does not start"
# grep -q stops reading at the first match, and in a pipe what still writes would fail.
grep -q "libdnnl.*$installed" <<<"$(ldd "$installed/usr/local/bin/megatraind")" ||
  fail "the installed daemon does not use the package's libraries"
[[ -s $installed/usr/local/share/doc/megatrain/licences/libdnnl2/copyright ]] ||
  fail "the libraries' licences are not installed"
DESTDIR=$installed deploy/install.sh --binaries "$PWD" >/dev/null
[[ ! -e $installed/usr/local/lib/megatrain ]] || fail "the package's libraries are left"

((failures == 0)) && echo "all checks passed"
