#pragma once

// Small domain values to and from their messages.

#include <string_view>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "base/route.h"
#include "base/run_result.h"
#include "base/shard_cost.h"
#include "shardline/v1/common.pb.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/join.pb.h"

namespace shardline {

inline constexpr size_t kNodeIdBytesMax = 128;
inline constexpr size_t kTenantBytesMax = 256;

// True for 1 to kNodeIdBytesMax letters, digits, '.', '_' and '-': safe in logs, metrics and
// file names.
bool IsValidNodeId(std::string_view text);

v1::LayerRange ToProto(const LayerRange& range);

// Fails with kInvalidRequest unless 0 <= begin <= end <= 65,536.
absl::StatusOr<LayerRange> FromProto(const v1::LayerRange& range);

v1::RouteStage ToProto(const RouteStage& stage);

// Fails with kInvalidRequest for a node id, an address or layers that cannot be.
absl::StatusOr<RouteStage> FromProto(const v1::RouteStage& stage);

// A reason this build does not know is kNone.
v1::FinishReason ToProto(FinishReason reason);
FinishReason FromProto(v1::FinishReason reason);

v1::RunTimings ToProto(const RunTimings& timings);
RunTimings FromProto(const v1::RunTimings& timings);

v1::ShardCost ToProto(const ShardCost& cost);
// What no measurement can give (negative, not finite, hours) counts as not measured.
ShardCost FromProto(const v1::ShardCost& cost);

}  // namespace shardline
