# Sourced by the scripts that build: where they are, and a compiler cache that also serves
# precompiled headers and clones in other folders.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS="pch_defines,time_macros,include_file_mtime,include_file_ctime"
jobs="${SHARDLINE_BUILD_JOBS:-$(nproc)}"

# build PRESET TARGET...: configures once, builds, shows the compiler's words only on failure.
build() {
  local preset="$1"
  shift
  local dir="$root/build/$preset"
  [ -f "$dir/build.ninja" ] || (cd "$root" && cmake --preset "$preset" >"$dir.configure.log" 2>&1) || {
    cat "$dir.configure.log" >&2
    return 1
  }
  cmake --build "$dir" -j "$jobs" --target "$@"
}
mkdir -p "$root/build"
