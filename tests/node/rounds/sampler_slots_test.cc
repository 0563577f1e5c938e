#include "node/rounds/sampler_slots.h"

#include "gtest/gtest.h"

namespace shardline {
namespace {

std::shared_ptr<Sampler> Any() {
  return std::make_shared<Sampler>(SamplingParams{}, 8, std::vector<int32_t>{},
                                   std::vector<int32_t>{});
}

TEST(SamplerSlots, LeasesEachSlotOnce) {
  SamplerSlots slots(2);
  const std::optional<SamplerLease> a = slots.Lease(Any());
  const std::optional<SamplerLease> b = slots.Lease(Any());
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->slot, b->slot);
  EXPECT_FALSE(slots.Lease(Any()));
  slots.GiveBack(*a);
  EXPECT_EQ(slots.free_count(), 1U);
}

TEST(SamplerSlots, ASlotThatAJobUsesIsFreeOnlyWhenTheJobIsDone) {
  SamplerSlots slots(1);
  const SamplerLease lease = *slots.Lease(Any());
  const std::shared_ptr<Sampler> used = slots.Use(lease);
  slots.GiveBack(lease);
  EXPECT_FALSE(slots.Stands(lease));
  EXPECT_FALSE(slots.Lease(Any())) << "the device still draws with it";
  slots.Done(lease);
  EXPECT_TRUE(slots.Lease(Any()));
}

TEST(SamplerSlots, ALeaseStandsForOneLifeOfItsSlot) {
  SamplerSlots slots(1);
  const SamplerLease first = *slots.Lease(Any());
  slots.GiveBack(first);
  const SamplerLease second = *slots.Lease(Any());
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_FALSE(slots.Stands(first));
  EXPECT_TRUE(slots.Stands(second));
}

}  // namespace
}  // namespace shardline
