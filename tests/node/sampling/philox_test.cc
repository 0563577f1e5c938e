#include "node/sampling/philox.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/sampling/sampler.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;

// The known-answer vectors published with Random123 for philox4x32, 10 rounds.
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Uniform, IsTheTopOfTheFirstWord) {
  EXPECT_EQ(UniformAt(0, 0), static_cast<float>(0x6627e8) / 16777216.0F);
}

TEST(Uniform, DependsOnEveryHalfOfSeedAndIndex) {
  const float base = UniformAt(1, 1);
  EXPECT_NE(UniformAt(2, 1), base);
  EXPECT_NE(UniformAt(1, 2), base);
  EXPECT_NE(UniformAt((uint64_t{1} << 32) | 1, 1), base);
  EXPECT_NE(UniformAt(1, (uint64_t{1} << 32) | 1), base);
}

TEST(Uniform, StaysBelowOneAndFillsTheUnitInterval) {
  int buckets[16] = {};
  for (uint64_t i = 0; i < 16000; ++i) {
    const float u = UniformAt(42, i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++buckets[static_cast<int>(u * 16.0F)];
  }
  for (const int count : buckets) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace shardline
