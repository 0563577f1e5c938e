#!/usr/bin/env bash
# Installs what a bare Debian 12 needs to build, test and run Shardline.
# Asks for nothing that is already there; needs root (or sudo) only when something is missing.
set -euo pipefail

packages=(
  build-essential clang clang-format cmake ninja-build ccache pkg-config lld libclang-rt-14-dev
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libhwy-dev libsqlite3-dev libpcre2-dev libcli11-dev libspdlog-dev nlohmann-json3-dev
  libyaml-cpp-dev libxxhash-dev libgtest-dev libgmock-dev libbenchmark-dev libssl-dev
  prometheus-cpp-dev spin python3 python3-pip python3-venv ca-certificates
  libboost1.81-dev curl chromium
)

case "${1:-}" in
  -h|--help)
    echo "usage: deploy/install_packages.sh        install the Debian packages Shardline needs"
    echo "       deploy/install_packages.sh --list print them"
    exit 0 ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  "") ;;
  *) echo "install_packages.sh: unknown option '$1'; try --help" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all ${#packages[@]} are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_packages.sh: not root and no sudo; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
