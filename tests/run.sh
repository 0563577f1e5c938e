#!/usr/bin/env bash
# Builds Shardline and passes all its tests. Packages: deploy/install_packages.sh.
#
#   tests/run.sh            everything that CI runs
#   tests/run.sh --quick    the release build's tests only
#   tests/run.sh -R NAME    as --quick, only tests whose name matches (any ctest option)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/build_env.sh"
cd "$root"

quick=false
ctest_args=()
case "${1:-}" in
  -h|--help) sed -n '2,6p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
  --quick) quick=true; shift ;;
esac
if [ $# -gt 0 ]; then
  quick=true
  ctest_args=("$@")
fi

step() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

step "test model"
deploy/fetch_model.sh
deploy/fetch_templates.sh

if ! $quick; then
  step "format"
  git ls-files '*.h' '*.cc' | xargs clang-format --dry-run --Werror
fi

step "build release"
build release all

if ! $quick; then
  step "every header compiles alone"
  build release all_verify_interface_header_sets

  # The sanitizers take the rooms that parse foreign bytes, keep books or share memory between
  # threads. gRPC and protobuf of Debian are not instrumented, so rooms on top of them stay out.
  step "address and undefined-behaviour sanitizers, fuzz smoke"
  build asan sanitized_tests
  (cd build/asan && ctest --output-on-failure -j "$jobs" -L 'sanitized|fuzz')

  step "thread sanitizer"
  build tsan threaded_tests
  (cd build/tsan && ctest --output-on-failure -L threads)

  step "gcc builds the libraries and binaries without a warning"
  build dev binaries

fi

step "tests"
cd build/release
ctest --output-on-failure --no-tests=error -LE gpu "${ctest_args[@]}"
