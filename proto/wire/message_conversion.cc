#include "proto/wire/message_conversion.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr int32_t kLayersMax = 65536;
constexpr size_t kAddressBytesMax = 512;

absl::Duration Measured(double us) {
  constexpr double kHourUs = 3.6e9;
  return us > 0 && us < kHourUs ? absl::Microseconds(us) : absl::ZeroDuration();
}

}  // namespace

bool IsValidNodeId(std::string_view text) {
  if (text.empty() || text.size() > kNodeIdBytesMax) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

v1::LayerRange ToProto(const LayerRange& range) {
  v1::LayerRange message;
  message.set_begin(range.begin);
  message.set_end(range.end);
  return message;
}

absl::StatusOr<LayerRange> FromProto(const v1::LayerRange& range) {
  const bool ordered = 0 <= range.begin() && range.begin() <= range.end();
  if (!ordered || range.end() > kLayersMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("layers: [", range.begin(), ", ", range.end(), ") is no range of layers"));
  }
  return LayerRange{.begin = range.begin(), .end = range.end()};
}

v1::RouteStage ToProto(const RouteStage& stage) {
  v1::RouteStage message;
  message.set_node_id(stage.node.value());
  message.set_incarnation(stage.incarnation.value());
  message.set_address(stage.address);
  *message.mutable_layers() = ToProto(stage.layers);
  return message;
}

absl::StatusOr<RouteStage> FromProto(const v1::RouteStage& stage) {
  if (!IsValidNodeId(stage.node_id())) {
    return MakeFailure(FailureKind::kInvalidRequest, "route: a node id that cannot be");
  }
  if (stage.address().size() > kAddressBytesMax) {
    return MakeFailure(FailureKind::kInvalidRequest, "route: an address too long");
  }
  RouteStage out;
  out.node = NodeId(stage.node_id());
  out.incarnation = Incarnation(stage.incarnation());
  out.address = stage.address();
  SL_ASSIGN_OR_RETURN(out.layers, FromProto(stage.layers()));
  return out;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

FinishReason FromProto(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_STOP) return FinishReason::kStop;
  if (reason == v1::FINISH_REASON_LENGTH) return FinishReason::kLength;
  return FinishReason::kNone;
}

v1::RunTimings ToProto(const RunTimings& timings) {
  v1::RunTimings message;
  message.set_prefill_us(absl::ToInt64Microseconds(timings.prefill));
  message.set_decode_us(absl::ToInt64Microseconds(timings.decode));
  message.set_laps(timings.laps);
  message.set_lap_us(absl::ToInt64Microseconds(timings.lap_time));
  message.set_head_compute_us(absl::ToInt64Microseconds(timings.head_compute));
  message.set_stage_compute_us(absl::ToInt64Microseconds(timings.stage_compute));
  message.set_queued_us(absl::ToInt64Microseconds(timings.queued));
  message.set_drafted_tokens(timings.drafted);
  message.set_accepted_tokens(timings.accepted);
  message.set_rounds(timings.rounds);
  message.set_rounds_between_max(timings.rounds_between_max);
  for (const absl::Duration time : timings.by_stage) {
    message.add_stage_us(absl::ToInt64Microseconds(time));
  }
  return message;
}

RunTimings FromProto(const v1::RunTimings& timings) {
  std::vector<absl::Duration> by_stage;
  by_stage.reserve(static_cast<size_t>(timings.stage_us_size()));
  for (const int64_t us : timings.stage_us()) by_stage.push_back(absl::Microseconds(us));
  return {.prefill = absl::Microseconds(timings.prefill_us()),
          .decode = absl::Microseconds(timings.decode_us()),
          .laps = timings.laps(),
          .lap_time = absl::Microseconds(timings.lap_us()),
          .head_compute = absl::Microseconds(timings.head_compute_us()),
          .stage_compute = absl::Microseconds(timings.stage_compute_us()),
          .by_stage = std::move(by_stage),
          .queued = absl::Microseconds(timings.queued_us()),
          .drafted = timings.drafted_tokens(),
          .accepted = timings.accepted_tokens(),
          .rounds = timings.rounds(),
          .rounds_between_max = timings.rounds_between_max()};
}

v1::ShardCost ToProto(const ShardCost& cost) {
  v1::ShardCost message;
  message.set_step_us(absl::ToDoubleMicroseconds(cost.step));
  message.set_row_us(absl::ToDoubleMicroseconds(cost.row));
  message.set_finish_step_us(absl::ToDoubleMicroseconds(cost.finish_step));
  message.set_finish_row_us(absl::ToDoubleMicroseconds(cost.finish_row));
  return message;
}

ShardCost FromProto(const v1::ShardCost& cost) {
  return {.step = Measured(cost.step_us()),
          .row = Measured(cost.row_us()),
          .finish_step = Measured(cost.finish_step_us()),
          .finish_row = Measured(cost.finish_row_us())};
}

}  // namespace shardline
