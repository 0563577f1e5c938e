#include "proto/wire/failure_conversion.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

FailureDetail FullDetail(FailureKind kind) {
  return {.kind = kind,
          .session = SessionId(7),
          .epoch = Epoch(0),
          .step = StepIndex(1ULL << 60),
          .node = NodeId("node-b"),
          .layers = LayerRange{.begin = 10, .end = 20},
          .retry_after = absl::Milliseconds(1500)};
}

TEST(FailureConversion, EveryKindSurvivesGrpcWithAllItsDetails) {
  for (int32_t kind = 1; kind < kFailureKindCount; ++kind) {
    const FailureDetail detail = FullDetail(static_cast<FailureKind>(kind));
    const absl::Status status = MakeFailure(detail, "pool has 0 of 64 pages free");
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
    EXPECT_EQ(FailureDetailOf(back), detail) << kind;
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(back.message(), status.message());
  }
}

TEST(FailureConversion, AStatusWithoutAKindKeepsItsCode) {
  const absl::Status back = FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  EXPECT_EQ(back.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FailureKindOf(back), FailureKind::kNone);
}

TEST(FailureConversion, AnUnknownKindIsStillAFailure) {
  v1::Failure failure;
  failure.set_code(static_cast<int>(absl::StatusCode::kAborted));
  failure.mutable_detail()->set_kind(kFailureKindCount + 5);
  EXPECT_EQ(FromProto(failure).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(FailureKindOf(FromProto(failure)), FailureKind::kNone);
}

TEST(FailureConversion, NoCodeMakesAFailureASuccess) {
  for (const int code : {0, -1, 17, 99, 2147483647}) {
    v1::Failure failure;
    failure.set_code(code);
    EXPECT_EQ(FromProto(failure).code(), absl::StatusCode::kUnknown) << code;
  }
}

TEST(FailureConversion, GarbageDetailsLeaveCodeAndMessage) {
  const grpc::Status garbage(grpc::StatusCode::ABORTED, "why", std::string(300, '\xFF'));
  EXPECT_EQ(FromGrpcStatus(garbage), absl::AbortedError("why"));
}

TEST(FailureConversion, ANodeIdCannotSmuggleOtherDetails) {
  v1::Failure failure;
  failure.mutable_detail()->set_kind(static_cast<int32_t>(FailureKind::kCancelled));
  failure.mutable_detail()->set_node_id("a\nkind=1");
  const FailureDetail detail = FailureDetailOf(FromProto(failure));
  EXPECT_EQ(detail.kind, FailureKind::kCancelled);
  EXPECT_TRUE(detail.node.empty());
}

TEST(FailureConversion, BytesThatAreNoTextStillMakeAMessage) {
  const absl::Status status = absl::InternalError("\xC3\x28\x01");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)).message(), "?(?");
}

TEST(MessageConversion, ALayerRangeMustBeOrderedAndBounded) {
  v1::LayerRange message = ToProto(LayerRange{.begin = 3, .end = 5});
  EXPECT_EQ(FromProto(message).value(), (LayerRange{.begin = 3, .end = 5}));
  message.set_begin(6);
  EXPECT_EQ(FailureKindOf(FromProto(message).status()), FailureKind::kInvalidRequest);
  message.set_begin(-1);
  EXPECT_FALSE(FromProto(message).ok());
  message.set_begin(0);
  message.set_end(2147483647);
  EXPECT_FALSE(FromProto(message).ok());
}

TEST(MessageConversion, ANodeIdIsShortAndPlain) {
  EXPECT_TRUE(IsValidNodeId("rack-1.node_7"));
  EXPECT_FALSE(IsValidNodeId(""));
  EXPECT_FALSE(IsValidNodeId("a b"));
  EXPECT_FALSE(IsValidNodeId("a/../b"));
  EXPECT_FALSE(IsValidNodeId(std::string(kNodeIdBytesMax + 1, 'a')));
}

}  // namespace
}  // namespace shardline
