#!/usr/bin/env bash
# Installs what building and running Megatrain needs, on Debian 12. Does nothing, and needs neither
# root nor a network, when everything is there.
#
#   deploy/install-deps.sh [--tests]     --tests: what `bazel test` and the benchmarks need too
set -euo pipefail

tests=false
for argument in "$@"; do
  if [[ $argument != --tests ]]; then
    echo "usage: deploy/install-deps.sh [--tests]" >&2
    exit 2
  fi
  tests=true
done

packages=(
  # The build.
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto g++
  # The libraries: third_party/system.BUILD gives each a target.
  libabsl-dev libcivetweb-dev libcli11-dev libdnnl-dev libgrpc++-dev libhwy-dev libicu-dev
  libpcre2-dev libprotobuf-dev libsimdjson-dev libsqlite3-dev libssl-dev libsystemd-dev libxxhash-dev
  libyaml-cpp-dev nlohmann-json3-dev prometheus-cpp-dev
  # The compilers of the API's protos.
  protobuf-compiler protobuf-compiler-grpc
)
# systemd: for systemd-analyze and systemd-sysusers, which look at the unit and its user.
if $tests; then packages+=(libbenchmark-dev libgmock-dev libgtest-dev prometheus systemd); fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $status == ii* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install-deps: all ${#packages[@]} packages are installed"
  exit 0
fi

system="an unknown system"
if [[ -r /etc/os-release ]]; then
  system=$(. /etc/os-release && echo "${ID:-?} ${VERSION_ID:-?}")
fi
if [[ $system != "debian 12" ]]; then
  echo "install-deps: this is $system; only Debian 12 is supported." >&2
  echo "install-deps: elsewhere, install the equivalents of: ${missing[*]}" >&2
  exit 1
fi

sudo=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: run as root to install: ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo)
fi

# The tests want the program prometheus; a service that listens on this machine is not asked for.
unit=prometheus.service
if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
  "${sudo[@]}" systemctl mask --runtime --quiet "$unit"
  trap '"${sudo[@]}" systemctl unmask --runtime --quiet "$unit"; "${sudo[@]}" systemctl disable --quiet "$unit" || true' EXIT
fi

echo "install-deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -q
"${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
