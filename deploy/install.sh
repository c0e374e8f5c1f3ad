#!/usr/bin/env bash
# Installs the daemon as a service of this machine: binaries, unit, user, directories, configuration.
# To be run as root, from an unpacked package (deploy/package.sh) or after
#   bazel build //server:megatraind //client:megatrain
#
#   deploy/install.sh [--binaries DIRECTORY]    default: the package's, or bazel-bin of this tree
#
# Installed again it replaces what it installed, but never the configuration. DESTDIR=DIRECTORY
# installs beneath it and changes nothing of the running system: for packages.
set -euo pipefail
source_directory=$(cd "$(dirname "$0")/.." && pwd)
binaries=$source_directory/bazel-bin
destination=${DESTDIR:-}

usage() {
  echo "usage: deploy/install.sh [--binaries DIRECTORY]" >&2
  exit 2
}
while (($#)); do
  case $1 in
    --binaries)
      (($# >= 2)) || usage
      binaries=$2
      shift 2
      ;;
    *) usage ;;
  esac
done
if [[ -z $destination && $EUID -ne 0 ]]; then
  echo "install: run as root, or with DESTDIR=DIRECTORY to install beneath it" >&2
  exit 1
fi

daemon=$binaries/server/megatraind
client=$binaries/client/megatrain
libraries=
if [[ $binaries == "$source_directory/bazel-bin" && -x $source_directory/bin/megatraind ]]; then
  daemon=$source_directory/bin/megatraind
  client=$source_directory/bin/megatrain
  libraries=$source_directory/lib/megatrain
fi
if [[ ! -x $daemon ]]; then
  echo "install: $daemon is not there; build it: bazel build //server:megatraind" >&2
  exit 1
fi

place() {  # MODE SOURCE TARGET
  install -D -m "$1" "$2" "$destination$3"
  echo "$destination$3"
}
# A package's libraries lie where only these binaries look (deploy/BUILD.bazel, library_path); those
# of a package installed before are not left behind.
rm -rf "$destination/usr/local/lib/megatrain"
if [[ -n $libraries ]]; then
  for library in "$libraries"/*; do
    place 0644 "$library" "/usr/local/lib/megatrain/${library##*/}"
  done
  mkdir -p "$destination/usr/local/share/doc/megatrain"
  cp -r "$source_directory/share/licences" "$destination/usr/local/share/doc/megatrain/"
fi
place 0755 "$daemon" /usr/local/bin/megatraind
# Reads Parquet, where it was built.
parquet=$(dirname "$daemon")/megatrain-parquet
if [[ -x $parquet ]]; then
  place 0755 "$parquet" /usr/local/bin/megatrain-parquet
else
  rm -f "$destination/usr/local/bin/megatrain-parquet"  # its libraries are gone
fi
# Calls MPI, where it was built; a package has it among its libraries.
mpi=$(dirname "$daemon")/libmegatrain-mpi.so
if [[ -e $mpi ]]; then
  place 0644 "$mpi" /usr/local/bin/libmegatrain-mpi.so
else
  rm -f "$destination/usr/local/bin/libmegatrain-mpi.so"
fi
if [[ -x $client ]]; then place 0755 "$client" /usr/local/bin/megatrain; fi
# The pages of users, as they lie in a package (deploy/package.sh).
for page in "$source_directory"/{README.md,{client,deploy,server}/README.md,engine/*/README.md}; do
  place 0644 "$page" "/usr/local/share/doc/megatrain/${page#"$source_directory/"}"
done
systemd=$source_directory/deploy/systemd
place 0644 "$systemd/megatraind.service" /etc/systemd/system/megatraind.service
place 0644 "$systemd/megatrain.sysusers" /usr/lib/sysusers.d/megatrain.conf
place 0644 "$systemd/megatrain.tmpfiles" /usr/lib/tmpfiles.d/megatrain.conf
configuration=/etc/megatrain/megatraind.yaml
if [[ -e $destination$configuration ]]; then
  echo "$destination$configuration is kept"
else
  place 0644 "$systemd/megatraind.yaml" "$configuration"
fi
[[ -z $destination ]] || exit 0

systemd-sysusers /usr/lib/sysusers.d/megatrain.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/megatrain.conf
if [[ -d /run/systemd/system ]]; then systemctl daemon-reload; fi
cat <<'TEXT'

Look at /etc/megatrain/megatraind.yaml, host_memory first, then start the daemon:
  systemctl enable --now megatraind
  systemctl status megatraind
TEXT
