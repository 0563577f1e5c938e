// Any order of events, late, doubled or never: every request ends once, every record is written
// once, every stage that heard of an attempt hears of its end, no token follows an end.

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "coordinator/sessions/sessions_core.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

constexpr int64_t kBudgetMs = 2000;
constexpr int64_t kGraceMs = 500;

// A shell that answers when the dice say so, checks every action and remembers what it saw.
class ShakyShell {
 public:
  explicit ShakyShell(uint64_t seed) : random_(seed) {}

  void Step() {
    ms_ += static_cast<int64_t>(Pick(60));
    switch (Pick(14)) {
      case 0:
      case 1:
        Generate();
        break;
      case 2:
      case 3:
        AnswerGrant();
        break;
      case 4:
      case 5:
      case 6:
        AnswerOpen();
        break;
      case 7:
      case 8:
      case 9:
        SendToken();
        break;
      case 10:
        EndRun();
        break;
      case 11:
        AnswerFinish(/*refuse=*/Pick(4) == 0);
        AnswerFence();
        break;
      case 12:
        if (next_request_ > 1) core_.OnCancel(RequestId(1 + Pick(next_request_ - 1)), Now());
        break;
      default:
        if (Pick(4) == 0) LoseNode();
        core_.OnTick(Now());
    }
    if (!::testing::Test::HasFatalFailure()) Check();
  }

  // Everything that is out gets its answer, and time passes.
  void WindDown() {
    for (int i = 0; i < 3; ++i) {
      ms_ += kBudgetMs + kGraceMs;
      core_.OnTick(Now());
      Check();
      while (!grants_.empty()) AnswerGrant();
      Check();
      while (!finishes_.empty()) AnswerFinish(false);
      Check();
      while (!fences_.empty()) AnswerFence();
      Check();
    }
    ASSERT_TRUE(core_.idle());
    ASSERT_EQ(core_.running_count(), 0);
    ASSERT_EQ(ended_.size(), next_request_ - 1);
    ASSERT_EQ(recorded_.size(), granted_.size());
    ASSERT_EQ(core_.NextWake(), Instant::InfiniteFuture());
    const SessionsStats& stats = core_.stats();
    ASSERT_EQ(stats.started,
              stats.completed + stats.failed + stats.cancelled + stats.expired + stats.refused);
    ASSERT_EQ(stats.fences_sent, stats.fences_answered + stats.fences_failed);
    for (const auto& [key, stages] : opened_) ASSERT_EQ(stages, fenced_[key]);
  }

  int completed() const { return completed_; }

 private:
  struct Request {
    RequestId id;
    Instant deadline;
    uint32_t delivered = 0;
  };

  uint64_t Pick(uint64_t n) { return random_() % n; }
  Instant Now() const { return Instant::FromOrigin(absl::Milliseconds(ms_)); }
  template <typename T>
  T TakeAny(std::vector<T>& from) {
    const size_t i = Pick(from.size());
    T item = from[i];
    from.erase(from.begin() + static_cast<ptrdiff_t>(i));
    return item;
  }
  AttemptKey AnyKey() {
    return granted_[granted_.size() - 1 - Pick(std::min<size_t>(granted_.size(), 8))];
  }

  void Generate() {
    SessionRequest request{.request = RequestId(next_request_++),
                           .prompt_tokens = 3,
                           .new_tokens_max = 4,
                           .budget = absl::Milliseconds(kBudgetMs)};
    const size_t stages = 1 + Pick(3);
    for (size_t i = 0; i < stages; ++i) {
      const auto l = static_cast<int32_t>(i);
      request.route.stages.push_back(
          {NodeId("node-" + std::to_string(i)), Incarnation(lives_[i]), "", {l, l + 1}});
    }
    requests_[request.request] = {request.request, Now() + request.budget};
    core_.OnGenerate(request, Now());
  }

  void AnswerGrant() {
    if (grants_.empty()) return;
    const RequestId request = TakeAny(grants_);
    if (Pick(8) == 0) {
      core_.OnGranted(request, MakeFailure(FailureKind::kOverloaded, "disk full"), Now());
      return;
    }
    const AttemptKey key{SessionId(next_session_++), Epoch(1)};
    granted_.push_back(key);
    request_of_[key] = request;
    core_.OnGranted(request, key, Now());
    if (Pick(4) == 0) core_.OnGranted(request, key, Now());
  }

  void AnswerOpen() {
    if (opens_.empty()) return;
    const auto [key, stage] = TakeAny(opens_);
    if (Pick(3) == 0) opens_.push_back({key, stage});  // To be answered again.
    const absl::Status answers[] = {MakeFailure(FailureKind::kKvExhausted, "no pages"),
                                    absl::UnavailableError("refused"),
                                    absl::InternalError("broken")};
    core_.OnOpenReply(key, stage, Pick(8) == 0 ? answers[Pick(3)] : absl::OkStatus(), Now());
  }

  void SendToken() {
    if (granted_.empty()) return;
    const AttemptKey key = AnyKey();
    const uint32_t next = requests_[request_of_[key]].delivered;
    const uint32_t index = Pick(20) == 0 ? static_cast<uint32_t>(Pick(6)) : next;
    core_.OnToken(key, index, static_cast<int32_t>(index), Now());
  }

  void EndRun() {
    if (granted_.empty()) return;
    const AttemptKey key = AnyKey();
    const uint32_t delivered = requests_[request_of_[key]].delivered;
    const absl::Status failures[] = {MakeFailure(FailureKind::kStreamReset, "link"),
                                     MakeFailure(FailureKind::kDeadlineExceeded, "late"),
                                     MakeFailure(FailureKind::kNonFinite, "NaN")};
    if (Pick(3) == 0) {
      core_.OnRunFailed(key, failures[Pick(3)], Now());
    } else {
      core_.OnRunEnd(key, RunResult{.reason = FinishReason::kStop, .tokens = delivered}, Now());
    }
  }

  void AnswerFinish(bool refuse) {
    if (finishes_.empty()) return;
    const auto [key, outcome] = TakeAny(finishes_);
    if (refuse) {
      core_.OnFinished(key, MakeFailure(FailureKind::kOverloaded, "disk full"), Now());
      return;
    }
    ASSERT_TRUE(recorded_.insert({key, outcome}).second);
    core_.OnFinished(key, outcome, Now());
    if (Pick(3) == 0) core_.OnFinished(key, outcome, Now());
  }

  void AnswerFence() {
    if (fences_.empty()) return;
    const auto [key, stage] = TakeAny(fences_);
    if (Pick(3) == 0) {
      core_.OnFenceReply(key, stage, absl::UnavailableError("gone"), Now());
    } else {
      core_.OnFenceReply(key, stage, FenceResult{.pages_released = 1}, Now());
    }
    if (Pick(3) == 0) core_.OnFenceReply(key, stage, FenceResult{.pages_released = 1}, Now());
  }

  void LoseNode() {
    const size_t i = Pick(3);
    core_.OnNodeLost(NodeId("node-" + std::to_string(i)), Incarnation(lives_[i]++),
                     FailureKind::kWorkerDeath, "stream reset", Now());
  }

  void Check() {
    CarryOut(core_.TakeActions());
    core_.OnTick(Now());
    CarryOut(core_.TakeActions());
    for (const auto& [id, request] : requests_) {
      if (Now() < request.deadline + absl::Milliseconds(kGraceMs)) continue;
      ASSERT_TRUE(ended_.contains(id)) << "no end by deadline and grace";
    }
  }

  // In the order in which a shell does.
  void CarryOut(const SessionsActions& actions) {
    for (const auto& grant : actions.grant) grants_.push_back(grant.request);
    for (const auto& fence : actions.fence) {
      ASSERT_TRUE(opened_[fence.key].contains(fence.stage)) << "a fence nobody needs";
      ASSERT_TRUE(fenced_[fence.key].insert(fence.stage).second) << "fenced twice";
      fences_.push_back({fence.key, fence.stage});
    }
    for (const auto& open : actions.open) {
      ASSERT_TRUE(opened_[open.key].insert(open.stage).second) << "opened twice";
      ASSERT_FALSE(fenced_.contains(open.key)) << "opened after its fence";
      opens_.push_back({open.key, open.stage});
    }
    for (const auto& run : actions.run) {
      ASSERT_TRUE(ran_.insert(run.key).second) << "run twice";
      ASSERT_FALSE(fenced_.contains(run.key)) << "run after its fence";
    }
    for (const auto& deliver : actions.deliver) {
      Request& request = requests_[deliver.request];
      ASSERT_FALSE(ended_.contains(deliver.request)) << "a token after the end";
      ASSERT_FALSE(finishing_.contains(deliver.key)) << "a token after the record";
      ASSERT_TRUE(ran_.contains(deliver.key));
      ASSERT_LT(Now(), request.deadline);
      ASSERT_EQ(deliver.index, request.delivered) << "a gap or a repeat";
      ++request.delivered;
    }
    for (const auto& finish : actions.finish) {
      const auto [known, fresh] = finishing_.insert({finish.key, finish.outcome});
      ASSERT_TRUE(fresh || known->second == finish.outcome) << "the outcome changed";
      ASSERT_EQ(std::count_if(finishes_.begin(), finishes_.end(),
                              [&](const auto& f) { return f.first == finish.key; }),
                0)
          << "two records at once";
      ASSERT_FALSE(recorded_.contains(finish.key)) << "a record after the record";
      ASSERT_EQ(finish.tokens, requests_[request_of_[finish.key]].delivered);
      finishes_.push_back({finish.key, finish.outcome});
    }
    for (const auto& end : actions.end) {
      ASSERT_TRUE(ended_.insert(end.request).second) << "ended twice";
      if (!end.status.ok()) continue;
      ++completed_;
      ASSERT_TRUE(end.key.has_value());
      ASSERT_TRUE(recorded_.contains(*end.key)) << "success before its record";
      ASSERT_EQ(recorded_[*end.key], SessionOutcome::kCompleted);
    }
  }

  std::mt19937_64 random_;
  SessionsCore core_{SessionsOptions{.sessions_max = 6}};
  int64_t ms_ = 0;
  uint64_t next_request_ = 1;
  uint64_t next_session_ = 1;
  uint64_t lives_[3] = {1, 1, 1};
  int completed_ = 0;

  std::map<RequestId, Request> requests_;
  std::map<AttemptKey, RequestId> request_of_;
  std::vector<AttemptKey> granted_;
  std::set<RequestId> ended_;
  std::map<AttemptKey, std::set<size_t>> opened_;
  std::map<AttemptKey, std::set<size_t>> fenced_;
  std::set<AttemptKey> ran_;
  std::map<AttemptKey, SessionOutcome> finishing_;
  std::map<AttemptKey, SessionOutcome> recorded_;

  // Out, and not answered.
  std::vector<RequestId> grants_;
  std::vector<std::pair<AttemptKey, size_t>> opens_;
  std::vector<std::pair<AttemptKey, size_t>> fences_;
  std::vector<std::pair<AttemptKey, SessionOutcome>> finishes_;
};

TEST(SessionsProperty, AnyOrderOfEventsEndsEveryRequestOnceAndLeavesNothingBehind) {
  int completed = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    ShakyShell shell(seed);
    for (int i = 0; i < 150; ++i) {
      shell.Step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    shell.WindDown();
    if (::testing::Test::HasFatalFailure()) return;
    completed += shell.completed();
  }
  EXPECT_GT(completed, 300);  // The dice must not only break things.
}

}  // namespace
}  // namespace shardline
