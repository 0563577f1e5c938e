#include "proto/wire/failure_conversion.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr size_t kMessageBytesMax = 4096;
constexpr size_t kDetailBytesMax = 8192;
constexpr int64_t kRetryAfterMsMax = 3'600'000;

bool IsKnownKind(int32_t kind) { return kind > 0 && kind < kFailureKindCount; }

// Protobuf strings must be UTF-8, and a status may carry anything.
std::string PrintableText(absl::string_view text) {
  std::string out(text.substr(0, kMessageBytesMax));
  for (char& c : out) {
    const bool printable = (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\t';
    if (!printable) c = '?';
  }
  return out;
}

FailureDetail DetailFromProto(const v1::FailureDetail& message) {
  FailureDetail detail;
  if (!IsKnownKind(message.kind())) return detail;
  detail.kind = static_cast<FailureKind>(message.kind());
  if (message.has_session()) detail.session = SessionId(message.session());
  if (message.has_epoch()) detail.epoch = Epoch(message.epoch());
  if (message.has_step()) detail.step = StepIndex(message.step());
  if (IsValidNodeId(message.node_id())) detail.node = NodeId(message.node_id());
  if (message.has_layers()) {
    const absl::StatusOr<LayerRange> layers = FromProto(message.layers());
    if (layers.ok()) detail.layers = *layers;
  }
  if (IsValidNodeId(message.reporter_id())) detail.reporter = NodeId(message.reporter_id());
  detail.retry_after =
      absl::Milliseconds(std::clamp<int64_t>(message.retry_after_ms(), 0, kRetryAfterMsMax));
  return detail;
}

v1::FailureDetail DetailToProto(const FailureDetail& detail) {
  v1::FailureDetail message;
  message.set_kind(static_cast<int32_t>(detail.kind));
  if (detail.session) message.set_session(detail.session->value());
  if (detail.epoch) message.set_epoch(detail.epoch->value());
  if (detail.step) message.set_step(detail.step->value());
  message.set_node_id(detail.node.value());
  if (detail.layers) *message.mutable_layers() = ToProto(*detail.layers);
  message.set_reporter_id(detail.reporter.value());
  message.set_retry_after_ms(absl::ToInt64Milliseconds(detail.retry_after));
  return message;
}

// A code that is no error, or none of absl's, is an unknown error: never success.
absl::StatusCode ErrorCode(int code) {
  if (code <= 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::StatusCode::kUnknown;
  }
  return static_cast<absl::StatusCode>(code);
}

}  // namespace

v1::Failure ToProto(const absl::Status& status) {
  SL_CHECK(!status.ok());
  v1::Failure failure;
  failure.set_code(static_cast<int32_t>(status.code()));
  failure.set_message(PrintableText(status.message()));
  const FailureDetail detail = FailureDetailOf(status);
  if (detail.kind != FailureKind::kNone) *failure.mutable_detail() = DetailToProto(detail);
  return failure;
}

absl::Status FromProto(const v1::Failure& failure) {
  const std::string message = PrintableText(failure.message());
  const FailureDetail detail = DetailFromProto(failure.detail());
  if (detail.kind != FailureKind::kNone) return MakeFailure(detail, message);
  return absl::Status(ErrorCode(failure.code()), message);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const v1::Failure failure = ToProto(status);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), failure.message(),
                      failure.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  v1::Failure failure;
  const std::string& details = status.error_details();
  const bool readable =
      !details.empty() && details.size() <= kDetailBytesMax && failure.ParseFromString(details);
  if (!readable) failure.Clear();
  failure.set_code(static_cast<int32_t>(status.error_code()));
  failure.set_message(status.error_message());
  return FromProto(failure);
}

}  // namespace shardline
