#include "base/failure.h"

#include <algorithm>
#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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
  std::string text = absl::StrCat("kind=", static_cast<int32_t>(detail.kind));
  if (detail.session) absl::StrAppend(&text, "\nsession=", detail.session->value());
  if (detail.epoch) absl::StrAppend(&text, "\nepoch=", detail.epoch->value());
  if (detail.step) absl::StrAppend(&text, "\nstep=", detail.step->value());
  if (!detail.node.empty()) absl::StrAppend(&text, "\nnode=", detail.node.value());
  if (!detail.reporter.empty()) absl::StrAppend(&text, "\nreporter=", detail.reporter.value());
  if (detail.layers) {
    absl::StrAppend(&text, "\nbegin=", detail.layers->begin, "\nend=", detail.layers->end);
  }
  if (detail.retry_after > absl::ZeroDuration()) {
    absl::StrAppend(&text, "\nretry_after_ms=", absl::ToInt64Milliseconds(detail.retry_after));
  }
  return text;
}

struct Field {
  absl::string_view name;
  absl::string_view value;
};

// Takes the first line off `text`.
Field TakeField(absl::string_view& text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  const size_t end = std::min(line.find('='), line.size());
  return {.name = line.substr(0, end), .value = line.substr(std::min(end + 1, line.size()))};
}

// kNone for a number that this build does not know.
FailureKind ToKind(absl::string_view value) {
  uint64_t number = 0;
  const bool known = absl::SimpleAtoi(value, &number) && number < kFailureKindCount;
  return known ? static_cast<FailureKind>(number) : FailureKind::kNone;
}

FailureDetail Decode(absl::string_view text) {
  FailureDetail detail;
  LayerRange layers;
  bool has_layers = false;
  while (!text.empty()) {
    const Field field = TakeField(text);
    if (field.name == "kind") {
      detail.kind = ToKind(field.value);
      continue;
    }
    if (field.name == "node") {
      detail.node = NodeId(std::string(field.value));
      continue;
    }
    if (field.name == "reporter") {
      detail.reporter = NodeId(std::string(field.value));
      continue;
    }
    uint64_t number = 0;
    if (!absl::SimpleAtoi(field.value, &number)) continue;
    if (field.name == "session") {
      detail.session = SessionId(number);
    } else if (field.name == "epoch") {
      detail.epoch = Epoch(number);
    } else if (field.name == "step") {
      detail.step = StepIndex(number);
    } else if (field.name == "begin") {
      layers.begin = static_cast<int32_t>(number);
      has_layers = true;
    } else if (field.name == "end") {
      layers.end = static_cast<int32_t>(number);
      has_layers = true;
    } else if (field.name == "retry_after_ms") {
      detail.retry_after = absl::Milliseconds(static_cast<int64_t>(number));
    }
  }
  if (has_layers) detail.layers = layers;
  return detail;
}

// The bytes of `payload`, in `scratch` if they are not in one piece.
absl::string_view TextOf(const absl::Cord& payload, std::string& scratch) {
  if (const absl::optional<absl::string_view> flat = payload.TryFlat()) return *flat;
  absl::CopyCordToString(payload, &scratch);
  return scratch;
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

// Asked of every status on its way, so only the line in question is read.
FailureKind FailureKindOf(const absl::Status& status) {
  if (status.ok()) return FailureKind::kNone;
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload) return FailureKind::kNone;
  std::string scratch;
  for (absl::string_view text = TextOf(*payload, scratch); !text.empty();) {
    if (const Field field = TakeField(text); field.name == "kind") return ToKind(field.value);
  }
  return FailureKind::kNone;
}

FailureDetail FailureDetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload) return {};
  std::string scratch;
  return Decode(TextOf(*payload, scratch));
}

absl::Status WithFailureDetail(const absl::Status& status, const FailureDetail& detail) {
  const absl::string_view message = status.message();
  return MakeFailure(detail, std::string_view(message.data(), message.size()));
}

}  // namespace shardline
