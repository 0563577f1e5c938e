#pragma once

// What both back ends ask of MatmulArgs.

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/matmul.h"

namespace shardline {

inline constexpr size_t kMatmulPartsMax = 8;

// kInvalidRequest, naming the part, for shapes or strides that do not fit. Not the scratch.
absl::Status CheckMatmul(const MatmulArgs& args);

}  // namespace shardline
