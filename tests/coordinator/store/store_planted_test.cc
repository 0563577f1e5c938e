// The bugs that the simulator plants in MemoryStore are bugs: what the ledger promises fails.

#include "base/planted_bug.h"
#include "gtest/gtest.h"
#include "tests/support/memory_store.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::MemoryStore;

class SetClock final : public Clock {
 public:
  Instant Now() const override { return Instant(); }
};

AttemptRecord Record(AttemptState state) { return {.state = state, .tokens = 3, .work_tokens = 8}; }

// What each planted bug breaks; true while it holds.
bool FirstRecordStands() {
  const SetClock clock;
  MemoryStore store(&clock);
  const Term term = *store.BeginTerm();
  const AttemptKey key = *store.CreateAndGrant(term, {});
  (void)*store.FinishAttempt(term, key, Record(AttemptState::kCompleted), {});
  const auto again = store.FinishAttempt(term, key, Record(AttemptState::kCancelled), {});
  return again.ok() && again->state == AttemptState::kCompleted &&
         store.ListRecords({})->front().record == Record(AttemptState::kCompleted);
}

bool OldTermWritesNoSecondRecord() {
  const SetClock clock;
  MemoryStore store(&clock);
  const Term old_term = *store.BeginTerm();
  const AttemptKey key = *store.CreateAndGrant(old_term, {});
  const Term term = *store.BeginTerm();
  (void)*store.FenceAllOpen(term);
  const bool refused =
      !store.FinishAttempt(old_term, key, Record(AttemptState::kCompleted), {}).ok();
  return refused && store.ListRecords({})->size() == 1 && store.VerifyLedger()->problems.empty();
}

bool SameKeyRunsOnce() {
  const SetClock clock;
  MemoryStore store(&clock);
  const Term term = *store.BeginTerm();
  const RequestIdentity identity{.tenant = "t", .key = "k", .digest = 1, .session = {}};
  const AttemptKey key = store.Admit(term, {}, identity)->key;
  return store.Admit(term, {}, identity)->key == key && store.OpenAttempts()->size() == 1;
}

TEST(StorePlanted, EveryPromiseHoldsWithoutABug) {
  EXPECT_TRUE(FirstRecordStands());
  EXPECT_TRUE(OldTermWritesNoSecondRecord());
  EXPECT_TRUE(SameKeyRunsOnce());
}

TEST(StorePlanted, AFinishThatOverwritesIsSeen) {
  planted_bug = PlantedBug::kFinishOverwrites;
  EXPECT_FALSE(FirstRecordStands());
  planted_bug = PlantedBug::kNone;
}

TEST(StorePlanted, AFinishThatAsksNeitherTermNorStateIsSeen) {
  planted_bug = PlantedBug::kTermAndStateIgnored;
  EXPECT_FALSE(OldTermWritesNoSecondRecord());
  EXPECT_FALSE(FirstRecordStands());
  planted_bug = PlantedBug::kNone;
}

TEST(StorePlanted, AForgottenKeyIsSeen) {
  planted_bug = PlantedBug::kKeyForgotten;
  EXPECT_FALSE(SameKeyRunsOnce());
  planted_bug = PlantedBug::kNone;
}

}  // namespace
}  // namespace shardline
