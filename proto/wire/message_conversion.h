#pragma once

// Small domain values to and from their messages.

#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "shardline/v1/common.pb.h"

namespace shardline {

inline constexpr size_t kNodeIdBytesMax = 128;

// True for 1 to kNodeIdBytesMax letters, digits, '.', '_' and '-': safe in logs, metrics and
// file names.
bool IsValidNodeId(std::string_view text);

v1::LayerRange ToProto(const LayerRange& range);

// Fails with kInvalidRequest unless 0 <= begin <= end <= 65,536.
absl::StatusOr<LayerRange> FromProto(const v1::LayerRange& range);

}  // namespace shardline
