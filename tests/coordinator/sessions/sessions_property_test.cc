// Any order of events, late, doubled or never: every call ends once and by its deadline, every
// attempt has one record, every stage that heard of an attempt hears of its end, no token is
// repeated, left out or changed, whatever restarts and reconnects lie between.

#include "gtest/gtest.h"
#include "tests/coordinator/sessions/shaky_shell.h"

namespace shardline {
namespace {

using ::shardline::testing::ShakyShell;

TEST(SessionsProperty, AnyOrderOfEventsKeepsEveryPromise) {
  ShakyShell::Seen seen;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    ShakyShell shell(seed);
    for (int i = 0; i < 200 && shell.problem().empty(); ++i) shell.Step();
    if (shell.problem().empty()) shell.WindDown();
    ASSERT_EQ(shell.problem(), "") << "seed " << seed;
    seen.completed += shell.seen().completed;
    seen.completed_later += shell.seen().completed_later;
    seen.poisoned += shell.seen().poisoned;
    seen.taken_over += shell.seen().taken_over;
    seen.replayed += shell.seen().replayed;
    seen.unverified += shell.seen().unverified;
    seen.paced += shell.seen().paced;
    seen.let_in += shell.seen().let_in;
  }
  // The dice must not only break things.
  EXPECT_GT(seen.completed, 300);
  EXPECT_GT(seen.completed_later, 30);
  EXPECT_GT(seen.poisoned, 0);
  EXPECT_GT(seen.taken_over, 30);
  EXPECT_GT(seen.replayed, 30);
  EXPECT_GT(seen.unverified, 30);
  EXPECT_GT(seen.paced, 0);
  EXPECT_GT(seen.let_in, 30);
}

}  // namespace
}  // namespace shardline
