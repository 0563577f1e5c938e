#pragma once

// The messages between coordinator and nodes, to and from the words of the cores. What a node
// says is checked here once.

#include <optional>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "coordinator/membership/node_facts.h"
#include "coordinator/routing/plan.h"
#include "coordinator/routing/route_table.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/join.pb.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

// kInvalidRequest for a node id that could not be one, or texts and numbers past their limits.
absl::StatusOr<NodeHello> FromProto(const v1::NodeHello& hello);
// Reports on peers that cannot be, or past 256, are left out.
NodeBeat FromProto(const v1::Heartbeat& beat);
// Empty when the report speaks of no shard.
std::optional<ShardReport> FromProto(const v1::ShardReport& report);

v1::NodeCapacity ToProto(const NodeCapacity& capacity);

// What opens stage `stage` of `route` for the attempt.
v1::OpenRequest OpenRequestFor(const Route& route, const SessionsActions::Open& open, Term term);
v1::FenceRequest FenceRequestFor(const SessionsActions::Fence& fence, Term term);

RunResult FromProto(const v1::RunEnd& end);

}  // namespace shardline
