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

// A pass of one row takes 3 ms and one of 16 rows 18 ms, looked at as MeasureCost does for a shard
// without a head: at its begin, at both ends of a pass, and once between two of them.
class ScriptedClock : public Clock {
 public:
  Instant Now() const override {
    constexpr int kTook[] = {0, 0, 3, 0, 0, 18};
    now_ms_ += kTook[looks_++ % 6];
    return Instant() + absl::Milliseconds(now_ms_);
  }
  int looks() const { return looks_; }

 private:
  mutable int looks_ = 0;
  mutable int now_ms_ = 0;
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

TEST_F(MeasureCostTest, APassOfManyRowsTellsWhatARowCosts) {
  const Loaded loaded(shards_[1]);
  const ScriptedClock clock;
  const absl::StatusOr<ShardCost> cost =
      MeasureCost(*loaded.forward, clock, {.rows = 16, .passes_max = 1});
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(cost->row, absl::Milliseconds(1));
  EXPECT_EQ(cost->step, absl::Milliseconds(2));
}

TEST_F(MeasureCostTest, AShortPassDoesNotBeginPastTheLimitEither) {
  const Loaded loaded(shards_[1]);
  const ScriptedClock clock;
  ASSERT_TRUE(
      MeasureCost(*loaded.forward, clock, {.limit = absl::Milliseconds(10), .passes_max = 3}).ok());
  EXPECT_EQ(clock.looks(), 7) << "one pass of each, and a look that it is late";
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
