#include "kernels/cpu_quota.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace shardline {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(ReadFile(path), &value)) return std::nullopt;
  return value;
}

int WholeCpus(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return INT_MAX;  // -1, or no quota.
  return static_cast<int>(std::clamp<int64_t>(quota_us / period_us, 1, INT_MAX));
}

// Version 2: "cpu.max" holds "<quota or max> <period>".
int LimitV2(const std::string& group) {
  const std::vector<std::string> fields =
      absl::StrSplit(ReadFile(group + "/cpu.max"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota_us = 0;
  int64_t period_us = 0;
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &quota_us) ||
      !absl::SimpleAtoi(fields[1], &period_us)) {
    return INT_MAX;
  }
  return WholeCpus(quota_us, period_us);
}

int LimitV1(const std::string& group) {
  const std::optional<int64_t> quota_us = ReadNumber(group + "/cpu.cfs_quota_us");
  const std::optional<int64_t> period_us = ReadNumber(group + "/cpu.cfs_period_us");
  if (!quota_us || !period_us) return INT_MAX;
  return WholeCpus(*quota_us, *period_us);
}

// The least limit over `path` and all its ancestors below `root`. In a container the path may be
// the host's and not exist here; then only the root, which is the container's own group, counts.
int LeastOnTheWay(const std::string& root, std::string path, int (*limit)(const std::string&)) {
  int least = limit(root);
  while (path.size() > 1) {
    least = std::min(least, limit(root + path));
    path.resize(path.rfind('/'));
  }
  return least;
}

}  // namespace

int CgroupCpuLimit(std::string_view self_cgroup, const std::string& cgroup_root) {
  int least = INT_MAX;
  const absl::string_view text(self_cgroup.data(), self_cgroup.size());
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].empty() || fields[2][0] != '/') continue;
    if (fields[1].empty()) {
      least = std::min(least, LeastOnTheWay(cgroup_root, fields[2], LimitV2));
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
    least = std::min(least, LeastOnTheWay(cgroup_root + "/" + fields[1], fields[2], LimitV1));
    least = std::min(least, LeastOnTheWay(cgroup_root + "/cpu", fields[2], LimitV1));
  }
  return least;
}

}  // namespace shardline
