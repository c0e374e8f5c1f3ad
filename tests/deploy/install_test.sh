#!/usr/bin/env bash
# The service's files: installed where they belong, sound in systemd's own eyes, and as closed as is
# promised. Where systemd-analyze is missing its checks are left out, and that is said.
set -euo pipefail
failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

root=$TEST_TMPDIR/root
binaries=$TEST_TMPDIR/binaries
unit=deploy/systemd/megatraind.service
mkdir -p "$binaries/server"

# Not built yet: refused, and nothing is installed.
if DESTDIR=$root deploy/install.sh --binaries "$binaries" 2>"$TEST_TMPDIR/error"; then
  fail "installed without a binary"
fi
grep -q 'bazel build' "$TEST_TMPDIR/error" || fail "does not say what to do without a binary"
[[ ! -e $root ]] || fail "something was installed without a binary"
for arguments in "--binaries" "--nonsense" "more"; do
  code=0
  # shellcheck disable=SC2086
  DESTDIR=$root deploy/install.sh $arguments 2>/dev/null || code=$?
  ((code == 2)) || fail "install.sh $arguments: exit code $code, not 2"
done

printf '#!/bin/sh\n' >"$binaries/server/megatraind"
chmod +x "$binaries/server/megatraind"
DESTDIR=$root deploy/install.sh --binaries "$binaries"
check() {  # MODE PATH
  [[ -f $root$2 ]] || { fail "$2 is missing"; return; }
  [[ $(stat -c %a "$root$2") == "$1" ]] || fail "$2 has mode $(stat -c %a "$root$2"), not $1"
}
check 755 /usr/local/bin/megatraind
check 644 /etc/systemd/system/megatraind.service
check 644 /usr/lib/sysusers.d/megatrain.conf
check 644 /usr/lib/tmpfiles.d/megatrain.conf
check 644 /etc/megatrain/megatraind.yaml
for page in README.md {client,deploy,server}/README.md engine/{checkpoint,data,device,job}/README.md; do
  check 644 "/usr/local/share/doc/megatrain/$page"
done

# What is not always built is installed where it was, and goes where it was not.
mkdir -p "$binaries/client"
for program in client/megatrain server/megatrain-parquet; do
  printf '#!/bin/sh\n' >"$binaries/$program"
  chmod +x "$binaries/$program"
done
echo library >"$binaries/server/libmegatrain-mpi.so"
DESTDIR=$root deploy/install.sh --binaries "$binaries" >/dev/null
check 755 /usr/local/bin/megatrain
check 755 /usr/local/bin/megatrain-parquet
check 644 /usr/local/bin/libmegatrain-mpi.so
rm "$binaries/server/megatrain-parquet" "$binaries/server/libmegatrain-mpi.so"
DESTDIR=$root deploy/install.sh --binaries "$binaries" >/dev/null
for gone in megatrain-parquet libmegatrain-mpi.so; do
  [[ ! -e $root/usr/local/bin/$gone ]] || fail "$gone is left behind"
done

# A configuration is its owner's.
echo "threads: 3" >"$root/etc/megatrain/megatraind.yaml"
DESTDIR=$root deploy/install.sh --binaries "$binaries" >/dev/null
[[ $(cat "$root/etc/megatrain/megatraind.yaml") == "threads: 3" ]] ||
  fail "an existing configuration was replaced"

# Compiled kernels are run: this must never be switched on.
! grep -q '^MemoryDenyWriteExecute' "$unit" || fail "MemoryDenyWriteExecute is set"
# It takes openat2 away, without which no path is beneath a root.
! grep -q '^RestrictSUIDSGID' "$unit" || fail "RestrictSUIDSGID is set"
for needed in Type=notify WatchdogSec= LimitMEMLOCK=infinity RestartPreventExitStatus=2 \
  StartLimitIntervalSec=0 'ExecReload=kill -HUP $MAINPID' MemoryMax= MemorySwapMax=0 \
  'After=network-online.target nss-user-lookup.target local-fs.target remote-fs.target nvidia-persistenced.service' \
  RuntimeDirectoryMode=0750 \
  'DeviceAllow=char-nvidia rw' 'DeviceAllow=char-nvidia-frontend rw'; do
  grep -q "^$needed" "$unit" || fail "the unit has no $needed"
done

if command -v systemd-analyze >/dev/null; then
  # With a binary and a page that are here.
  checked=$TEST_TMPDIR/megatraind.service
  sed "s|/usr/local/bin/megatraind|/bin/true|; /^Documentation=/d" "$unit" >"$checked"
  said=$(systemd-analyze verify "$checked" 2>&1) || fail "systemd-analyze verify: $said"
  [[ -z $said ]] || fail "systemd-analyze verify says: $said"
  systemd-analyze security --offline=true --threshold=30 --no-pager "$checked" >"$TEST_TMPDIR/security" ||
    fail "systemd-analyze security: $(tail -n 1 "$TEST_TMPDIR/security")"
  tail -n 1 "$TEST_TMPDIR/security"
else
  echo "systemd-analyze is missing: the unit was not checked by it"
fi
if command -v systemd-sysusers >/dev/null; then
  mkdir -p "$root/etc"
  systemd-sysusers --root="$root" "$root"/usr/lib/sysusers.d/megatrain.conf || fail "systemd-sysusers"
  grep -q '^megatrain:' "$root/etc/passwd" || fail "no user was made"
fi

((failures == 0)) && echo "all checks passed"
