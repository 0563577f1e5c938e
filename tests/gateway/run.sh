#!/usr/bin/env bash
# Runs Python tests against real processes, in an environment of its own under build/.
#
#   tests/gateway/run.sh clients_test.py            with the binaries of build/release
#   SHARDLINE_BIN=DIR tests/gateway/run.sh FILE...  with others
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case "${1:-}" in
  ""|-h|--help) sed -n '2,5p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
esac

wanted=tests/gateway/requirements.txt
venv=build/gateway-venv
(
  flock 9  # Tests may run beside each other.
  if ! cmp -s "$wanted" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$venv/installed.txt"
  fi
) 9>build/gateway-venv.lock

files=()
for name in "$@"; do files+=("tests/gateway/$name"); done
exec "$venv/bin/python" -B -m pytest -q -p no:cacheprovider "${files[@]}"
