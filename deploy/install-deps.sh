#!/usr/bin/env bash
# Installs what building and running Megatrain needs, on Debian 12. Does nothing, and needs neither
# root nor a network, when everything is there.
#
#   deploy/install-deps.sh [--tests] [--cuda] [--mpi] [--parquet]
#
#   --tests  what `bazel test` and the benchmarks need too, MPI and Slurm among it. Services that
#            come with that (prometheus, munge, slurmctld, slurmd) are neither started nor enabled
#   --cuda   headers with which cuDNN is used where CUDA's toolkit is: cudnn-frontend's, and cuDNN's
#            own if the toolkit has none; beneath /opt/megatrain, where the build looks for them
#   --mpi    Open MPI and its headers, with which jobs run on several processes
#   --parquet  Apache Arrow's C++ libraries, with which .parquet files are read, and their headers;
#            beneath /opt/megatrain too. Debian 12 has none
#
# A Bazel server that runs here is ended when anything is installed: it looks for MPI and the rest of
# what may be missing only when it starts.
set -euo pipefail

tests=false
cuda=false
mpi=false
parquet=false
for argument in "$@"; do
  case $argument in
    --tests) tests=true ;;
    --cuda) cuda=true ;;
    --mpi) mpi=true ;;
    --parquet) parquet=true ;;
    *)
      echo "usage: deploy/install-deps.sh [--tests] [--cuda] [--mpi] [--parquet]" >&2
      exit 2
      ;;
  esac
done

sudo=()
need_root() {  # FOR
  ((EUID != 0)) || return 0
  if ! command -v sudo >/dev/null; then
    echo "install-deps: run as root to install: $1" >&2
    exit 1
  fi
  sudo=(sudo)
}

installed=false
end_server() {
  $installed && command -v bazel >/dev/null || return 0
  (cd "$(dirname "$0")/.." && bazel shutdown)
}

# Parts of one of Python's packages, beneath /opt/megatrain/NAME: of this version, whose file has
# this SHA-256. A PART is PREFIX:FOLDER: what has a name in the file that begins with PREFIX comes
# into FOLDER, under the rest of its name. No Python package is installed.
install_parts() {  # NAME VERSION SHA256 URL PART...
  local place=/opt/megatrain/$1 work
  if [[ $(cat "$place/VERSION" 2>/dev/null) == "$2" ]]; then
    echo "install-deps: $1 $2 is installed"
    return
  fi
  need_root "$1 $2"
  echo "install-deps: installing $1 $2"
  work=$(mktemp -d)
  python3 - "$4" "$3" "$work" "${@:5}" <<'PYTHON' || { rm -rf "$work"; exit 1; }
import hashlib, os, sys, urllib.request, zipfile

url, sha256, work, *parts = sys.argv[1:]
wheel = os.path.join(work, "wheel")
digest = hashlib.sha256()
try:
    with urllib.request.urlopen(url, timeout=60) as source, open(wheel, "wb") as file:
        while block := source.read(1 << 20):
            digest.update(block)
            file.write(block)
except OSError as error:
    sys.exit(f"install-deps: {url}: {error}")
if digest.hexdigest() != sha256:
    sys.exit(f"install-deps: {url} has the SHA-256 {digest.hexdigest()}, not {sha256}")
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        for prefix, folder in (part.split(":") for part in parts):
            if not name.startswith(prefix) or name.endswith("/"):
                continue
            rest = name[len(prefix):] if prefix.endswith("/") else os.path.basename(name)
            path = os.path.join(work, "package", folder, rest)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.read(name))
PYTHON
  echo "$2" > "$work/package/VERSION"
  chmod -R u=rwX,go=rX "$work/package"
  "${sudo[@]}" rm -rf "$place.new"
  "${sudo[@]}" mkdir -p "$(dirname "$place")"
  "${sudo[@]}" cp -r "$work/package" "$place.new"
  "${sudo[@]}" chown -R 0:0 "$place.new"
  "${sudo[@]}" rm -rf "$place"
  "${sudo[@]}" mv "$place.new" "$place"
  rm -rf "$work"
  installed=true
}

install_cuda_headers() {
  local home=${CUDA_HOME:-/usr/local/cuda} packages=https://files.pythonhosted.org/packages directory
  if [[ ! -x $home/bin/nvcc ]]; then
    echo "install-deps: CUDA 13's toolkit is not in $home: nothing uses cuDNN's headers without it" >&2
  fi
  install_parts cudnn-frontend 1.32.0 \
    c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0 \
    "$packages/11/02/660e2dd9f9d9f940e1641443771730612c3aadaafbc5ef7a93cc313d519d/nvidia_cudnn_frontend-1.32.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl" \
    include/:include
  for directory in "$home/include" /usr/local/include /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
    if [[ -f $directory/cudnn.h ]]; then
      echo "install-deps: cuDNN's own headers are in $directory"
      return
    fi
  done
  # 349 MiB, for the sake of its headers.
  install_parts cudnn 9.19.0.56 \
    d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf \
    "$packages/a3/22/0b4b932655d17a6da1b92fa92ab12844b053bb2ac2475e179ba6f043da1e/nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_x86_64.whl" \
    nvidia/cudnn/include/:include
}

# Debian 12's C++ compiler and libraries suit them: manylinux_2_28 needs glibc 2.28 and the C++11 ABI.
install_arrow() {
  if [[ $(uname -m) != x86_64 ]]; then
    echo "install-deps: Apache Arrow's libraries are known for x86-64 only" >&2
    exit 1
  fi
  install_parts arrow 26.0.1 \
    39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c \
    "https://files.pythonhosted.org/packages/e6/87/6bf528898ef82dc3e8d762cbec7b42ae127a543895cc78c5df26a1f497f5/pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl" \
    pyarrow/include/arrow/:include/arrow pyarrow/include/parquet/:include/parquet \
    pyarrow/libarrow.so.:lib pyarrow/libparquet.so.:lib \
    pyarrow-26.0.1.dist-info/licenses/:licences
}

# Needs python3 and certificates.
download() {
  if $cuda; then install_cuda_headers; fi
  if $parquet; then install_arrow; fi
}

packages=(
  ca-certificates python3
  # The build.
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto g++
  # The libraries: third_party/system.BUILD gives each a target.
  libabsl-dev libcivetweb-dev libcli11-dev libcsv-dev libdnnl-dev libgrpc++-dev libhwy-dev libicu-dev
  libpcre2-dev libprotobuf-dev libsimdjson-dev libsqlite3-dev libssl-dev libsystemd-dev libxxhash-dev
  libyaml-cpp-dev libzstd-dev nlohmann-json3-dev prometheus-cpp-dev zlib1g-dev
  # The compilers of the API's protos.
  protobuf-compiler protobuf-compiler-grpc
)
# systemd: for systemd-analyze and systemd-sysusers, which look at the unit and its user. libpmix-dev:
# for libpmix.so, which Slurm opens by this name.
if $tests; then
  packages+=(libbenchmark-dev libgmock-dev libgtest-dev prometheus systemd
    iproute2 libpmix-dev munge slurm-wlm)
fi
if $tests || $mpi; then packages+=(libopenmpi-dev libpmix-dev openmpi-bin); fi

is_installed() {  # PACKAGE
  [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null || true) == ii* ]]
}
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install-deps: all ${#packages[@]} packages are installed"
  download
  end_server
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

need_root "${missing[*]}"

# The tests start programs of their own; services of this machine are not asked for. Those that are
# here already stay as they are.
units=()
for package in prometheus munge slurmctld slurmd; do
  is_installed "$package" || units+=("$package.service")
done
policy=/usr/sbin/policy-rc.d  # Debian starts no service of which it says 101
quiet_services() {
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\ncase " %s " in *" ${1%%%%.service}.service "*) exit 101 ;; esac\n' "${units[*]}" |
      "${sudo[@]}" install -m 755 /dev/stdin "$policy"
    trap '"${sudo[@]}" rm -f "$policy"; disable_services' EXIT
  else
    trap disable_services EXIT
  fi
}
disable_services() {
  local unit
  command -v systemctl >/dev/null || return 0
  for unit in "${units[@]}"; do
    "${sudo[@]}" systemctl disable --quiet "$unit" 2>/dev/null || true
  done
}
if $tests && ((${#units[@]} > 0)); then quiet_services; fi

echo "install-deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -q
"${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
installed=true
download
end_server
