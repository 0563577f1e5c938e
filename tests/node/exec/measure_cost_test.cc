#include "node/exec/measure_cost.h"

#include "gtest/gtest.h"
#include "tests/node/exec/pipeline.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::CutAt;
using ::shardline::testing::FreshDirectory;
using ::shardline::testing::LoadShards;
using ::shardline::testing::MakeTinyLlama;
using ::shardline::testing::Shards;

constexpr int32_t kContext = 64;

// Every look at it is a millisecond later.
class TickingClock : public Clock {
 public:
  Instant Now() const override { return Instant() + absl::Milliseconds(++looks_); }
  int64_t looks() const { return looks_; }

 private:
  mutable int64_t looks_ = 0;
};

// A shard with its memory.
struct Loaded {
  explicit Loaded(const ShardWeights& weights)
      : kv(*KvStore::Create(weights.hp, weights.contents.layers.count(), 4)),
        forward(*LlamaForward::Create(&weights, kv.get(), *CpuKernels(), {},
                                      {.context_tokens_max = kContext})) {}
  std::unique_ptr<KvStore> kv;
  std::unique_ptr<LlamaForward> forward;
};

class MeasureCostTest : public ::testing::Test {
 protected:
  const Shards shards_ = LoadShards(MakeTinyLlama(FreshDirectory()), CutAt({2}, 4));
};

TEST_F(MeasureCostTest, TheHeadPaysForItsFinishAndNobodyElseDoes) {
  const absl::StatusOr<ShardCost> head =
      MeasureCost(*Loaded(shards_[0]).forward, *SystemClock(), {});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_GT(head->step, absl::ZeroDuration());
  EXPECT_GE(head->row, absl::ZeroDuration());
  EXPECT_GT(head->finish_step, absl::ZeroDuration());
  const absl::StatusOr<ShardCost> tail =
      MeasureCost(*Loaded(shards_[1]).forward, *SystemClock(), {});
  ASSERT_TRUE(tail.ok()) << tail.status();
  EXPECT_GT(tail->step, absl::ZeroDuration());
  EXPECT_EQ(tail->finish_step, absl::ZeroDuration());
  EXPECT_EQ(tail->finish_row, absl::ZeroDuration());
}

TEST_F(MeasureCostTest, NoPassBeginsPastTheLimit) {
  const Loaded loaded(shards_[1]);
  const TickingClock unhurried;
  ASSERT_TRUE(MeasureCost(*loaded.forward, unhurried, {.passes_max = 3}).ok());
  const TickingClock clock;
  const absl::StatusOr<ShardCost> cost =
      MeasureCost(*loaded.forward, clock, {.limit = absl::Milliseconds(1), .passes_max = 3});
  ASSERT_TRUE(cost.ok());
  EXPECT_LT(clock.looks(), unhurried.looks());
  EXPECT_EQ(cost->row, absl::ZeroDuration());
  EXPECT_GT(cost->step, absl::ZeroDuration());
}

TEST_F(MeasureCostTest, WhatAJobTakesIsStepAndRows) {
  const Loaded loaded(shards_[1]);
  const TickingClock clock;  // Any pass takes 1 ms.
  const absl::StatusOr<ShardCost> cost = MeasureCost(*loaded.forward, clock, {});
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(cost->step, absl::Milliseconds(1));
  EXPECT_EQ(cost->row, absl::ZeroDuration());
}

}  // namespace
}  // namespace shardline
