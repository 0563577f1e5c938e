#!/usr/bin/env bash
# The page in a real browser: Debian's chromium, driven by Playwright from PyPI.
#
#   tests/web/run.sh page       against a stub that says what each test needs
#   tests/web/run.sh cluster    against a coordinator and nodes of build/release/bin
#   tests/web/run.sh page -k X  any option of pytest
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"

what="${1:-}"
case "$what" in
  page|cluster) shift ;;
  *) sed -n '2,6p' "$0" | sed 's/^# \{0,1\}//'; [ "$what" = --help ] && exit 0; exit 2 ;;
esac

chromium="${SHARDLINE_CHROMIUM:-$(command -v chromium || true)}"
[ -x "$chromium" ] || {
  echo "tests/web: no chromium here; deploy/install_packages.sh installs it" >&2
  exit 1
}

# One virtual environment a list of packages: a changed list makes a new one.
pins="$(sha256sum "$here/requirements.txt" | cut -c1-12)"
venv="$root/build/web-venv-$pins"
if [ ! -f "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  touch "$venv/ready"
fi

export SHARDLINE_CHROMIUM="$chromium" PYTHONDONTWRITEBYTECODE=1
cd "$here"
if [ "$what" = page ]; then
  exec "$venv/bin/python" -m pytest -q -p no:cacheprovider --ignore=test_cluster_e2e.py "$@"
else
  exec "$venv/bin/python" -m pytest -q -p no:cacheprovider test_cluster_e2e.py "$@"
fi
