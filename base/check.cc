#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace shardline::internal {

void CheckFailed(const char* file, int line, const char* condition, const std::string& context) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition,
               context.empty() ? "" : "; ", context.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace shardline::internal
