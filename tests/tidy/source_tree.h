#pragma once

// The project's own files, read once, for the tests that look at the tree itself.

#include <string>
#include <string_view>
#include <vector>

namespace shardline::testing {

struct SourceFile {
  std::string path;  // From the project's root, "node/stage/stage_core.h".
  std::vector<std::string> lines;

  std::string_view folder() const {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string_view()
                                      : std::string_view(path).substr(0, slash);
  }
};

// Every .h, .cc, .cu, .cuh, .proto, .py, .sh and CMakeLists.txt below the rooms, sorted by path.
// REQUIRES: the working directory is the project's root.
const std::vector<SourceFile>& SourceTree();

bool HasEnding(std::string_view path, std::string_view ending);
bool IsCpp(std::string_view path);

// True if `path` is `prefix` or lies below it.
bool IsBelow(std::string_view path, std::string_view prefix);

// What stands between the quotes or brackets of an #include line, with them; empty otherwise.
std::string_view IncludeOf(std::string_view line);

}  // namespace shardline::testing
