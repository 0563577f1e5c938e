#include "base/failure.h"

#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace shardline {
namespace {

constexpr absl::string_view kPayloadUrl = "shardline.v1.FailureDetail";

struct KindRow {
  FailureKind kind;
  std::string_view name;
  absl::StatusCode code;
  bool restart_may_help;
};

using absl::StatusCode;
constexpr std::array<KindRow, kFailureKindCount> kKinds = {{
    {FailureKind::kNone, "none", StatusCode::kUnknown, false},
    {FailureKind::kInvalidRequest, "invalid_request", StatusCode::kInvalidArgument, false},
    {FailureKind::kDeadlineExceeded, "deadline_exceeded", StatusCode::kDeadlineExceeded, false},
    {FailureKind::kCancelled, "cancelled", StatusCode::kCancelled, false},
    {FailureKind::kHeartbeatLost, "heartbeat_lost", StatusCode::kUnavailable, true},
    {FailureKind::kWorkerDeath, "worker_death", StatusCode::kUnavailable, true},
    {FailureKind::kDeviceLost, "device_lost", StatusCode::kUnavailable, true},
    {FailureKind::kStreamReset, "stream_reset", StatusCode::kUnavailable, true},
    {FailureKind::kCacheMiss, "cache_miss", StatusCode::kNotFound, true},
    {FailureKind::kStaleEpoch, "stale_epoch", StatusCode::kFailedPrecondition, true},
    {FailureKind::kIncompatibleRecipe, "incompatible_recipe", StatusCode::kFailedPrecondition,
     true},
    {FailureKind::kStepConflict, "step_conflict", StatusCode::kAborted, false},
    {FailureKind::kStepInFlight, "step_in_flight", StatusCode::kAborted, false},
    {FailureKind::kUncertain, "uncertain", StatusCode::kAborted, true},
    {FailureKind::kMalformedBundle, "malformed_bundle", StatusCode::kInvalidArgument, false},
    {FailureKind::kChecksumMismatch, "checksum_mismatch", StatusCode::kDataLoss, true},
    {FailureKind::kNonFinite, "non_finite", StatusCode::kDataLoss, true},
    {FailureKind::kOverloaded, "overloaded", StatusCode::kResourceExhausted, true},
    {FailureKind::kKvExhausted, "kv_exhausted", StatusCode::kResourceExhausted, true},
    {FailureKind::kPoison, "poison", StatusCode::kInternal, false},
    {FailureKind::kDiverged, "diverged", StatusCode::kDataLoss, false},
    {FailureKind::kKeyConflict, "key_conflict", StatusCode::kAlreadyExists, false},
    {FailureKind::kUnauthorised, "unauthorised", StatusCode::kPermissionDenied, false},
}};

const KindRow& RowOf(FailureKind kind) {
  const auto index = static_cast<int32_t>(kind);
  return kKinds[index >= 0 && index < kFailureKindCount ? index : 0];
}

// The payload is text, "key=value" lines: readable in a debugger and free of protobuf, which
// base must not see. Over gRPC the proto of the same name is used instead (proto/wire).
std::string Encode(const FailureDetail& detail) {
  std::vector<std::string> lines = {absl::StrCat("kind=", static_cast<int32_t>(detail.kind))};
  if (detail.session) lines.push_back(absl::StrCat("session=", detail.session->value()));
  if (detail.epoch) lines.push_back(absl::StrCat("epoch=", detail.epoch->value()));
  if (detail.step) lines.push_back(absl::StrCat("step=", detail.step->value()));
  if (!detail.node.empty()) lines.push_back(absl::StrCat("node=", detail.node.value()));
  if (!detail.reporter.empty()) {
    lines.push_back(absl::StrCat("reporter=", detail.reporter.value()));
  }
  if (detail.layers) {
    lines.push_back(absl::StrCat("begin=", detail.layers->begin));
    lines.push_back(absl::StrCat("end=", detail.layers->end));
  }
  if (detail.retry_after > absl::ZeroDuration()) {
    lines.push_back(absl::StrCat("retry_after_ms=", absl::ToInt64Milliseconds(detail.retry_after)));
  }
  return absl::StrJoin(lines, "\n");
}

FailureDetail Decode(absl::string_view text) {
  FailureDetail detail;
  LayerRange layers;
  bool has_layers = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (field.first == "node") {
      detail.node = NodeId(std::string(field.second));
      continue;
    }
    if (field.first == "reporter") {
      detail.reporter = NodeId(std::string(field.second));
      continue;
    }
    uint64_t number = 0;
    if (!absl::SimpleAtoi(field.second, &number)) continue;
    if (field.first == "kind" && number < kFailureKindCount) {
      detail.kind = static_cast<FailureKind>(number);
    } else if (field.first == "session") {
      detail.session = SessionId(number);
    } else if (field.first == "epoch") {
      detail.epoch = Epoch(number);
    } else if (field.first == "step") {
      detail.step = StepIndex(number);
    } else if (field.first == "begin") {
      layers.begin = static_cast<int32_t>(number);
      has_layers = true;
    } else if (field.first == "end") {
      layers.end = static_cast<int32_t>(number);
      has_layers = true;
    } else if (field.first == "retry_after_ms") {
      detail.retry_after = absl::Milliseconds(static_cast<int64_t>(number));
    }
  }
  if (has_layers) detail.layers = layers;
  return detail;
}

}  // namespace

std::string_view FailureKindName(FailureKind kind) { return RowOf(kind).name; }

absl::StatusCode FailureCode(FailureKind kind) { return RowOf(kind).code; }

bool RestartMayHelp(FailureKind kind) { return RowOf(kind).restart_may_help; }

absl::Status MakeFailure(const FailureDetail& detail, std::string_view message) {
  SL_CHECK(detail.kind != FailureKind::kNone);
  absl::Status status(FailureCode(detail.kind), absl::string_view(message.data(), message.size()));
  status.SetPayload(kPayloadUrl, absl::Cord(Encode(detail)));
  return status;
}

FailureKind FailureKindOf(const absl::Status& status) { return FailureDetailOf(status).kind; }

FailureDetail FailureDetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload) return {};
  return Decode(std::string(*payload));
}

absl::Status WithFailureDetail(const absl::Status& status, const FailureDetail& detail) {
  const absl::string_view message = status.message();
  return MakeFailure(detail, std::string_view(message.data(), message.size()));
}

}  // namespace shardline
