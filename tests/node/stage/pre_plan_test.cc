#include "node/stage/pre_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failure.h"
#include "base/version.h"
#include "gtest/gtest.h"
#include "node/stage/stage_plan.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;

// Writes down what is asked of it, and fails when it is told to.
class Recorder final : public RoundResource {
 public:
  Recorder(std::string name, std::vector<std::string>* calls)
      : name_(std::move(name)), calls_(calls) {}

  std::string_view name() const override { return name_; }
  absl::Status Stage(const RoundPlan& /*plan*/) override {
    calls_->push_back("stage " + name_);
    return stage_status;
  }
  absl::Status Check(const RoundPlan& /*plan*/) const override {
    calls_->push_back("check " + name_);
    return check_status;
  }
  void Promote() override { calls_->push_back("promote " + name_); }
  void Drop() override { calls_->push_back("drop " + name_); }

  absl::Status stage_status;
  absl::Status check_status;

 private:
  const std::string name_;
  std::vector<std::string>* const calls_;
};

class PrePlanOrder : public ::testing::Test {
 protected:
  std::string Calls() {
    std::string joined = absl::StrJoin(calls_, ", ");
    calls_.clear();
    return joined;
  }

  std::vector<std::string> calls_;
  Recorder a_{"a", &calls_};
  Recorder b_{"b", &calls_};
  Recorder c_{"c", &calls_};
  PrePlan guard_{{&a_, &b_, &c_}};
};

RoundPlan OneRow() {
  return {.walk = 4,
          .lane = 1,
          .rows = {{.attempt = {SessionId(7), Epoch(2)},
                    .step = StepIndex(5),
                    .position = 20,
                    .token_count = 1,
                    .slot = 3}},
          .kv_generation = 9};
}

TEST_F(PrePlanOrder, StagesAndPromotesInOrder) {
  ASSERT_THAT(guard_.Stage(OneRow()), IsOk());
  EXPECT_EQ(Calls(), "stage a, stage b, stage c");
  EXPECT_TRUE(guard_.Dispatch(OneRow()));
  EXPECT_EQ(Calls(), "check a, check b, check c, promote a, promote b, promote c");
  EXPECT_FALSE(guard_.staged().has_value());
  EXPECT_FALSE(guard_.Dispatch(OneRow())) << "a stage is used once";
  EXPECT_EQ(Calls(), "");
}

TEST_F(PrePlanOrder, DropsInReverseAndOnce) {
  ASSERT_THAT(guard_.Stage(OneRow()), IsOk());
  Calls();
  guard_.Drop("a round failed");
  EXPECT_EQ(Calls(), "drop c, drop b, drop a");
  guard_.Drop("a round failed");
  EXPECT_EQ(Calls(), "");
  EXPECT_EQ(guard_.stats().dropped, 1U);
}

TEST_F(PrePlanOrder, AnotherStageReplacesTheFirstEverywhere) {
  ASSERT_THAT(guard_.Stage(OneRow()), IsOk());
  Calls();
  ASSERT_THAT(guard_.Stage(OneRow()), IsOk());
  EXPECT_EQ(Calls(), "drop c, drop b, drop a, stage a, stage b, stage c");
}

TEST_F(PrePlanOrder, WhoeverCannotStageTakesTheOthersBack) {
  for (Recorder* failing : {&a_, &b_, &c_}) {
    failing->stage_status = MakeFailure(FailureKind::kKvExhausted, "no room");
    EXPECT_THAT(guard_.Stage(OneRow()), FailsWith(FailureKind::kKvExhausted));
    EXPECT_TRUE(Calls().ends_with("drop c, drop b, drop a"));
    EXPECT_FALSE(guard_.staged().has_value());
    EXPECT_FALSE(guard_.Dispatch(OneRow()));
    failing->stage_status = absl::OkStatus();
  }
  EXPECT_EQ(guard_.stats().unstaged, 3U);
}

TEST_F(PrePlanOrder, NobodyPromotesUnlessAllAgree) {
  for (Recorder* failing : {&a_, &b_, &c_}) {
    ASSERT_THAT(guard_.Stage(OneRow()), IsOk());
    failing->check_status = MakeFailure(FailureKind::kStepConflict, "not mine");
    calls_.clear();
    EXPECT_FALSE(guard_.Dispatch(OneRow()));
    const std::string calls = Calls();
    EXPECT_EQ(calls.find("promote"), std::string::npos) << calls;
    EXPECT_TRUE(calls.ends_with("drop c, drop b, drop a")) << calls;
    EXPECT_FALSE(guard_.staged().has_value());
    failing->check_status = absl::OkStatus();
  }
  EXPECT_EQ(guard_.stats().refused, 3U);
}

struct Foreign {
  const char* name;
  std::function<void(RoundPlan&)> change;
};

class ForeignRound : public ::testing::TestWithParam<Foreign> {};

TEST_P(ForeignRound, DropsTheStageEverywhereBeforeItGoesOn) {
  std::vector<std::string> calls;
  Recorder a("a", &calls);
  Recorder b("b", &calls);
  PrePlan guard({&a, &b});
  ASSERT_THAT(guard.Stage(OneRow()), IsOk());
  calls.clear();
  RoundPlan other = OneRow();
  GetParam().change(other);
  EXPECT_FALSE(guard.Dispatch(other));
  EXPECT_EQ(absl::StrJoin(calls, ", "), "drop b, drop a");
  EXPECT_EQ(guard.stats().displaced, 1U);
  EXPECT_FALSE(guard.Dispatch(OneRow())) << "the displaced round is planned afresh";
}

INSTANTIATE_TEST_SUITE_P(
    PrePlan, ForeignRound,
    ::testing::Values(Foreign{"Session",
                              [](RoundPlan& p) { p.rows[0].attempt.session = SessionId(8); }},
                      Foreign{"Epoch", [](RoundPlan& p) { p.rows[0].attempt.epoch = Epoch(3); }},
                      Foreign{"Step", [](RoundPlan& p) { p.rows[0].step = StepIndex(6); }},
                      Foreign{"Kind", [](RoundPlan& p) { p.rows[0].kind = RoundRowKind::kFinal; }},
                      Foreign{"ExpectedLength", [](RoundPlan& p) { p.rows[0].position = 21; }},
                      Foreign{"Span", [](RoundPlan& p) { p.rows[0].token_count = 2; }},
                      Foreign{"Rejected", [](RoundPlan& p) { p.rows[0].rejected = 1; }},
                      Foreign{"Slot", [](RoundPlan& p) { p.rows[0].slot = 4; }},
                      Foreign{"MoreRows", [](RoundPlan& p) { p.rows.push_back(p.rows[0]); }},
                      Foreign{"NoRows", [](RoundPlan& p) { p.rows.clear(); }},
                      Foreign{"Lane", [](RoundPlan& p) { p.lane = 2; }},
                      Foreign{"PaddedRows", [](RoundPlan& p) { p.padded_rows = 8; }},
                      Foreign{"CaptureKey", [](RoundPlan& p) { p.capture_key = 1; }},
                      Foreign{"KvGeneration", [](RoundPlan& p) { p.kv_generation = 10; }}),
    [](const ::testing::TestParamInfo<Foreign>& info) { return std::string(info.param.name); });

TEST(PrePlan, TheNumberOfTheRoundIsNoPartOfItsWork) {
  PrePlan guard({});
  ASSERT_THAT(guard.Stage(OneRow()), IsOk());
  RoundPlan later = OneRow();
  later.walk = 5;
  EXPECT_TRUE(guard.Dispatch(later));
}

// Slots that are leased when they are staged: an effect that others see, and that a drop undoes.
class LeasedSlots final : public RoundResource {
 public:
  explicit LeasedSlots(int32_t count) {
    for (int32_t slot = count - 1; slot >= 0; --slot) free_.push_back(slot);
  }

  std::string_view name() const override { return "slots"; }
  absl::Status Stage(const RoundPlan& plan) override {
    if (plan.rows.size() > free_.size()) return MakeFailure(FailureKind::kOverloaded, "no slots");
    for (const RoundRow& row : plan.rows) {
      (void)row;
      leased_.push_back(free_.back());
      free_.pop_back();
    }
    staged_ = plan;
    return absl::OkStatus();
  }
  absl::Status Check(const RoundPlan& plan) const override { return CheckStaged(staged_, plan); }
  void Promote() override {
    promoted_.insert(promoted_.end(), leased_.begin(), leased_.end());
    leased_.clear();
    staged_.reset();
  }
  void Drop() override {
    free_.insert(free_.end(), leased_.rbegin(), leased_.rend());
    leased_.clear();
    staged_.reset();
  }

  void FreePromoted() {
    free_.insert(free_.end(), promoted_.rbegin(), promoted_.rend());
    promoted_.clear();
  }
  std::string Print() const {
    return absl::StrCat("free ", absl::StrJoin(free_, " "), "; leased ",
                        absl::StrJoin(leased_, " "), "; in force ", absl::StrJoin(promoted_, " "));
  }

 private:
  std::vector<int32_t> free_;
  std::vector<int32_t> leased_;
  std::vector<int32_t> promoted_;
  std::optional<RoundPlan> staged_;
};

// The real page tables and headers, slots with effects, and two that fail at random, while KV is
// reserved, appended, committed and released in between. A second pool without any guard hears the
// same of the KV; whenever nothing is staged, nothing tells the two worlds apart.
class RandomRounds {
 public:
  explicit RandomRounds(uint32_t seed) : random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      ASSERT_EQ(Print(kv_), Print(plain_kv_)) << "after event " << i;
      kv_.CheckConservation();
    }
  }

  uint64_t promoted() const { return guard_.stats().promoted; }
  uint64_t displaced() const { return guard_.stats().displaced; }
  uint64_t refused() const { return guard_.stats().refused + guard_.stats().unstaged; }

 private:
  static constexpr uint64_t kSessions = 6;

  uint64_t Pick(uint64_t count) { return random_() % count; }
  AttemptKey KeyOf(uint64_t session) const {
    return {SessionId(session), Epoch(epochs_.contains(session) ? epochs_.at(session) : 1)};
  }

  std::string Print(const HotKvManager& kv) const {
    std::string out = absl::StrCat(kv.pages_free(), " free, generation ", kv.generation());
    for (uint64_t session = 0; session < kSessions; ++session) {
      const AttemptKey key = KeyOf(session);
      const auto table = kv.Resolve(key, kv.LengthOf(key));
      if (!table.ok()) continue;
      absl::StrAppend(&out, "; ", session, ": ", kv.LengthOf(key), " of ", kv.TakenLengthOf(key),
                      " in ", absl::StrJoin(*table, ","));
    }
    return out;
  }

  // Rows that the sessions might send next, mostly right.
  RoundPlan Draw() {
    RoundPlan plan{.walk = ++walk_, .lane = 1, .kv_generation = kv_.generation()};
    for (uint64_t session = 0; session < kSessions; ++session) {
      const AttemptKey key = KeyOf(session);
      const bool is_open = kv_.PagesOf(key) > 0 || Pick(20) == 0;
      if (!is_open || Pick(2) == 0) continue;
      plan.rows.push_back({.attempt = key,
                           .step = StepIndex(static_cast<uint64_t>(kv_.TakenLengthOf(key))),
                           .position = kv_.TakenLengthOf(key) + (Pick(40) == 0 ? 1 : 0),
                           .token_count = 1 + static_cast<int32_t>(Pick(3))});
    }
    if (Pick(16) == 0) ++plan.kv_generation;
    return plan;
  }

  void Stage() {
    const RoundPlan plan = Draw();
    std::vector<BundleRow> rows;
    for (const RoundRow& row : plan.rows) {
      rows.push_back({.key = {row.attempt, row.step}, .position = row.position});
    }
    guard_.Drop("another round is to be staged");
    const std::string before = slots_.Print();
    headers_.Offer(rows);
    (Pick(8) == 0 ? first_ : last_).stage_status = Flaw(4);
    if (guard_.Stage(plan).ok()) {
      staged_ = plan;
      before_ = before;
    } else {
      EXPECT_EQ(slots_.Print(), before) << "a stage that failed left something";
    }
    first_.stage_status = last_.stage_status = absl::OkStatus();
  }

  void Dispatch() {
    // Mostly what was staged, if the world is still as it was then; else any other round.
    RoundPlan plan = Pick(4) == 0 ? Draw() : staged_;
    plan.kv_generation = kv_.generation();
    const bool was_staged = guard_.staged().has_value();
    (Pick(2) == 0 ? first_ : last_).check_status = Flaw(8);
    const bool is_promoted = guard_.Dispatch(plan);
    first_.check_status = last_.check_status = absl::OkStatus();
    EXPECT_FALSE(guard_.staged().has_value());
    const std::vector<std::vector<int32_t>> tables = pages_.TakeTables();
    EXPECT_EQ(headers_.TakeRows().size(), tables.size());
    if (!is_promoted) {
      EXPECT_TRUE(tables.empty());
      if (was_staged) EXPECT_EQ(slots_.Print(), before_) << "a drop left something";
    } else {
      ASSERT_TRUE(was_staged);
      ASSERT_EQ(tables.size(), plan.rows.size());
    }
    // The round runs, on tables that are its own whether they were staged or not.
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const RoundRow& row = plan.rows[i];
      const auto table = kv_.Append(row.attempt, row.position, row.token_count);
      if (is_promoted) {
        ASSERT_THAT(table, IsOk());
        EXPECT_EQ(tables[i], std::vector<int32_t>(table->begin(), table->end()));
      }
      (void)plain_kv_.Append(row.attempt, row.position, row.token_count);
    }
    slots_.FreePromoted();
  }

  absl::Status Flaw(uint64_t one_in) {
    if (Pick(one_in) != 0) return absl::OkStatus();
    return MakeFailure(FailureKind::kStepConflict, "as the test says");
  }

  void ChangeKv() {
    const uint64_t session = Pick(kSessions);
    const AttemptKey key = KeyOf(session);
    const int32_t appended = kv_.TakenLengthOf(key) - kv_.LengthOf(key);
    for (HotKvManager* kv : {&kv_, &plain_kv_}) {
      switch (kind_) {
        case 0:
        case 1:
        case 2:
          (void)kv->Reserve(key, 40 + static_cast<int32_t>(size_));
          break;
        case 3:
          kv->Release(key);
          break;
        case 4:
          if (appended > 0) kv->Abandon(key, 1);
          break;
        default:
          if (appended > 0) kv->Commit(key, appended);
      }
    }
    if (kind_ == 3) epochs_[session] = KeyOf(session).epoch.value() + 1;
  }

  void Step() {
    kind_ = Pick(8);
    size_ = Pick(60);
    switch (Pick(10)) {
      case 0:
      case 1:
      case 2:
        Stage();
        break;
      case 3:
      case 4:
      case 5:
        Dispatch();
        break;
      case 6:
        if (guard_.staged()) {
          guard_.Drop("cancelled");
          EXPECT_EQ(slots_.Print(), before_);
        }
        break;
      default:
        ChangeKv();
    }
  }

  std::mt19937_64 random_;
  HotKvManager kv_{64};
  HotKvManager plain_kv_{64};
  StagedPages pages_{&kv_};
  StagedHeaders headers_{[](const BundleRow& row) { return row; }};
  LeasedSlots slots_{8};
  std::vector<std::string> calls_;
  Recorder first_{"first", &calls_};
  Recorder last_{"last", &calls_};
  PrePlan guard_{{&first_, &pages_, &slots_, &headers_, &last_}};
  RoundPlan staged_;
  std::string before_;  // The slots, before the stage that stands.
  std::map<uint64_t, uint64_t> epochs_;
  uint64_t walk_ = 0;
  uint64_t kind_ = 0;
  uint64_t size_ = 0;
};

TEST(PrePlan, AStageAndItsDropLeaveNothingBehind) {
  uint64_t promoted = 0;
  uint64_t displaced = 0;
  uint64_t refused = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomRounds rounds(seed);
    rounds.Run(500);
    promoted += rounds.promoted();
    displaced += rounds.displaced();
    refused += rounds.refused();
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(promoted, 300U);
  EXPECT_GT(displaced, 300U);
  EXPECT_GT(refused, 300U);
}

// The guard's word is not taken for it.
TEST(StagedPages, RefuseWhatTheyWereNotStagedFor) {
  HotKvManager kv(8);
  const AttemptKey key{SessionId(7), Epoch(1)};
  const AttemptKey other{SessionId(8), Epoch(1)};
  ASSERT_THAT(kv.Reserve(key, 32), IsOk());
  ASSERT_THAT(kv.Reserve(other, 32), IsOk());
  StagedPages pages(&kv);
  const RoundPlan plan{.rows = {{.attempt = key, .token_count = 1}},
                       .kv_generation = kv.generation()};
  RoundPlan foreign = plan;
  foreign.rows[0].attempt = other;
  EXPECT_THAT(pages.Check(plan), FailsWith(FailureKind::kStepConflict)) << "nothing is staged";
  ASSERT_THAT(pages.Stage(plan), IsOk());
  EXPECT_THAT(pages.Check(plan), IsOk());
  EXPECT_THAT(pages.Check(foreign), FailsWith(FailureKind::kStepConflict));
  ASSERT_THAT(kv.Append(key, 0, 1), IsOk());
  EXPECT_THAT(pages.Check(plan), FailsWith(FailureKind::kStepConflict)) << "it has grown";
  kv.Abandon(key, 1);
  EXPECT_THAT(pages.Check(plan), IsOk());
  kv.Release(other);
  EXPECT_THAT(pages.Check(plan), FailsWith(FailureKind::kStepConflict)) << "pages were lost";
}

TEST(StagedPages, StageNothingThatTheKvCannotHold) {
  HotKvManager kv(8);
  const AttemptKey key{SessionId(7), Epoch(1)};
  ASSERT_THAT(kv.Reserve(key, kPageTokens), IsOk());
  ASSERT_THAT(kv.Append(key, 0, 4), IsOk());
  StagedPages pages(&kv);
  const auto stage = [&](RoundRow row, uint64_t generation = 0) {
    const absl::Status status = pages.Stage({.rows = {row}, .kv_generation = generation});
    pages.Drop();
    return status;
  };
  EXPECT_THAT(stage({.attempt = key, .position = 4, .token_count = kPageTokens - 4}), IsOk());
  EXPECT_THAT(stage({.attempt = key, .position = 4, .token_count = kPageTokens - 3}),
              FailsWith(FailureKind::kKvExhausted));
  EXPECT_THAT(stage({.attempt = key, .position = 3, .token_count = 1, .rejected = 1}), IsOk());
  EXPECT_THAT(stage({.attempt = key, .position = 3, .token_count = 1}),
              FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(stage({.attempt = key, .position = 4, .token_count = 0}),
              FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(stage({.attempt = key, .position = 4, .token_count = 1}, 1),
              FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(stage({.attempt = {SessionId(9), Epoch(1)}, .token_count = 1}),
              FailsWith(FailureKind::kCacheMiss));
}

}  // namespace
}  // namespace shardline
