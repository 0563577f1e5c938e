#include "base/failure.h"

#include <set>

#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(FailureTest, EveryKindHasItsOwnNameAndSurvivesAStatus) {
  std::set<std::string_view> names;
  for (int32_t i = 1; i < kFailureKindCount; ++i) {
    const auto kind = static_cast<FailureKind>(i);
    const absl::Status status = MakeFailure(kind, "why");
    EXPECT_EQ(FailureKindOf(status), kind);
    EXPECT_EQ(status.code(), FailureCode(kind));
    EXPECT_NE(status.code(), absl::StatusCode::kOk);
    names.insert(FailureKindName(kind));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kFailureKindCount - 1));
}

TEST(FailureTest, DetailsComeBackWhole) {
  const FailureDetail detail = {.kind = FailureKind::kHeartbeatLost,
                                .session = SessionId(7),
                                .epoch = Epoch(2),
                                .step = StepIndex(0),
                                .node = NodeId("node=b\\"),
                                .layers = LayerRange{.begin = 10, .end = 20},
                                .reporter = NodeId("a"),
                                .retry_after = absl::Milliseconds(250)};
  EXPECT_EQ(FailureDetailOf(MakeFailure(detail, "silent")), detail);
}

TEST(FailureTest, AStrangersStatusHasNoKind) {
  EXPECT_EQ(FailureKindOf(absl::UnavailableError("x")), FailureKind::kNone);
  EXPECT_EQ(FailureKindOf(absl::OkStatus()), FailureKind::kNone);
}

TEST(FailureTest, AKindFromTheFutureIsNotSuccess) {
  absl::Status status = absl::AbortedError("x");
  status.SetPayload("shardline.v1.FailureDetail", absl::Cord("kind=999\nsession=3"));
  EXPECT_EQ(FailureKindOf(status), FailureKind::kNone);
  EXPECT_FALSE(status.ok());
}

TEST(FailureTest, WithDetailKeepsTheMessage) {
  const absl::Status status =
      WithFailureDetail(MakeFailure(FailureKind::kStreamReset, "link broke"),
                        {.kind = FailureKind::kWorkerDeath, .node = NodeId("b")});
  EXPECT_EQ(status.message(), "link broke");
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("b"));
}

}  // namespace
}  // namespace shardline
