// Each guard of a stage and of the head, and what happens without it: every scenario asks whether
// the guard held, once as the code is and once with its bug planted.

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/planted_bug.h"
#include "gtest/gtest.h"
#include "node/rounds/head_core.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"

namespace shardline {
namespace {

constexpr int32_t kPages = 8;

// Stage 1 of 3, the neighbours "a" and "c", and an honest sender's chains.
class Stage {
 public:
  Stage()
      : core_({.node = NodeId("b"),
               .incarnation = Incarnation(2),
               .recipe = {.model_id = ModelId("m")},
               .layers = {.begin = 2, .end = 4},
               .layers_total = 6,
               .hidden_dim = 1,
               .pages_total = kPages,
               .context_tokens_max = 64}) {}

  bool Open(uint64_t epoch, uint64_t incarnation = 2) {
    OpenAttempt open{.key = Key(epoch),
                     .term = Term(1),
                     .incarnation = Incarnation(incarnation),
                     .recipe = core_.options().recipe,
                     .stage_index = 1,
                     .tokens_max = 32,
                     .budget = absl::Seconds(10)};
    for (int32_t i = 0; i < 3; ++i) {
      open.route.push_back({.node = Peer(i).node,
                            .incarnation = Incarnation(i == 1 ? incarnation : 1),
                            .layers = {.begin = 2 * i, .end = 2 * i + 2}});
    }
    return core_.Open(open, now_).ok();
  }

  void Fence(uint64_t epoch) { core_.Fence(SessionId(7), Epoch(epoch), Term(1), now_); }

  // One token. Returns what the stage did.
  StageActions Row(uint64_t epoch, uint64_t step, float value = 1.0F, uint64_t connection = 0,
                   absl::Duration budget = absl::Seconds(5)) {
    BundleRow row{.key = {Key(epoch), StepIndex(step)},
                  .position = static_cast<int32_t>(step),
                  .token_count = 1,
                  .hop = 1,
                  .budget = budget};
    row.chain =
        step == 0 ? ChainStart(row.key.attempt, 1, core_.options().recipe) : chains_[{epoch, step}];
    chains_[{epoch, step + 1}] =
        ChainNext(row.chain, row.key.step, RowDigest(row, &value, sizeof(value)));
    const std::shared_ptr<Buffer> hidden = Buffer::Allocate(sizeof(float));
    hidden->floats()[0] = value;
    core_.OnBundle(Peer(0), {.rows = {row}, .hidden = hidden, .connection = connection}, now_);
    return Take();
  }

  // Ends the oldest job.
  StageActions Finish(const absl::Status& status = absl::OkStatus()) {
    const ComputeJob job = std::move(jobs_.front());
    jobs_.erase(jobs_.begin());
    core_.OnComputeDone(
        {.id = job.id, .slice_status = {status}, .hidden = Buffer::Allocate(sizeof(float))}, now_);
    return Take();
  }

  StageActions Take() {
    StageActions actions = core_.TakeActions();
    for (const ComputeJob& job : actions.jobs) jobs_.push_back(job);
    return actions;
  }

  void Pass(absl::Duration time) {
    now_ = now_ + time;
    core_.OnTick(now_);
  }

  static AttemptKey Key(uint64_t epoch) { return {.session = SessionId(7), .epoch = Epoch(epoch)}; }
  static StagePeer Peer(int32_t index) {
    return {.node = NodeId(std::string(1, static_cast<char>('a' + index))),
            .incarnation = Incarnation(1)};
  }

  StageCore& core() { return core_; }
  Instant now() const { return now_; }
  size_t jobs() const { return jobs_.size(); }

 private:
  StageCore core_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  std::vector<ComputeJob> jobs_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> chains_;
};

bool AFencedEpochStaysShut() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Fence(1);
  return !stage.Open(1);
}

bool AnOpenForAnotherLifeIsRefused() {
  Stage stage;
  return !stage.Open(1, 1);
}

bool AFenceBeforeItsOpenIsRemembered() {
  Stage stage;
  stage.Fence(1);
  return !stage.Open(1);
}

bool AStepOfAnOlderEpochRunsNothing() {
  Stage stage;
  return stage.Open(1) && stage.Open(2) && stage.Row(1, 0).jobs.empty();
}

bool ACopyOfACommittedStepRunsNothing() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Finish();
  return stage.Row(1, 0).jobs.empty() && stage.core().kv().LengthOf(Stage::Key(1)) == 1;
}

bool OtherContentDoesNotGetTheOldAnswer() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0, 1.0F);
  stage.Finish();
  return stage.Row(1, 0, 2.0F).forwards.empty();
}

bool AStepBehindAGapWaits() {
  Stage stage;
  return stage.Open(1) && stage.Row(1, 1).jobs.empty();
}

bool AStepThatFailedForCertainMayComeAgain() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Finish(MakeFailure(FailureKind::kDeviceLost, "gone"));
  return stage.Row(1, 0).jobs.size() == 1;
}

bool PagesOfARunningStepAreNobodyElses() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Fence(1);
  const bool held = stage.core().kv().pages_free() < kPages;
  stage.Finish();
  return held && stage.core().kv().pages_free() == kPages;
}

bool RowsAreInvisibleUntilTheyAreComputed() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  return stage.core().kv().LengthOf(Stage::Key(1)) == 0;
}

bool PagesComeBackWithoutAnyMessage() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Pass(absl::Seconds(12));
  return stage.core().kv().pages_free() == kPages;
}

bool AStepWithoutBudgetIsNotStarted() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Row(1, 1, 1.0F, 0, absl::Milliseconds(50));
  stage.Pass(absl::Milliseconds(100));
  return stage.Finish().jobs.empty();
}

bool ABudgetShrinks() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Pass(absl::Seconds(1));
  return stage.Finish().forwards.at(0).bundle.rows[0].budget <= absl::Seconds(4);
}

bool TheOutputOfAFencedStepGoesNowhere() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Fence(1);
  return stage.Finish().forwards.empty();
}

bool WhatIsNotFiniteGoesNoFurther() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  return stage.Finish(MakeFailure(FailureKind::kNonFinite, "NaN")).forwards.empty();
}

bool AResumeSendsWhatThePeerLacks() {
  Stage stage;
  if (!stage.Open(1)) return false;
  stage.Row(1, 0);
  stage.Finish();
  stage.core().OnLinkLost(Stage::Peer(2), MakeFailure(FailureKind::kStreamReset, "cut"),
                          stage.now());
  stage.core().OnLinkUp(Stage::Peer(2), stage.now());
  stage.core().OnInspectReply(
      Stage::Peer(2),
      {{.key = Stage::Key(1),
        .chain = ChainStart(Stage::Key(1), 2, stage.core().options().recipe)}},
      stage.now());
  return stage.Take().forwards.size() == 1;
}

bool AnOlderConnectionIsShutOut() {
  Stage stage;
  if (!stage.Open(1)) return false;
  for (uint64_t connection : {1, 2}) {
    if (!stage.core().OnLinkAccepted(Stage::Peer(0), connection).ok()) return false;
  }
  return stage.Row(1, 0, 1.0F, 1).jobs.empty();
}

// A ring of its own.
StageOptions HeadStage() {
  return {.node = NodeId("a"),
          .incarnation = Incarnation(1),
          .recipe = {.model_id = ModelId("m")},
          .layers = {.begin = 0, .end = 2},
          .layers_total = 2,
          .is_head = true,
          .hidden_dim = 1,
          .pages_total = kPages,
          .context_tokens_max = 64};
}

bool APageIsFoundOnlyWhenItIsComputed() {
  StageCore stage(HeadStage());
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  OpenAttempt open{.key = Stage::Key(1),
                   .term = Term(1),
                   .incarnation = Incarnation(1),
                   .recipe = stage.options().recipe,
                   .route = {{.node = NodeId("a"),
                              .incarnation = Incarnation(1),
                              .layers = {.begin = 0, .end = 2}}},
                   .tokens_max = 32,
                   .budget = absl::Seconds(10),
                   .prefix_root = PrefixRoot(ModelId("m"), NumericsId(), "")};
  const std::vector<int32_t> prompt(17, 3);
  open.prefix_keys = PrefixChain(open.prefix_root, prompt, kPageTokens);
  if (!stage.Open(open, now).ok()) return false;
  const BundleRow row{
      .key = {open.key, StepIndex(0)}, .token_count = 17, .budget = absl::Seconds(5)};
  stage.OnBundle({}, {.rows = {row}, .tokens = prompt}, now);
  open.key.session = SessionId(8);
  const absl::StatusOr<OpenReply> other = stage.Open(open, now);
  return other.ok() && other->cached_tokens == 0;
}

// The row of session 8 comes where that of session 7 was announced.
bool ARowIsComputedOnItsOwnPages() {
  StageCore core(HeadStage());
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  std::vector<BundleRow> rows;
  for (uint64_t session : {7, 8}) {
    const AttemptKey key{.session = SessionId(session), .epoch = Epoch(1)};
    const auto reply = core.Open({.key = key,
                                  .term = Term(1),
                                  .incarnation = Incarnation(1),
                                  .recipe = core.options().recipe,
                                  .route = {{.node = NodeId("a"),
                                             .incarnation = Incarnation(1),
                                             .layers = core.options().layers}},
                                  .tokens_max = 32,
                                  .budget = absl::Seconds(10)},
                                 now);
    if (!reply.ok()) return false;
    rows.push_back({.key = {key, StepIndex(0)}, .token_count = 1, .budget = absl::Seconds(5)});
  }
  core.OnPlan({}, {rows[0]}, now);
  core.OnBundle({}, {.rows = {rows[1]}, .tokens = {3}}, now);
  const std::vector<int32_t> pages = core.TakeActions().jobs.at(0).slices.at(0).pages;
  const auto own = core.kv().Resolve(rows[1].key.attempt, 0);
  return own.ok() && pages == std::vector<int32_t>(own->begin(), own->end());
}

HeadOptions HeadOf(const char* node) {
  return {.node = NodeId(node),
          .layers = {.begin = 0, .end = 2},
          .vocab_size = 10,
          .hidden_dim = 1,
          .context_tokens_max = 64};
}

RunAttempt RunOf(const AttemptKey& key) {
  return {.key = key,
          .prompt = {1},
          .new_tokens_max = 4,
          .budget = absl::Seconds(10),
          .route = {{.node = NodeId("a")}},
          .tokens_max = 32};
}

bool AStageGoesWithItsAttempt() {
  HeadCore head(HeadOf("a"));
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  const AttemptKey key = Stage::Key(1);
  if (!head.OnRun(RunOf(key), now).ok() || head.stages_standing() != 1) return false;
  head.OnCancel(key, now);
  return head.stages_standing() == 0 && head.slots_free() == head.options().attempts_max;
}

bool ACopyInFlightLeavesTheOriginalAlone() {
  HeadCore head(HeadOf("a"));
  const Instant now = Instant::FromOrigin(absl::Seconds(100));
  const AttemptKey key = Stage::Key(1);
  if (!head.OnRun(RunOf(key), now).ok()) return false;
  head.OnRowFailure({.key = {.attempt = key, .step = StepIndex(0)},
                     .status = MakeFailure(FailureKind::kStepInFlight, "it computes")},
                    now);
  return head.attempts_running() == 1;
}

struct Guard {
  const char* name;
  PlantedBug bug;
  bool (*holds)();
};

void PrintTo(const Guard& guard, std::ostream* out) { *out << guard.name; }

class PlantedGuard : public ::testing::TestWithParam<Guard> {
 protected:
  ~PlantedGuard() override { planted_bug = PlantedBug::kNone; }
};

TEST_P(PlantedGuard, HoldsAndIsMissedWhenItIsGone) {
  EXPECT_TRUE(GetParam().holds());
  planted_bug = GetParam().bug;
  EXPECT_FALSE(GetParam().holds()) << "the scenario does not need this guard";
}

INSTANTIATE_TEST_SUITE_P(
    Stage, PlantedGuard,
    ::testing::Values(
        Guard{"OpenIgnoresFence", PlantedBug::kOpenIgnoresFence, AFencedEpochStaysShut},
        Guard{"OpenIgnoresIncarnation", PlantedBug::kOpenIgnoresIncarnation,
              AnOpenForAnotherLifeIsRefused},
        Guard{"FenceLeavesNoTombstone", PlantedBug::kFenceLeavesNoTombstone,
              AFenceBeforeItsOpenIsRemembered},
        Guard{"StepIgnoresEpoch", PlantedBug::kStepIgnoresEpoch, AStepOfAnOlderEpochRunsNothing},
        Guard{"StepRunsTwice", PlantedBug::kStepRunsTwice, ACopyOfACommittedStepRunsNothing},
        Guard{"StepDigestIgnored", PlantedBug::kStepDigestIgnored,
              OtherContentDoesNotGetTheOldAnswer},
        Guard{"StepGapAccepted", PlantedBug::kStepGapAccepted, AStepBehindAGapWaits},
        Guard{"CertainFailureStaysInFlight", PlantedBug::kCertainFailureStaysInFlight,
              AStepThatFailedForCertainMayComeAgain},
        Guard{"PagesFreedWhilePinned", PlantedBug::kPagesFreedWhilePinned,
              PagesOfARunningStepAreNobodyElses},
        Guard{"VisibleBeforeComputed", PlantedBug::kVisibleBeforeComputed,
              RowsAreInvisibleUntilTheyAreComputed},
        Guard{"NoLocalDeadline", PlantedBug::kNoLocalDeadline, PagesComeBackWithoutAnyMessage},
        Guard{"ExpiredStepStarts", PlantedBug::kExpiredStepStarts, AStepWithoutBudgetIsNotStarted},
        Guard{"BudgetDoesNotShrink", PlantedBug::kBudgetDoesNotShrink, ABudgetShrinks},
        Guard{"FencedOutputForwarded", PlantedBug::kFencedOutputForwarded,
              TheOutputOfAFencedStepGoesNowhere},
        Guard{"NonFiniteForwarded", PlantedBug::kNonFiniteForwarded, WhatIsNotFiniteGoesNoFurther},
        Guard{"ResumeUnverified", PlantedBug::kResumeUnverified, AResumeSendsWhatThePeerLacks},
        Guard{"ResumeWithoutFence", PlantedBug::kResumeWithoutFence, AnOlderConnectionIsShutOut},
        Guard{"CachedUncomputed", PlantedBug::kCachedUncomputed, APageIsFoundOnlyWhenItIsComputed},
        Guard{"PromotesWhateverIsStaged", PlantedBug::kPromotesWhateverIsStaged,
              ARowIsComputedOnItsOwnPages},
        Guard{"StageSurvivesFailure", PlantedBug::kStageSurvivesFailure, AStageGoesWithItsAttempt},
        Guard{"CopyEndsTheOriginal", PlantedBug::kCopyEndsTheOriginal,
              ACopyInFlightLeavesTheOriginalAlone}),
    [](const ::testing::TestParamInfo<Guard>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace shardline
