#include "coordinator/gateway/model_errors.h"

#include "base/failure.h"
#include "coordinator/gateway/api_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

ClusterModel Placed(ModelState state) {
  ClusterModel model;
  model.facts.name = "tiny";
  model.placed = true;
  model.view.state = state;
  const auto add = [&model](const char* node, ShardState shard_state, uint64_t done) {
    ShardView shard;
    shard.shard.node = NodeId(node);
    shard.shard.bytes = 100;
    shard.state = shard_state;
    shard.bytes_done = done;
    shard.bytes_total = 100;
    model.view.shards.push_back(shard);
  };
  add("a", ShardState::kLoaded, 100);
  add("b", ShardState::kLoading, 25);
  add("c", ShardState::kLoading, 60);
  return model;
}

ClusterView View(const ClusterModel& model) {
  ClusterView view;
  view.models.push_back(model);
  return view;
}

TEST(ModelErrors, AModelThatLoadsSaysHowFarItIsAndWhichNodeHasMostBeforeIt) {
  const ApiError error = ErrorOfMissingModel(View(Placed(ModelState::kLoading)), "tiny");
  EXPECT_EQ(error.status, 503);
  EXPECT_EQ(error.code, "model_loading");
  EXPECT_TRUE(error.retry_after.has_value());
  const ApiResult<Json> loading = ParseJson(error.loading_json);
  ASSERT_TRUE(loading.ok());
  EXPECT_EQ((*loading)["model"], "tiny");
  EXPECT_EQ((*loading)["node"], "b");
  EXPECT_EQ((*loading)["bytes_sent"], 185);
  EXPECT_EQ((*loading)["total_bytes"], 300);
  EXPECT_NEAR((*loading)["progress"].get<double>(), 185.0 / 300, 1e-9);
  EXPECT_FALSE(loading->contains("eta_seconds"));
}

TEST(ModelErrors, AModelThatIsReadOrPlacedIsLoadingToo) {
  ClusterModel model;
  model.facts.name = "tiny";
  model.note = "reading tiny.gguf";
  EXPECT_EQ(ErrorOfMissingModel(View(model), "tiny").code, "model_loading");
  EXPECT_EQ(ErrorOfMissingModel(View(model), "").code, "model_loading");
  model.failed = true;
  const ApiError failed = ErrorOfMissingModel(View(model), "tiny");
  EXPECT_EQ(failed.code, "shard_unavailable");
  EXPECT_THAT(failed.message, HasSubstr("reading tiny.gguf"));
}

TEST(ModelErrors, AModelThatIsNotThereIsNotFoundAndTheOthersAreNamed) {
  const ApiError error = ErrorOfMissingModel(View(Placed(ModelState::kReady)), "gpt-4o");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
  EXPECT_THAT(error.message, HasSubstr("gpt-4o"));
  EXPECT_THAT(error.message, HasSubstr("tiny"));
  EXPECT_EQ(ErrorOfMissingModel(ClusterView(), "gpt-4o").status, 404);
}

TEST(ModelErrors, AQueueThatIsFullIsNoMatterOfTheModel) {
  const absl::Status full = MakeFailure(
      {.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(3)}, "the queue is full");
  ASSERT_TRUE(ModelMayExplain(full));
  EXPECT_EQ(ErrorOfModel(View(Placed(ModelState::kReady)), "tiny", full).status, 429);
  EXPECT_EQ(ErrorOfModel(View(Placed(ModelState::kLoading)), "tiny", full).code, "model_loading");
  const ApiError degraded = ErrorOfModel(View(Placed(ModelState::kDegraded)), "tiny", full);
  EXPECT_EQ(degraded.status, 503);
  EXPECT_EQ(degraded.code, "shard_unavailable");
  EXPECT_THAT(degraded.message, HasSubstr("the queue is full"));
}

TEST(ModelErrors, WhatTheClientDidWrongIsNeverExplainedAway) {
  EXPECT_FALSE(ModelMayExplain(MakeFailure(FailureKind::kInvalidRequest, "no")));
  EXPECT_FALSE(ModelMayExplain(MakeFailure(FailureKind::kDeadlineExceeded, "late")));
  EXPECT_FALSE(ModelMayExplain(MakeFailure(FailureKind::kKeyConflict, "other")));
}

}  // namespace
}  // namespace shardline
