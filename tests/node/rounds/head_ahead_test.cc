// A head that prepares its next rounds sends what one that does not sends.

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/prefix_chain.h"
#include "gtest/gtest.h"
#include "node/rounds/head_core.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;

// Sure that each token is followed by the next number.
class Counter final : public Proposer {
 public:
  std::string_view name() const override { return "counter"; }
  void Accept(std::span<const int32_t> tokens) override {
    if (!tokens.empty()) last_ = tokens.back();
  }
  std::vector<Draft> Propose(size_t count) const override {
    std::vector<Draft> drafts;
    for (size_t i = 0; i < std::min(count, kDraftsMax); ++i) {
      drafts.push_back({.token = NextTo(last_ + static_cast<int32_t>(i)), .chance = 0.95F});
    }
    return drafts;
  }

  static int32_t NextTo(int32_t token) { return (token + 1) % 50; }

 private:
  static constexpr size_t kDraftsMax = 7;  // What it sees ahead.

  int32_t last_ = 0;
};

HeadOptions Options(bool stages_ahead, bool drafts = false) {
  return {.node = NodeId("a"),
          .layers = {.begin = 0, .end = 2},
          .vocab_size = 50,
          .hidden_dim = 1,
          .context_tokens_max = 128,
          .chunk_tokens_max = 12,
          .piece_tokens_decoding = 16,
          .piece_tokens_idle = 32,
          .attempts_max = 5,
          .samples_max = 8,
          .drafts = drafts,
          .draft_pricer = {.drafts_max = 3},
          .proposers =
              [](const RunAttempt&) {
                std::vector<std::unique_ptr<Proposer>> proposers;
                proposers.push_back(std::make_unique<Counter>());
                return proposers;
              },
          .stages_ahead = stages_ahead,
          .step_timeout_min = absl::Hours(1),
          .step_timeout_max = absl::Hours(1)};
}

RouteStage Stage(const std::string& node) {
  return {.node = NodeId(node), .incarnation = Incarnation(1)};
}

RunAttempt RunOf(uint64_t session, size_t prompt_tokens, int32_t new_tokens_max) {
  RunAttempt run{.key = {SessionId(session), Epoch(1)},
                 .new_tokens_max = new_tokens_max,
                 .budget = absl::Hours(1),
                 .route = {Stage("a"), Stage("b")},
                 .tokens_max = 128,
                 .prefix_root = PrefixRoot(ModelId("m"), NumericsId("cpu"), "t"),
                 .rounds_in_flight = 1,
                 .step_cost = absl::Milliseconds(10),
                 .row_cost = absl::Milliseconds(1)};
  for (size_t i = 0; i < prompt_tokens; ++i) {
    run.prompt.push_back(static_cast<int32_t>((session + 7 * i) % 50));
  }
  return run;
}

std::string Print(const BundleRow& row) {
  return absl::StrCat(" [", row.key.attempt.session.value(), " step ", row.key.step.value(), " at ",
                      row.position, " of ", row.token_count, " flags ", row.flags, " key ",
                      absl::BytesToHexString(row.prefix_key.ToBytes()), "]");
}

// Everything but what is said ahead.
std::string Print(const HeadActions& actions) {
  std::string out;
  for (const ComputeJob& job : actions.jobs) {
    absl::StrAppend(&out, "\njob ", job.id);
    for (const SampleTarget& sample : job.samples) {
      absl::StrAppend(&out, " [", sample.key.attempt.session.value(), " step ",
                      sample.key.step.value(), " row ", sample.row, " index ", sample.index, "]");
    }
  }
  for (const StageBundle& step : actions.steps) {
    absl::StrAppend(&out, "\nstep of ", absl::StrJoin(step.tokens, ","));
    for (const BundleRow& row : step.rows) {
      absl::StrAppend(&out, Print(row), absl::FormatDuration(row.budget));
    }
  }
  for (const TokenOut& token : actions.tokens) {
    absl::StrAppend(&out, "\ntoken ", token.key.session.value(), " ", token.index);
  }
  for (const AttemptEnd& end : actions.ends) {
    absl::StrAppend(&out, "\nend ", end.key.session.value(), " ", end.status.ToString(), " after ",
                    end.tokens, " gap ", end.timings.rounds_between_max);
  }
  return out;
}

// The hidden state of `bundle`, back from the last stage: of a row that is verified all of it.
StageBundle BackOf(const StageBundle& bundle) {
  StageBundle back;
  size_t row_count = 0;
  for (BundleRow row : bundle.rows) {
    if ((row.flags & kRowWantsAllLogits) == 0) {
      row.position += row.token_count - 1;
      row.token_count = 1;
    }
    row_count += static_cast<size_t>(row.token_count);
    back.rows.push_back(row);
  }
  back.hidden = Buffer::Allocate(row_count * sizeof(float));
  return back;
}

// Of each target the first `right` drafts are right, and `token` comes behind them.
ComputeDone DrawnOf(const ComputeJob& job, int32_t token, size_t right = 0) {
  ComputeDone done{.id = job.id};
  for (const SampleTarget& sample : job.samples) {
    SampleResult result{.key = sample.key};
    for (size_t i = 0; i < std::min(right, sample.drafts.size()); ++i) {
      result.tokens.push_back({.token = sample.drafts[i]});
    }
    result.tokens.push_back({.token = token});
    done.samples.push_back(std::move(result));
  }
  return done;
}

// Two heads that hear the same; one of them prepares.
class Twins {
 public:
  Twins(uint32_t seed, bool drafts)
      : random_(seed), ahead_(Options(true, drafts)), plain_(Options(false, drafts)) {}

  void RunAll(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) Event(/*may_begin=*/true);
    for (int i = 0; i < 20000 && plain_.attempts_running() > 0; ++i) Event(/*may_begin=*/false);
    EXPECT_EQ(ahead_.attempts_running(), 0U);
    while (!jobs_.empty()) Draw();
    EXPECT_EQ(ahead_.slots_free(), ahead_.options().attempts_max) << "a stage kept a slot";
    EXPECT_EQ(ahead_.stages_standing(), 0U);
  }

  const HeadStats& stats() const { return ahead_.stats(); }

 private:
  uint64_t Pick(uint64_t count) { return random_() % count; }

  template <typename Call>
  void Both(Call call) {
    call(ahead_);
    call(plain_);
    HeadActions ahead = ahead_.TakeActions();
    EXPECT_EQ(Print(ahead), Print(plain_.TakeActions()));
    EXPECT_LE(ahead_.stages_standing(), ahead_.attempts_running());
    EXPECT_EQ(plain_.stages_standing(), 0U);
    for (StageBundle& step : ahead.steps) out_.push_back(std::move(step));
    for (ComputeJob& job : ahead.jobs) jobs_.push_back(std::move(job));
  }

  void Begin() {
    RunAttempt run = RunOf(++session_, 1 + Pick(50), 1 + static_cast<int32_t>(Pick(20)));
    if (Pick(4) == 0) run.route[1] = Stage("c");
    if (Pick(3) == 0) run.stop_tokens = {static_cast<int32_t>(Pick(50))};
    run.tenant = Pick(2) == 0 ? "t" : "u";
    run.rounds_in_flight = 1 + static_cast<int32_t>(session_ / 8 % 3);
    Both([&](HeadCore& head) { (void)head.OnRun(run, now_); });
  }

  void Return() {
    if (out_.empty()) return;
    // Lanes overtake each other, and now and then rounds do.
    const size_t index = Pick(6) == 0 ? Pick(out_.size()) : 0;
    StageBundle bundle = std::move(out_[index]);
    out_.erase(out_.begin() + static_cast<std::ptrdiff_t>(index));
    if (Pick(40) == 0) {
      const StepKey key = bundle.rows[Pick(bundle.rows.size())].key;
      Both([&](HeadCore& head) {
        head.OnRowFailure({.key = key, .status = MakeFailure(FailureKind::kDeviceLost, "gone")},
                          now_);
      });
    }
    if (bundle.rows.size() > 1 && Pick(10) == 0) {  // Half of it comes later.
      StageBundle rest;
      rest.rows.push_back(bundle.rows.back());
      bundle.rows.pop_back();
      out_.push_back(std::move(rest));
    }
    const StageBundle back = BackOf(bundle);
    Both([&](HeadCore& head) { head.OnReturn(back, now_); });
  }

  void Draw() {
    if (jobs_.empty()) return;
    // Mostly as counted.
    const std::vector<SampleTarget>& samples = jobs_.front().samples;
    const bool counts = Pick(4) != 0 && !samples.empty() && !samples[0].drafts.empty();
    const int32_t token =
        counts ? Counter::NextTo(samples[0].drafts.back()) : static_cast<int32_t>(Pick(50));
    ComputeDone done = DrawnOf(jobs_.front(), token, Pick(4) == 0 ? Pick(3) : 3);
    jobs_.pop_front();
    if (!done.samples.empty() && Pick(40) == 0) {
      done.samples[0].tokens.clear();
      done.samples[0].status = MakeFailure(FailureKind::kNonFinite, "NaN");
    }
    Both([&](HeadCore& head) { head.OnComputeDone(done, now_); });
  }

  void Event(bool may_begin) {
    now_ = now_ + absl::Milliseconds(1);
    switch (Pick(24)) {
      case 0:
        if (may_begin) Begin();
        break;
      case 1:
        if (Pick(6) != 0) break;
        Both([&, id = 1 + Pick(session_ + 1)](HeadCore& head) {
          head.OnCancel({SessionId(id), Epoch(1)}, now_);
        });
        break;
      case 2:
        Both([&](HeadCore& head) { head.OnTick(now_); });
        break;
      default:
        if (Pick(2) == 0) {
          Return();
        } else {
          Draw();
        }
    }
  }

  std::mt19937_64 random_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  HeadCore ahead_;
  HeadCore plain_;
  uint64_t session_ = 0;
  std::deque<StageBundle> out_;
  std::deque<ComputeJob> jobs_;
};

HeadStats SumOfTwins(bool drafts) {
  HeadStats sum;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Twins twins(seed, drafts);
    twins.RunAll(1000);
    if (::testing::Test::HasFailure()) return sum;
    sum.rounds += twins.stats().rounds;
    sum.rounds_staged += twins.stats().rounds_staged;
    sum.rounds_promoted += twins.stats().rounds_promoted;
    sum.rounds_displaced += twins.stats().rounds_displaced;
    sum.rounds_dropped += twins.stats().rounds_dropped;
    sum.rounds_refused += twins.stats().rounds_refused;
    sum.tokens_accepted += twins.stats().tokens_accepted;
    sum.attempts_failed += twins.stats().attempts_failed;
  }
  return sum;
}

TEST(HeadAhead, WhatIsPreparedIsWhatWouldHaveBeenSent) {
  const HeadStats sum = SumOfTwins(/*drafts=*/false);
  EXPECT_GT(sum.rounds, 5000U);
  EXPECT_GT(sum.rounds_promoted, sum.rounds / 4);
  EXPECT_GT(sum.rounds_displaced, 100U) << "rounds that came otherwise must be among them";
  EXPECT_GT(sum.attempts_failed, 100U);
  EXPECT_GT(sum.rounds_dropped, 100U);
  EXPECT_EQ(sum.rounds_refused, 0U) << "the first line of defence lets nothing through";
}

TEST(HeadAhead, WhatIsPreparedWithDraftsIsWhatWouldHaveBeenSent) {
  const HeadStats sum = SumOfTwins(/*drafts=*/true);
  EXPECT_GT(sum.rounds, 5000U);
  EXPECT_GT(sum.tokens_accepted, 1000U);
  EXPECT_GT(sum.rounds_promoted, sum.rounds / 10);
  EXPECT_GT(sum.rounds_displaced, 100U) << "drafts are wrong now and then";
  EXPECT_EQ(sum.rounds_refused, 0U);
}

class HeadAheadOf : public ::testing::Test {
 protected:
  void Begin(const RunAttempt& run) { ASSERT_THAT(head_.OnRun(run, now_), IsOk()); }

  // The round that goes out now comes back, and its tokens are drawn.
  HeadActions Lap(HeadActions actions) {
    head_.OnReturn(BackOf(actions.steps.at(0)), now_);
    HeadActions drawing = head_.TakeActions();
    if (drawing.jobs.empty()) return drawing;
    head_.OnComputeDone(DrawnOf(drawing.jobs.at(0), 9), now_);
    return head_.TakeActions();
  }

  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  HeadCore head_{Options(true)};
};

TEST_F(HeadAheadOf, EveryRoundOfASteadyStreamIsPrepared) {
  Begin(RunOf(1, 40, 30));
  Begin(RunOf(2, 3, 30));
  HeadActions actions = head_.TakeActions();
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(actions.steps.empty());
    actions = Lap(std::move(actions));
    ASSERT_TRUE(actions.plan.has_value()) << "round " << i;
  }
  EXPECT_GE(head_.stats().rounds_promoted, 20U);
  EXPECT_EQ(head_.stats().rounds_displaced, 0U);
}

TEST(HeadAheadWithDrafts, ARoundBehindDraftsThatAreRightIsPreparedDraftsIncluded) {
  HeadCore head(Options(true, /*drafts=*/true));
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  RunAttempt run = RunOf(1, 5, 40);
  run.prefix_root = {};  // Else no row is prepared whose page ends with what is being verified.
  ASSERT_THAT(head.OnRun(std::move(run), now), IsOk());
  HeadActions actions = head.TakeActions();
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(absl::StrCat("round ", i));
    ASSERT_TRUE(actions.plan.has_value());
    const BundleRow foreseen = actions.plan->at(0);
    const int32_t last = actions.steps.at(0).tokens.back();
    head.OnReturn(BackOf(actions.steps.at(0)), now);
    HeadActions drawing = head.TakeActions();
    head.OnComputeDone(DrawnOf(drawing.jobs.at(0), Counter::NextTo(last), 3), now);
    actions = head.TakeActions();
    ASSERT_EQ(actions.steps.size(), 1U);
    EXPECT_EQ(actions.steps[0].rows.at(0).token_count, 4) << "three drafts";
    EXPECT_EQ(Print(actions.steps[0].rows[0]), Print(foreseen));
  }
  EXPECT_EQ(head.stats().rounds_promoted, 6U);
  EXPECT_EQ(head.stats().rounds_displaced, 0U);
}

TEST(HeadAheadWithDrafts, OneWrongDraftAndAnotherRoundGoesOut) {
  HeadCore head(Options(true, /*drafts=*/true));
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  ASSERT_THAT(head.OnRun(RunOf(1, 5, 40), now), IsOk());
  HeadActions actions = head.TakeActions();
  for (int i = 0; i < 2; ++i) {
    head.OnReturn(BackOf(actions.steps.at(0)), now);
    const HeadActions drawing = head.TakeActions();
    const int32_t last = actions.steps[0].tokens.back();
    head.OnComputeDone(DrawnOf(drawing.jobs.at(0), Counter::NextTo(last), i == 0 ? 3 : 2), now);
    actions = head.TakeActions();
  }
  EXPECT_EQ(actions.steps.at(0).rows.at(0).rejected, 1);
  EXPECT_EQ(head.stats().rounds_promoted, 1U);
  EXPECT_EQ(head.stats().rounds_displaced, 1U);
}

// So that the own stage can prepare its batch too.
TEST_F(HeadAheadOf, TheOwnStageHearsWhatTheNextBundleIs) {
  Begin(RunOf(1, 5, 30));
  const HeadActions first = head_.TakeActions();
  ASSERT_TRUE(first.plan.has_value());
  const HeadActions second = Lap(first);
  ASSERT_EQ(second.steps.at(0).rows.size(), first.plan->size());
  EXPECT_EQ(Print(second.steps[0].rows[0]), Print(first.plan->at(0)));
}

TEST_F(HeadAheadOf, NothingIsPreparedForAnAttemptThatEndsWithThisRound) {
  Begin(RunOf(1, 5, 1));
  EXPECT_FALSE(head_.TakeActions().plan.has_value());
  EXPECT_EQ(head_.stages_standing(), 0U);
}

TEST_F(HeadAheadOf, AStageGoesWithTheAttemptItWasFor) {
  const auto gone_after = [](auto change) {
    HeadCore head(Options(true));
    const Instant now = Instant::FromOrigin(absl::Seconds(100));
    EXPECT_THAT(head.OnRun(RunOf(1, 5, 30), now), IsOk());
    head.TakeActions();
    EXPECT_EQ(head.stages_standing(), 1U);
    change(head, now);
    EXPECT_EQ(head.attempts_running(), 0U);
    EXPECT_TRUE(head.TakeActions().plan_is_off) << "the own stage hears it";
    return head.stages_standing() == 0 && head.slots_free() == head.options().attempts_max;
  };
  const AttemptKey key{SessionId(1), Epoch(1)};
  EXPECT_TRUE(gone_after([&](HeadCore& head, Instant now) { head.OnCancel(key, now); }));
  EXPECT_TRUE(gone_after([&](HeadCore& head, Instant now) {
    head.OnFence(SessionId(1), Epoch(1), FailureKind::kNone, now);
  }));
  EXPECT_TRUE(gone_after([&](HeadCore& head, Instant now) {
    head.Halt(absl::CancelledError("the shard goes away"), now);
  }));
  EXPECT_TRUE(gone_after([&](HeadCore& head, Instant now) {
    head.OnRowFailure(
        {.key = {key, StepIndex(0)}, .status = MakeFailure(FailureKind::kDeviceLost, "gone")}, now);
  }));
  EXPECT_TRUE(gone_after([&](HeadCore& head, Instant now) { head.OnTick(now + absl::Hours(2)); }));
}

TEST_F(HeadAheadOf, APromptThatComesIsForeseenAnew) {
  Begin(RunOf(1, 5, 30));
  const HeadActions first = head_.TakeActions();
  Begin(RunOf(2, 5, 30));
  const HeadActions second = head_.TakeActions();
  ASSERT_TRUE(second.plan.has_value());
  EXPECT_EQ(second.plan->size(), 2U);
  EXPECT_EQ(Lap(first).steps.at(0).rows.size(), 2U);
  EXPECT_EQ(head_.stats().rounds_promoted, 1U);
  EXPECT_EQ(head_.stats().rounds_displaced, 0U);
}

TEST_F(HeadAheadOf, LanesDoNotDisplaceEachOther) {
  RunAttempt other = RunOf(2, 5, 30);
  other.route[1] = Stage("c");
  Begin(RunOf(1, 5, 30));
  HeadActions first = head_.TakeActions();
  Begin(other);
  HeadActions second = head_.TakeActions();
  for (int i = 0; i < 10; ++i) {
    first = Lap(std::move(first));
    second = Lap(std::move(second));
  }
  EXPECT_EQ(head_.stats().rounds_promoted, 20U);
  EXPECT_EQ(head_.stats().rounds_displaced, 0U);
}

std::shared_ptr<Sampler> AnySampler() {
  return std::make_shared<Sampler>(SamplingParams(), 50, std::vector<int32_t>(),
                                   std::vector<int32_t>());
}

TEST(StagedSlots, KeepASlotThatIsGivenBackUntilTheStageIsGone) {
  SamplerSlots slots(2);
  std::map<AttemptKey, SamplerLease> leases;
  const AttemptKey key{SessionId(1), Epoch(1)};
  leases[key] = *slots.Lease(AnySampler());
  StagedSlots staged(&slots, [&](const AttemptKey& of) -> std::optional<SamplerLease> {
    const auto it = leases.find(of);
    return it == leases.end() ? std::nullopt : std::optional(it->second);
  });
  const RoundPlan plan{.rows = {{.attempt = key, .slot = leases[key].slot}}};
  EXPECT_THAT(staged.Check(plan), FailsWith(FailureKind::kStepConflict));
  ASSERT_THAT(staged.Stage(plan), IsOk());
  EXPECT_THAT(staged.Check(plan), IsOk());
  slots.GiveBack(leases[key]);
  EXPECT_EQ(slots.free_count(), 1U) << "not to be leased to another";
  EXPECT_THAT(staged.Check(plan), FailsWith(FailureKind::kStepConflict)) << "the second line";
  staged.Drop();
  EXPECT_EQ(slots.free_count(), 2U);
  EXPECT_THAT(staged.Stage(plan), FailsWith(FailureKind::kStepConflict)) << "it stands no more";
}

// Which slots are free, who gets which next, and which leases stand: all as if nothing had been
// staged, whatever is leased and given back, and however the stage ends.
TEST(StagedSlots, AStageAndItsDropLeaveNothingBehind) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    SamplerSlots slots(6);
    SamplerSlots plain(6);
    std::map<AttemptKey, std::pair<SamplerLease, SamplerLease>> leases;
    StagedSlots staged(&slots, [&](const AttemptKey& of) -> std::optional<SamplerLease> {
      const auto it = leases.find(of);
      return it == leases.end() ? std::nullopt : std::optional(it->second.first);
    });
    PrePlan guard({&staged});
    for (int i = 0; i < 2000; ++i) {
      const AttemptKey key{SessionId(random() % 8), Epoch(1)};
      RoundPlan plan;
      for (const auto& [of, lease] : leases) {
        const int32_t slot = lease.first.slot + (random() % 12 == 0 ? 1 : 0);
        if (random() % 2 == 0) plan.rows.push_back({.attempt = of, .slot = slot});
      }
      switch (random() % 4) {
        case 0:
          (void)guard.Stage(plan);
          continue;
        case 1:
          (void)guard.Dispatch(random() % 2 == 0 && guard.staged() ? *guard.staged() : plan);
          break;
        case 2:
          guard.Drop();
          break;
        default:
          guard.Drop();
          if (leases.contains(key)) {
            slots.GiveBack(leases[key].first);
            plain.GiveBack(leases[key].second);
            leases.erase(key);
          } else if (plain.free_count() > 0) {
            const SamplerLease lease = *slots.Lease(AnySampler());
            leases[key] = {lease, *plain.Lease(AnySampler())};
          }
      }
      ASSERT_EQ(slots.free_count(), plain.free_count()) << "seed " << seed << " event " << i;
      for (const auto& [of, pair] : leases) ASSERT_EQ(pair.first, pair.second);
    }
  }
}

}  // namespace
}  // namespace shardline
