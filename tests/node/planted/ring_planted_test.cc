// The ring of tests/node/rounds finds these bugs by what its clients see, within a few seeds.

#include <optional>
#include <string>

#include "base/planted_bug.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/node/rounds/ring.h"

namespace shardline {
namespace {

using ::shardline::testing::Faults;
using ::shardline::testing::Guesses;
using ::shardline::testing::RunSeeds;

constexpr uint32_t kSeedsMax = 300;

// The first seed whose run fails.
std::optional<uint32_t> FirstFailure(PlantedBug bug, const Faults& faults) {
  for (uint32_t seed = 1; seed <= kSeedsMax; ++seed) {
    ::testing::TestPartResultArray failures;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      planted_bug = bug;
      RunSeeds(seed, 1, faults);
      planted_bug = PlantedBug::kNone;
    }
    if (failures.size() > 0) return seed;
  }
  return std::nullopt;
}

void ExpectFound(PlantedBug bug, const Faults& faults) {
  EXPECT_FALSE(FirstFailure(PlantedBug::kNone, faults).has_value()) << "without any bug";
  EXPECT_TRUE(FirstFailure(bug, faults).has_value()) << "in " << kSeedsMax << " seeds";
}

TEST(PlantedInTheRing, StepIgnoresEpoch) {
  ExpectFound(PlantedBug::kStepIgnoresEpoch, {.copies = 60, .fences = 12});
}

TEST(PlantedInTheRing, StepRunsTwice) { ExpectFound(PlantedBug::kStepRunsTwice, {.copies = 60}); }

TEST(PlantedInTheRing, ResumeUnverified) {
  ExpectFound(PlantedBug::kResumeUnverified, {.cuts = 15});
}

TEST(PlantedInTheRing, PromotesWhateverIsStaged) {
  ExpectFound(PlantedBug::kPromotesWhateverIsStaged, {.copies = 30});
}

TEST(PlantedInTheRing, StageSurvivesFailure) {
  ExpectFound(PlantedBug::kStageSurvivesFailure, {.fences = 12});
}

TEST(PlantedInTheRing, CopyEndsTheOriginal) {
  ExpectFound(PlantedBug::kCopyEndsTheOriginal, {.copies = 60});
}

TEST(PlantedInTheRing, DraftUnchecked) {
  ExpectFound(PlantedBug::kDraftUnchecked, {.guesses = Guesses::kHostile});
}

TEST(PlantedInTheRing, RejectedStays) {
  ExpectFound(PlantedBug::kRejectedStays, {.guesses = Guesses::kCorrupted});
}

}  // namespace
}  // namespace shardline
