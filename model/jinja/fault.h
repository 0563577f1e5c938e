#pragma once

// How a template fails: in plain words, without a place. Whoever knows the place adds it, once.

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace shardline::jinja {

inline std::string Join(std::initializer_list<std::string_view> parts) {
  std::string joined;
  for (const std::string_view part : parts) joined.append(part);
  return joined;
}

inline absl::Status Fault(std::initializer_list<std::string_view> parts) {
  return absl::InvalidArgumentError(Join(parts));
}

}  // namespace shardline::jinja
