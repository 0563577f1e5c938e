#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace shardline::testing {
namespace {

constexpr std::string_view kRooms[] = {"base", "proto",       "model", "kernels",
                                       "node", "coordinator", "tests", "deploy"};

bool IsSource(std::string_view path) {
  constexpr std::string_view kEndings[] = {".h",     ".cc", ".cu", ".cuh",
                                           ".proto", ".py", ".sh", "CMakeLists.txt"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [path](std::string_view ending) { return HasEnding(path, ending); });
}

SourceFile Read(const std::filesystem::path& path) {
  SourceFile file{.path = path.generic_string(), .lines = {}};
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) file.lines.push_back(std::move(line));
  return file;
}

std::vector<SourceFile> ReadTree() {
  std::vector<SourceFile> files;
  for (const std::string_view room : kRooms) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(room)) {
      if (entry.is_regular_file() && IsSource(entry.path().generic_string())) {
        files.push_back(Read(entry.path()));
      }
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace

const std::vector<SourceFile>& SourceTree() {
  static const auto* const files = new std::vector<SourceFile>(ReadTree());
  return *files;
}

bool HasEnding(std::string_view path, std::string_view ending) { return path.ends_with(ending); }

bool IsCpp(std::string_view path) {
  return HasEnding(path, ".h") || HasEnding(path, ".cc") || HasEnding(path, ".cu") ||
         HasEnding(path, ".cuh");
}

bool IsBelow(std::string_view path, std::string_view prefix) {
  return path == prefix ||
         (path.starts_with(prefix) && (prefix.ends_with('/') || path[prefix.size()] == '/'));
}

std::string_view IncludeOf(std::string_view line) {
  constexpr std::string_view kInclude = "#include ";
  if (!line.starts_with(kInclude)) return {};
  std::string_view rest = line.substr(kInclude.size());
  const char close = rest.starts_with('<') ? '>' : '"';
  const size_t end = rest.find(close, 1);
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end + 1);
}

}  // namespace shardline::testing
