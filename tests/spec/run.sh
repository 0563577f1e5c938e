#!/usr/bin/env bash
# Checks the protocol's models with Spin: what must hold does, and every guard that is taken out is
# missed. The runs are those of runs.txt.
#
#   tests/spec/run.sh          the small ones, a minute on two cores
#   tests/spec/run.sh --full   also 3 epochs x 2 steps: half an hour and 10 GiB of memory
#   tests/spec/run.sh --trail MODEL FLAGS...   one run, with the steps that lead to its error
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for tool in spin gcc; do
  command -v "$tool" >/dev/null || {
    echo "run.sh: no $tool; see deploy/install_packages.sh" >&2
    exit 2
  }
done

# check FOLDER SET MODEL OPTIMISE FLAGS...: leaves pan's words in FOLDER/log. Two small runs at once
# take two GiB at most; the full ones compress states and take what SHARDLINE_SPEC_MIB allows.
check() {
  local folder="$1" set="$2" model="$3" optimise="$4"
  shift 4
  mkdir -p "$folder"
  cp "$here/$model.pml" "$folder/model.pml"
  cd "$folder"
  local compile=("$optimise" -DMEMLIM=900) table=-w20 ends=-E
  [ "$set" = small ] || compile=(-O2 -DHC4 "-DMEMLIM=${SHARDLINE_SPEC_MIB:-16000}") table=-w28
  [[ "$*" != *QUIESCE* ]] || ends=""
  spin -a "$@" model.pml >log 2>&1 || return 0
  gcc "${compile[@]}" -w -DSAFETY -DVECTORSZ=2048 -o pan pan.c >>log 2>&1 || return 0
  ./pan $ends -m1000000 "$table" >>log 2>&1 || true
}

# verdict LOG: holds, breaks, or why there is none.
verdict() {
  if grep -q 'assertion violated' "$1" && ! grep -q 'invalid array index' "$1"; then
    echo breaks
  elif grep -q 'errors: 0' "$1" &&
    ! grep -qE 'max search depth too small|out of memory|resource limit' "$1"; then
    echo holds
  else
    echo unknown
  fi
}

# line NUMBER SET MODEL EXPECT WHY : FLAGS -> one line of the table; fails if it is not as expected.
line() {
  local number="$1" set="$2" model="$3" expect="$4" why="${5%% : *}" flags="${5#* : }"
  local folder="$work/$number" optimise=-O1
  [ "$expect" = holds ] || optimise=-O0  # Over in no time: the compiler is what takes long.
  # shellcheck disable=SC2086  # Flags are words.
  check "$folder" "$set" "$model" "$optimise" $flags
  local got want="$expect" result
  got="$(verdict "$folder/log")"
  [ "$expect" != seen ] || want=breaks
  result="$expect"
  [ "$got" = "$want" ] || result="WRONG: $got, not $expect"
  printf '%-8s %-62s %12s %8s s  %s\n' "$model" "$why" \
    "$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$folder/log")" \
    "$(sed -n 's/^pan: elapsed time \([0-9.e-]*\) seconds.*/\1/p' "$folder/log")" "$result"
  if [ "$got" != "$want" ]; then
    echo "  $model $flags"
    grep -E 'Error|error:|violated|invalid|resource|memory' "$folder/log" | sed 's/^/  /' || true
    return 1
  fi
  rm -rf "$folder"
}

sets=small
case "${1:-}" in
  "") ;;
  --full) sets='small|full' ;;
  --trail)
    shift
    model="$1"
    shift
    check "$work/trail" small "$model" -O1 "$@"
    cat "$work/trail/log"
    cd "$work/trail"
    [ ! -f model.pml.trail ] || spin -t -p "$@" model.pml
    exit 0 ;;
  -h|--help) sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
  *) echo "run.sh: unknown option '$1'; try --help" >&2; exit 2 ;;
esac

export here work
export -f check verdict line
printf '%-8s %-62s %12s %8s    %s\n' model configuration states time result
failed=0
grep -E "^($sets) " "$here/runs.txt" | nl -w1 -s' ' |
  while read -r number set model expect rest; do
    printf '%s\0' "$number" "$set" "$model" "$expect" "$rest"
  done |
  xargs -0 -n 5 -P "${SHARDLINE_SPEC_JOBS:-2}" bash -c 'set -uo pipefail; line "$@"' line || failed=1
[ "$failed" = 0 ] || { echo "run.sh: a run did not end as runs.txt says" >&2; exit 1; }
echo "all $(grep -cE "^($sets) " "$here/runs.txt") runs end as expected"
