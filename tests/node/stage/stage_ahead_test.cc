// A stage that is told ahead what comes does what one that is not told does, whatever it is told.

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;

// The middle stage of routes that begin at "a" or at "x" and end at "c".
StageOptions Options() {
  return {.node = NodeId("b"),
          .incarnation = Incarnation(1),
          .recipe = {.model_id = ModelId("m")},
          .layers = {.begin = 2, .end = 4},
          .layers_total = 6,
          .hidden_dim = 1,
          .pages_total = 64,
          .context_tokens_max = 64,
          .bundle_rows_max = 8,
          .job_tokens_max = 32};
}

StagePeer Peer(const std::string& name) {
  return {.node = NodeId(name), .incarnation = Incarnation(1)};
}

OpenAttempt OpenOf(const AttemptKey& key, const std::string& from, int32_t tokens_max = 64) {
  OpenAttempt open{.key = key,
                   .term = Term(1),
                   .incarnation = Incarnation(1),
                   .recipe = Options().recipe,
                   .stage_index = 1,
                   .tokens_max = tokens_max,
                   .budget = absl::Hours(1)};
  int32_t layer = 0;
  for (const std::string& name : {from, std::string("b"), std::string("c")}) {
    open.route.push_back({.node = NodeId(name),
                          .incarnation = Incarnation(1),
                          .layers = {.begin = layer, .end = layer + 2}});
    layer += 2;
  }
  return open;
}

std::string Print(const BundleRow& row) {
  return absl::StrCat(row.key.attempt.session.value(), "/", row.key.attempt.epoch.value(), " step ",
                      row.key.step.value(), " at ", row.position, " of ", row.token_count, " hop ",
                      row.hop, " flags ", row.flags, " chain ", row.chain);
}

std::string Print(const StageActions& actions) {
  std::string out;
  const auto rows = [&](const std::vector<BundleRow>& of) {
    for (const BundleRow& row : of) absl::StrAppend(&out, " [", Print(row), "]");
  };
  for (const ComputeJob& job : actions.jobs) {
    absl::StrAppend(&out, "\njob ", job.id, " of ", job.hidden->size());
    for (const JobSlice& slice : job.slices) {
      absl::StrAppend(&out, " [", slice.key.attempt.session.value(), " at ", slice.position, " of ",
                      slice.token_count, " in ", absl::StrJoin(slice.pages, ","), "]");
    }
  }
  for (const Forward& forward : actions.forwards) {
    absl::StrAppend(&out, "\nto ", forward.to.node.value());
    rows(forward.bundle.rows);
  }
  for (const Announcement& plan : actions.plans) {
    absl::StrAppend(&out, "\nplan to ", plan.to.node.value());
    rows(plan.rows);
  }
  for (const Refusal& refusal : actions.refusals) {
    absl::StrAppend(&out, "\nrefused to ", refusal.to.node.value(), " step ",
                    refusal.failure.key.step.value(), ": ", refusal.failure.status.ToString());
  }
  for (const RouteStage& stage : actions.redials)
    absl::StrAppend(&out, "\nredial ", stage.node.value());
  for (const Inspect& inspect : actions.inspects) {
    absl::StrAppend(&out, "\ninspect ", inspect.to.node.value(), " ", inspect.rows.size());
  }
  return out;
}

// Two stages that hear the same, but for the plans.
class Twins {
 public:
  explicit Twins(uint32_t seed) : random_(seed) {
    for (uint64_t session = 1; session <= kSessions; ++session) {
      sessions_[session].from = session % 3 == 0 ? "x" : "a";
    }
  }

  void Run(int events) {
    for (int i = 0; i < events; ++i) {
      now_ = now_ + absl::Milliseconds(1);
      Event();
      Compare();
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "event " << i;
        return;
      }
    }
  }

  const StageStats& stats() const { return told_.stats(); }

 private:
  static constexpr uint64_t kSessions = 7;

  struct Session {
    std::string from;
    uint64_t epoch = 0;  // 0: not open.
    uint64_t step = 0;
    int32_t position = 0;
    uint64_t chain = 0;
  };

  uint64_t Pick(uint64_t count) { return random_() % count; }

  template <typename Call>
  void Both(Call call) {
    call(told_);
    call(untold_);
  }

  void Compare() {
    StageActions told = told_.TakeActions();
    const StageActions untold = untold_.TakeActions();
    EXPECT_EQ(Print(told), Print(untold));
    EXPECT_EQ(told_.kv().pages_free(), untold_.kv().pages_free());
    EXPECT_EQ(told_.NextWake(), untold_.NextWake());
    EXPECT_EQ(told_.rows_waiting(), untold_.rows_waiting());
    for (ComputeJob& job : told.jobs) jobs_.push_back(std::move(job));
    for (const Refusal& refusal : told.refusals) {
      lost_.insert(refusal.failure.key.attempt.session.value());
    }
  }

  void Open(uint64_t id) {
    Session& session = sessions_[id];
    const AttemptKey key{SessionId(id), Epoch(session.epoch + 1)};
    const int32_t tokens_max = 16 + static_cast<int32_t>(Pick(48));
    bool is_open = false;
    Both([&](StageCore& stage) {
      is_open = stage.Open(OpenOf(key, session.from, tokens_max), now_).ok();
    });
    if (!is_open) return;
    lost_.erase(id);
    ++session.epoch;
    session.step = 0;
    session.position = 0;
    session.chain = ChainStart(key, 1, Options().recipe);
  }

  BundleRow Next(uint64_t id) {
    const Session& session = sessions_[id];
    return {.key = {{SessionId(id), Epoch(session.epoch)}, StepIndex(session.step)},
            .position = session.position,
            .token_count = 1 + static_cast<int32_t>(Pick(3)),
            .hop = 1,
            .budget = absl::Minutes(1),
            .flags = static_cast<uint32_t>(Pick(2)),
            .chain = session.chain};
  }

  // The next rows of some sessions of one sender.
  std::vector<BundleRow> Draw(const std::string& from) {
    std::vector<BundleRow> rows;
    for (auto& [id, session] : sessions_) {
      if (session.from == from && session.epoch > 0 && !lost_.contains(id) && Pick(2) == 0) {
        rows.push_back(Next(id));
      }
    }
    return rows;
  }

  void Plan(const std::string& from) {
    std::vector<BundleRow> rows = Draw(from);
    planned_[from] = rows;
    for (BundleRow& row : rows) {
      if (Pick(40) == 0) row.position += 1;
      if (Pick(40) == 0) row.key.attempt.session = SessionId(Pick(kSessions + 2));
      if (Pick(40) == 0) row.hop = static_cast<uint32_t>(Pick(4));
      if (Pick(40) == 0) row.token_count = static_cast<int32_t>(random_());
      if (Pick(40) == 0) row.rejected = static_cast<int32_t>(random_());
    }
    told_.OnPlan(Peer(Pick(20) == 0 ? "c" : from), rows, now_);
  }

  void Bundle(const std::string& from) {
    const bool as_planned = planned_.contains(from) && Pick(5) != 0;
    std::vector<BundleRow> rows = as_planned ? planned_[from] : Draw(from);
    planned_.erase(from);
    StageBundle bundle{.rows = rows};
    size_t token_count = 0;
    for (const BundleRow& row : rows) token_count += static_cast<size_t>(row.token_count);
    const std::shared_ptr<Buffer> hidden = Buffer::Allocate(token_count * sizeof(float));
    for (float& x : hidden->floats()) x = 1.0F;
    bundle.hidden = hidden;
    for (BundleRow& row : bundle.rows) {
      Session& session = sessions_[row.key.attempt.session.value()];
      const std::vector<float> content(static_cast<size_t>(row.token_count), 1.0F);
      session.chain = ChainNext(row.chain, row.key.step,
                                RowDigest(row, content.data(), content.size() * sizeof(float)));
      session.step = row.key.step.value() + 1;
      session.position = row.position + row.token_count;
    }
    if (bundle.rows.empty()) return;
    Both([&](StageCore& stage) { stage.OnBundle(Peer(from), bundle, now_); });
    if (Pick(20) == 0) Both([&](StageCore& stage) { stage.OnBundle(Peer(from), bundle, now_); });
  }

  void Finish() {
    if (jobs_.empty()) return;
    const ComputeJob job = std::move(jobs_.front());
    jobs_.erase(jobs_.begin());
    ComputeDone done{.id = job.id, .hidden = job.hidden};
    for (size_t i = 0; i < job.slices.size(); ++i) {
      done.slice_status.push_back(Pick(30) == 0 ? MakeFailure(FailureKind::kNonFinite, "NaN")
                                                : absl::OkStatus());
    }
    Both([&](StageCore& stage) { stage.OnComputeDone(done, now_); });
  }

  void Event() {
    const std::string from = Pick(3) == 0 ? "x" : "a";
    const uint64_t id = 1 + Pick(kSessions);
    switch (Pick(16)) {
      case 0:
        if (sessions_[id].epoch == 0 || lost_.contains(id) || Pick(4) == 0) Open(id);
        break;
      case 1:
        if (Pick(4) != 0) break;
        Both([&](StageCore& stage) {
          stage.Fence(SessionId(id), Epoch(sessions_[id].epoch), Term(1), now_);
        });
        lost_.insert(id);
        break;
      case 2:
        if (Pick(4) != 0) break;
        Both([&](StageCore& stage) {
          stage.OnLinkLost(Peer("c"), MakeFailure(FailureKind::kStreamReset, "cut"), now_);
        });
        break;
      case 3:
        Both([&](StageCore& stage) {
          stage.OnLinkUp(Peer("c"), now_);
          stage.OnTick(now_);
        });
        break;
      case 4:
      case 5:
      case 6:
      case 7:
        Plan(from);
        break;
      case 8:
      case 9:
      case 10:
      case 11:
        Bundle(from);
        break;
      default:
        Finish();
    }
  }

  std::mt19937_64 random_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  StageCore told_{Options()};
  StageCore untold_{Options()};
  std::map<uint64_t, Session> sessions_;
  std::set<uint64_t> lost_;  // Sessions whose steps no longer follow each other.
  std::map<std::string, std::vector<BundleRow>> planned_;
  std::vector<ComputeJob> jobs_;
};

TEST(StageAhead, PlansChangeNothingButTime) {
  StageStats sum;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Twins twins(seed);
    twins.Run(600);
    if (HasFailure()) return;
    const StageStats& stats = twins.stats();
    sum.plans_staged += stats.plans_staged;
    sum.plans_ignored += stats.plans_ignored;
    sum.plans_promoted += stats.plans_promoted;
    sum.plans_displaced += stats.plans_displaced;
    sum.rows_committed += stats.rows_committed;
    sum.rows_non_finite += stats.rows_non_finite;
  }
  EXPECT_GT(sum.plans_promoted, 500U);
  EXPECT_GT(sum.plans_displaced, 100U);
  EXPECT_GT(sum.plans_ignored, 500U);
  EXPECT_GT(sum.rows_committed, 5000U);
  EXPECT_GT(sum.rows_non_finite, 100U);
}

// One row a session, from "a", with the chain that an honest sender has.
class Stage {
 public:
  explicit Stage(StageOptions options = Options()) : core_(std::move(options)) {}

  void Open(uint64_t session) {
    const AttemptKey key{SessionId(session), Epoch(1)};
    ASSERT_THAT(core_.Open(OpenOf(key, "a"), now_), IsOk());
  }

  static BundleRow Row(uint64_t session, int32_t token_count = 1) {
    const AttemptKey key{SessionId(session), Epoch(1)};
    return {.key = {key, StepIndex(0)},
            .token_count = token_count,
            .hop = 1,
            .budget = absl::Minutes(1),
            .chain = ChainStart(key, 1, Options().recipe)};
  }

  StageActions Send(std::vector<BundleRow> rows) {
    size_t token_count = 0;
    for (const BundleRow& row : rows) token_count += static_cast<size_t>(row.token_count);
    core_.OnBundle(
        Peer("a"),
        {.rows = std::move(rows), .hidden = Buffer::Allocate(token_count * sizeof(float))}, now_);
    return core_.TakeActions();
  }

  StageActions Plan(const std::vector<BundleRow>& rows) {
    core_.OnPlan(Peer("a"), rows, now_);
    return core_.TakeActions();
  }

  StageActions Finish(const ComputeJob& job) {
    core_.OnComputeDone({.id = job.id,
                         .slice_status = std::vector<absl::Status>(job.slices.size()),
                         .hidden = job.hidden},
                        now_);
    return core_.TakeActions();
  }

  StageCore& core() { return core_; }
  Instant now() const { return now_; }

 private:
  StageCore core_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
};

std::vector<uint64_t> SessionsOf(const ComputeJob& job) {
  std::vector<uint64_t> sessions;
  for (const JobSlice& slice : job.slices) sessions.push_back(slice.key.attempt.session.value());
  return sessions;
}

TEST(StageAhead, TellsTheNextStageWhatIsBeingComputedForIt) {
  Stage stage;
  stage.Open(1);
  stage.Open(2);
  const StageActions started = stage.Send({Stage::Row(1, 3), Stage::Row(2)});
  ASSERT_EQ(started.plans.size(), 1U);
  EXPECT_EQ(started.plans[0].to.node, NodeId("c"));
  const StageActions finished = stage.Finish(started.jobs.at(0));
  ASSERT_EQ(finished.forwards.size(), 1U);
  const std::vector<BundleRow>& sent = finished.forwards[0].bundle.rows;
  ASSERT_EQ(started.plans[0].rows.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    BundleRow expected = sent[i];
    expected.chain = 0;
    EXPECT_EQ(Print(started.plans[0].rows[i]), Print(expected));
  }
  EXPECT_TRUE(finished.plans.empty()) << "nothing follows";
}

TEST(StageAhead, TellsOnlyOfJobsThatTakeLongEnough) {
  StageOptions options = Options();
  options.announce_min = absl::Milliseconds(10);
  options.job_cost = {.step = absl::Milliseconds(2), .row = absl::Milliseconds(1)};
  Stage stage(options);
  stage.Open(1);
  stage.Open(2);
  const StageActions soon_over = stage.Send({Stage::Row(1, 7)});
  EXPECT_TRUE(soon_over.plans.empty());
  stage.Finish(soon_over.jobs.at(0));
  EXPECT_EQ(stage.Send({Stage::Row(2, 8)}).plans.size(), 1U);
}

// A plan that is longer than what may follow it would be refused by an honest link.
TEST(StageAhead, TellsOfOneBundleAtMost) {
  StageOptions options = Options();
  options.bundle_rows_max = 2;
  Stage stage(options);
  for (uint64_t session = 1; session <= 4; ++session) stage.Open(session);
  const ComputeJob job = stage.Send({Stage::Row(4)}).jobs.at(0);
  stage.Send({Stage::Row(1), Stage::Row(2)});
  stage.Send({Stage::Row(3)});
  const StageActions next = stage.Finish(job);
  EXPECT_EQ(SessionsOf(next.jobs.at(0)), (std::vector<uint64_t>{1, 2, 3}));
  ASSERT_EQ(next.plans.size(), 1U);
  EXPECT_EQ(next.plans[0].rows.size(), 2U);
  EXPECT_EQ(stage.Finish(next.jobs[0]).forwards.at(0).bundle.rows.size(), 2U);
}

TEST(StageAhead, KeepsOnePlanOfASenderAndNoneOfAStranger) {
  Stage stage;
  stage.Open(1);
  stage.Open(2);
  stage.core().OnPlan(Peer("x"), {Stage::Row(1)}, stage.now());
  stage.core().OnPlan({}, {Stage::Row(1)}, stage.now());
  stage.Plan({Stage::Row(1), Stage::Row(1)});
  stage.Plan(std::vector<BundleRow>(9, Stage::Row(1)));
  EXPECT_EQ(stage.core().stats().plans_staged, 0U);
  EXPECT_EQ(stage.core().stats().plans_ignored, 4U);
  stage.Plan({Stage::Row(1)});
  stage.Plan({Stage::Row(2)});
  stage.Send({Stage::Row(1)});
  EXPECT_EQ(stage.core().stats().plans_displaced, 1U);
  EXPECT_EQ(stage.core().stats().plans_promoted, 0U);
}

TEST(StageAhead, ForgetsAPlanWhenWhatItStandsOnChanges) {
  const auto promoted_after = [](auto change) {
    Stage stage;
    stage.Open(1);
    stage.Open(2);
    stage.Plan({Stage::Row(1)});
    change(stage);
    stage.Send({Stage::Row(1)});
    EXPECT_EQ(stage.core().stats().plans_displaced, 0U) << "it was dropped before";
    return stage.core().stats().plans_promoted;
  };
  EXPECT_EQ(promoted_after([](Stage&) {}), 1U);
  EXPECT_EQ(promoted_after([](Stage& stage) { stage.Open(3); }), 1U);
  EXPECT_EQ(promoted_after([](Stage& stage) { stage.Plan({}); }), 0U);
  EXPECT_EQ(promoted_after([](Stage& stage) {
              stage.core().Fence(SessionId(2), Epoch(1), Term(1), stage.now());
            }),
            0U);
  EXPECT_EQ(promoted_after([](Stage& stage) {
              EXPECT_THAT(stage.core().OnLinkAccepted(Peer("a"), 1), IsOk());
            }),
            0U);
}

// A stage that falls behind batches by itself.
TEST(StagePick, AJobTakesTheRowsOfSeveralWaitingBundles) {
  Stage stage;
  for (uint64_t session = 1; session <= 6; ++session) stage.Open(session);
  const ComputeJob first = stage.Send({Stage::Row(1)}).jobs.at(0);
  stage.Send({Stage::Row(2, 20)});
  stage.Send({Stage::Row(3), Stage::Row(4)});
  stage.Send({Stage::Row(5, 20)});
  stage.Send({Stage::Row(6)});
  const ComputeJob second = stage.Finish(first).jobs.at(0);
  EXPECT_EQ(SessionsOf(second), (std::vector<uint64_t>{2, 3, 4, 6})) << "20 and 20 pass the 32";
  EXPECT_EQ(SessionsOf(stage.Finish(second).jobs.at(0)), (std::vector<uint64_t>{5}));
}

TEST(StagePick, ADecodeRowWaitsBehindOneJobOfPromptsAtMost) {
  Stage stage;
  for (uint64_t session = 1; session <= 5; ++session) stage.Open(session);
  const ComputeJob first = stage.Send({Stage::Row(1, 32)}).jobs.at(0);
  stage.Send({Stage::Row(2, 32)});
  stage.Send({Stage::Row(3, 32)});
  stage.Send({Stage::Row(4), Stage::Row(5)});
  const ComputeJob second = stage.Finish(first).jobs.at(0);
  EXPECT_EQ(SessionsOf(second), (std::vector<uint64_t>{2, 4, 5}));
  EXPECT_EQ(SessionsOf(stage.Finish(second).jobs.at(0)), (std::vector<uint64_t>{3}));
}

}  // namespace
}  // namespace shardline
