#pragma once

// SL_CHECK(condition): always on; logs the condition and aborts.
//
// For what only our own bug can break: page conservation, constructor contracts, shapes between
// our own calls. Never for bytes from a peer, a file, a flag, a device or load. One condition a
// check, stated positively. Further context may follow: SL_CHECK(a == b, "pages ", a, " of ", b).

#include <string>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"

namespace shardline::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& context);

}  // namespace shardline::internal

#define SL_CHECK(condition, ...)                                                         \
  do {                                                                                   \
    if (ABSL_PREDICT_FALSE(!(condition))) {                                              \
      ::shardline::internal::CheckFailed(__FILE__, __LINE__, #condition,                 \
                                         ::absl::StrCat("" __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                    \
  } while (false)
