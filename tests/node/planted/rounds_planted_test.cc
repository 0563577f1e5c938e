// What the guards of rounds keep out, and that it is seen when one of them is gone.

#include "base/planted_bug.h"
#include "gtest/gtest.h"
#include "tests/node/rounds/head_rig.h"

namespace shardline {
namespace {

using ::shardline::testing::HeadRig;

bool AFailedPieceEndsItsRequest() {
  HeadRig rig({.chunk_tokens_max = 4});
  if (!rig.Start(HeadRig::Run(1, 12, 2)).ok()) return false;
  rig.FailOldest(0);
  rig.RunOut();
  return rig.sent().size() == 1 && rig.ends().at(HeadRig::KeyOf(1)).size() == 1;
}

bool AHaltEndsWhoWaits() {
  HeadRig rig({.attempts_max = 1});
  for (const uint64_t session : {1, 2}) {
    if (!rig.Start(HeadRig::Run(session, 12, 2)).ok()) return false;
  }
  rig.head().Halt(MakeFailure(FailureKind::kWorkerDeath, "the node goes away"), rig.now());
  rig.Collect();
  return rig.ends().size() == 2;
}

class PlantedInRounds : public ::testing::Test {
 protected:
  ~PlantedInRounds() override { planted_bug = PlantedBug::kNone; }

  static void HoldsAndIsMissed(PlantedBug bug, bool (*holds)()) {
    EXPECT_TRUE(holds());
    planted_bug = bug;
    EXPECT_FALSE(holds()) << "the scenario does not need this guard";
  }
};

TEST_F(PlantedInRounds, PieceFailureRepeats) {
  HoldsAndIsMissed(PlantedBug::kPieceFailureRepeats, AFailedPieceEndsItsRequest);
}

TEST_F(PlantedInRounds, HaltForgetsQueued) {
  HoldsAndIsMissed(PlantedBug::kHaltForgetsQueued, AHaltEndsWhoWaits);
}

}  // namespace
}  // namespace shardline
