#include "node/rounds/round_planner.h"

#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace shardline {
namespace {

AttemptKey KeyOf(uint64_t session) { return {SessionId(session), Epoch(1)}; }

std::vector<ReadyRow> Ready(int count) {
  std::vector<ReadyRow> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back({.attempt = KeyOf(static_cast<uint64_t>(i) + 1), .position = 10 + i, .slot = i});
  }
  return rows;
}

std::vector<FillingPrompt> Filling(const std::vector<int32_t>& lefts) {
  std::vector<FillingPrompt> prompts;
  for (const int32_t left : lefts) {
    prompts.push_back(
        {.attempt = KeyOf(100 + prompts.size()), .position = 5, .tokens_left = left, .slot = 7});
  }
  return prompts;
}

TEST(RoundPlanner, TakesTheMthPartOfThoseThatDecodeFirstComeFirstServed) {
  const std::vector<ReadyRow> ready = Ready(7);
  const RoundPlan plan =
      ComposeRound({.lane = 3, .rounds_in_flight_max = 3, .decoding_count = 7, .ready = ready}, {});
  ASSERT_EQ(plan.rows.size(), 3U) << "ceil(7 / 3)";
  EXPECT_EQ(plan.lane, 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(plan.rows[i].attempt, KeyOf(i + 1));
  EXPECT_EQ(plan.rows[1].position, 11);
  EXPECT_EQ(plan.rows[1].slot, 1);
}

TEST(RoundPlanner, TakesWhoeverWasLeftBehindOftenEnoughBeyondTheShare) {
  std::vector<ReadyRow> ready = Ready(5);
  for (size_t i = 0; i < 4; ++i) ready[i].rounds_waited = 2;
  const RoundPlan plan =
      ComposeRound({.rounds_in_flight_max = 3, .decoding_count = 5, .ready = ready}, {});
  EXPECT_EQ(plan.rows.size(), 4U);
}

TEST(RoundPlanner, PiecesFollowTheDecodeRowsWithinTheirBudget) {
  const std::vector<ReadyRow> ready = Ready(1);
  const std::vector<FillingPrompt> filling = Filling({20, 100, 100});
  const RoundPlan plan = ComposeRound({.decoding_count = 1, .ready = ready, .filling = filling},
                                      {.piece_tokens_max = 32, .piece_tokens_decoding = 50});
  ASSERT_EQ(plan.rows.size(), 3U);
  EXPECT_EQ(plan.rows[1].kind, RoundRowKind::kFinal);
  EXPECT_EQ(plan.rows[1].token_count, 20);
  EXPECT_EQ(plan.rows[1].slot, 7);
  EXPECT_EQ(plan.rows[2].kind, RoundRowKind::kPiece);
  EXPECT_EQ(plan.rows[2].token_count, 30) << "the rest of the budget";
  EXPECT_EQ(plan.rows[2].slot, -1) << "nothing is drawn from it";
}

TEST(RoundPlanner, PiecesTakeMoreWhenNobodyDecodes) {
  const std::vector<FillingPrompt> filling = Filling({500, 500, 500});
  const RoundLimits limits = {
      .piece_tokens_max = 64, .piece_tokens_decoding = 16, .piece_tokens_idle = 150};
  const RoundPlan idle = ComposeRound({.filling = filling}, limits);
  ASSERT_EQ(idle.rows.size(), 3U);
  EXPECT_EQ(idle.rows[2].token_count, 150 - 128);
  // An attempt that decodes and is on its way counts, although no row of it is ready.
  const RoundPlan busy = ComposeRound({.decoding_count = 1, .filling = filling}, limits);
  ASSERT_EQ(busy.rows.size(), 1U);
  EXPECT_EQ(busy.rows[0].token_count, 16);
}

TEST(RoundPlanner, ARoundIsNeverMoreThanABundleHolds) {
  const std::vector<ReadyRow> ready = Ready(10);
  const std::vector<FillingPrompt> filling = Filling({4000, 4000});
  const LaneView view = {.decoding_count = 10, .ready = ready, .filling = filling};
  EXPECT_EQ(ComposeRound(view, {.rows_max = 4}).rows.size(), 4U);
  const RoundPlan plan = ComposeRound(
      view, {.tokens_max = 100, .piece_tokens_max = 4000, .piece_tokens_decoding = 4000});
  ASSERT_EQ(plan.rows.size(), 11U);
  EXPECT_EQ(plan.rows[10].token_count, 90);
}

TEST(RoundPlanner, NothingReadyIsAnEmptyRound) { EXPECT_TRUE(ComposeRound({}, {}).rows.empty()); }

// Attempts come and end in a ring of m rounds that come back in any order; each asks how many
// rounds began from its token to the one that carries its next.
TEST(RoundPlanner, NoReadyRowIsLeftBehindByMRounds) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int m = pick(1, 5);
    const int ends_one_in = pick(1, 5);
    const int arrives_one_in = pick(1, 200);
    std::deque<ReadyRow> ready;
    std::vector<std::vector<AttemptKey>> in_flight;
    std::vector<uint64_t> ready_at(1000);
    uint64_t begun = 0;
    uint64_t next = 1;
    int decoding = 0;
    for (int event = 0; event < 500; ++event) {
      // Many at once, now and then.
      const int arrivals =
          event % 100 == 0 ? pick(1, 60) : pick(1, arrives_one_in) / arrives_one_in;
      for (int i = 0; i < arrivals && next < 1000; ++i) {
        ready.push_back({.attempt = KeyOf(next)});
        ready_at[next++] = begun;
        ++decoding;
      }
      if (static_cast<int>(in_flight.size()) == m || (!in_flight.empty() && pick(0, 2) == 0)) {
        const int back = pick(0, static_cast<int>(in_flight.size()) - 1);
        for (const AttemptKey& key : in_flight[static_cast<size_t>(back)]) {
          if (pick(1, ends_one_in) == 1) {
            --decoding;
            continue;
          }
          ready.push_back({.attempt = key});
          ready_at[key.session.value()] = begun;
        }
        in_flight.erase(in_flight.begin() + back);
      }
      std::vector<ReadyRow> view(ready.begin(), ready.end());
      for (ReadyRow& row : view) row.rounds_waited = begun - ready_at[row.attempt.session.value()];
      const RoundPlan plan =
          ComposeRound({.rounds_in_flight_max = m, .decoding_count = decoding, .ready = view}, {});
      if (plan.rows.empty()) continue;
      ++begun;
      std::vector<AttemptKey> round;
      for (const RoundRow& row : plan.rows) {
        EXPECT_EQ(row.attempt, ready.front().attempt) << "in order";
        ready.pop_front();
        EXPECT_LE(begun - ready_at[row.attempt.session.value()], static_cast<uint64_t>(m))
            << "seed " << seed;
        round.push_back(row.attempt);
      }
      in_flight.push_back(std::move(round));
    }
  }
}

}  // namespace
}  // namespace shardline
