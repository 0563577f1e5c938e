// Two shards in one process whose links, there and back, run through proxies that cut them: in the
// middle of a handshake, of a header, of an activation. Tokens must not change.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/strand.h"
#include "node/shard_loop.h"
#include "node/transport/node_server.h"
#include "node/wake_timer.h"
#include "tests/node/cutting_proxy.h"
#include "tests/node/rounds/fake_device.h"

namespace shardline {
namespace {

using ::shardline::testing::CuttingProxy;
using ::shardline::testing::FakeDevice;
using ::shardline::testing::kFakeHiddenDim;
using ::shardline::testing::kFakeVocabSize;

constexpr int32_t kLayers = 6;
constexpr int32_t kPages = 32;
// Long enough for any machine; no test waits for it to pass.
constexpr absl::Duration kPatience = absl::Seconds(60);

// Computes at once, on the thread that asks.
class FakeExecutor : public DeviceExecutor {
 public:
  explicit FakeExecutor(LayerRange layers) : device_(layers, kPages) {}

  absl::Status Submit(ComputeJob job, DoneCallback done) override {
    done(device_.Run(job));
    return absl::OkStatus();
  }
  void Rest() override {}
  ExecutorProgress progress() const override { return {}; }
  void Shutdown() override {}

  int repeats() const { return device_.repeats(); }

 private:
  FakeDevice device_;
};

// What one run gave.
class RunLog : public RunStream {
 public:
  void SendProgress(const ProgressOut&) override {}
  void SendToken(const TokenOut& token) override {
    absl::MutexLock lock(&mu_);
    tokens_.push_back(token.token.token);
  }
  void End(const AttemptEnd& end) override { Fail(end.status); }
  void Fail(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    if (!over_.HasBeenNotified()) {
      status_ = status;
      over_.Notify();
    }
  }

  absl::Status Await() {
    EXPECT_TRUE(over_.WaitForNotificationWithTimeout(kPatience));
    absl::MutexLock lock(&mu_);
    return status_;
  }
  std::vector<int32_t> tokens() const {
    absl::MutexLock lock(&mu_);
    return tokens_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<int32_t> tokens_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  absl::Notification over_;
};

// A node without a coordinator: a server and one life of a shard.
class ShardNode {
 public:
  ShardNode(const std::string& name, LayerRange layers, absl::Duration resume_timeout)
      : executor_(std::make_shared<FakeExecutor>(layers)),
        strand_(1024),
        timer_(SystemClock(), [this] {
          strand_.Post([this] {
            if (loop_ != nullptr) loop_->OnWake();
          });
        }) {
    const ShardOrder order = {.plan_epoch = PlanEpoch(1),
                              .model_id = ModelId("m"),
                              .layers = layers,
                              .is_head = layers.begin == 0,
                              .context_tokens_max = 64,
                              .kv_pages = kPages,
                              .chunk_tokens_max = 4};
    const LoadedShard loaded = {.numerics_id = NumericsId("fake"),
                                .layers_total = kLayers,
                                .hidden_dim = kFakeHiddenDim,
                                .vocab_size = kFakeVocabSize,
                                .context_tokens_max = 64,
                                .executor = executor_};
    loop_ = std::make_shared<ShardLoop>(ShardSurroundings{.clock = SystemClock(),
                                                          .strand = &strand_,
                                                          .timer = &timer_,
                                                          .calls = &calls_,
                                                          .counters = &counters_,
                                                          .resume_timeout = resume_timeout},
                                        NodeId(name), Incarnation(1), order, loaded);
    server_ = NodeServer::Start("127.0.0.1:0", Events(), IgnoredRuns(), {}, {}).value();
  }

  ~ShardNode() {
    absl::Notification ended;
    strand_.Post([&] {
      loop_->End(MakeFailure(FailureKind::kWorkerDeath, "the test is over"));
      loop_.reset();
      ended.Notify();
    });
    ended.WaitForNotification();
    server_->Shutdown(absl::Seconds(1));
    EXPECT_TRUE(calls_.AwaitZero(kPatience));
    strand_.Close();
  }

  // Runs on the strand and waits for it.
  template <typename Task>
  void Do(const Task& task) {
    absl::Notification done;
    strand_.Post([&] {
      task(*loop_);
      done.Notify();
    });
    done.WaitForNotification();
  }

  const std::string& address() const { return server_->address(); }
  Recipe recipe() const { return loop_->identity().recipe; }
  int repeats() const { return executor_->repeats(); }
  uint32_t pages_free() const { return counters_.kv_pages_free; }

 private:
  ShardEvents Events() {
    ShardEvents events;
    events.identity = [this] { return std::optional<LinkIdentity>(loop_->identity()); };
    events.on_open = [](OpenAttempt, auto reply) { reply(absl::UnimplementedError("")); };
    events.on_fence = [](const FenceOrder&, auto reply) { reply(FenceReply{}); };
    events.on_link_opened = [this](std::shared_ptr<LinkHandle> link) {
      Post([link](ShardLoop& loop) { loop.OnLinkOpened(link); });
    };
    events.on_link_closed = [this](const std::shared_ptr<LinkHandle>& link) {
      Post([link](ShardLoop& loop) { loop.OnLinkClosed(link); });
    };
    events.on_inspect = [this](const std::shared_ptr<LinkHandle>& link,
                               const std::vector<InspectRow>& rows) {
      Post([link, rows](ShardLoop& loop) { loop.OnInspect(link, rows); });
    };
    events.on_bundle = [this](const std::shared_ptr<LinkHandle>& link, uint64_t sequence,
                              const StageBundle& bundle) {
      Post([link, sequence, bundle](ShardLoop& loop) { loop.OnBundle(link, sequence, bundle); });
    };
    return events;
  }

  static HeadEvents IgnoredRuns() {
    return {.on_run = [](const RunRequest&, const std::shared_ptr<RunStream>&) {},
            .on_run_closed = [](AttemptKey, const std::shared_ptr<RunStream>&) {}};
  }

  template <typename Task>
  void Post(Task task) {
    strand_.Post([this, task = std::move(task)] {
      if (loop_ != nullptr) task(*loop_);
    });
  }

  const std::shared_ptr<FakeExecutor> executor_;
  ShardCounters counters_;
  CallCounter calls_;
  Strand strand_;
  std::shared_ptr<ShardLoop> loop_;
  WakeTimer timer_;
  std::unique_ptr<NodeServer> server_;
};

std::vector<uint64_t> CutsOf(uint32_t seed, int count, uint64_t bytes_min, uint64_t bytes_max) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<uint64_t> bytes(bytes_min, bytes_max);
  std::vector<uint64_t> cuts;
  for (int i = 0; i < count; ++i) cuts.push_back(bytes(random));
  return cuts;
}

// Head "a" and stage "b".
class CutPair {
 public:
  CutPair(absl::Duration resume_timeout, const std::vector<uint64_t>& cuts_there,
          const std::vector<uint64_t>& cuts_back)
      : a_("a", {0, 3}, resume_timeout),
        b_("b", {3, kLayers}, resume_timeout),
        there_(b_.address(), cuts_there),
        back_(a_.address(), cuts_back) {}

  struct Outcome {
    std::vector<int32_t> tokens;
    int epochs = 0;
    absl::Status status;
  };

  // As a coordinator does: after a failure that a restart may mend, from token zero with what was
  // delivered as the prefix.
  Outcome Run(uint64_t session, const SamplingParams& sampling, int epochs_max) {
    Outcome outcome;
    while (outcome.epochs < epochs_max) {
      const AttemptKey key{SessionId(session), Epoch(static_cast<uint64_t>(++outcome.epochs))};
      Open(key);
      const auto log = std::make_shared<RunLog>();
      RunRequest request{.term = Term(1),
                         .incarnation = Incarnation(1),
                         .run = {.key = key,
                                 .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5},
                                 .delivered = outcome.tokens,
                                 .new_tokens_max = 24,
                                 .sampling = sampling,
                                 .budget = kPatience}};
      a_.Do([&](ShardLoop& loop) { loop.OnRun(request, log); });
      outcome.status = log->Await();
      const std::vector<int32_t> fresh = log->tokens();
      outcome.tokens.insert(outcome.tokens.end(), fresh.begin(), fresh.end());
      Fence(key);
      if (outcome.status.ok() || !RestartMayHelp(FailureKindOf(outcome.status))) break;
    }
    return outcome;
  }

  void ExpectNothingLeft() {
    EXPECT_EQ(a_.pages_free(), static_cast<uint32_t>(kPages));
    EXPECT_EQ(b_.pages_free(), static_cast<uint32_t>(kPages));
    EXPECT_EQ(a_.repeats() + b_.repeats(), 0) << "a step was computed twice";
  }

  size_t StopCutting() {
    there_.Stop();
    back_.Stop();
    return there_.cut_count() + back_.cut_count();
  }

 private:
  void Open(const AttemptKey& key) {
    OpenAttempt open{.key = key,
                     .term = Term(1),
                     .incarnation = Incarnation(1),
                     .recipe = a_.recipe(),
                     .tokens_max = 48,
                     .budget = kPatience};
    open.route = {{NodeId("a"), Incarnation(1), back_.address(), {0, 3}},
                  {NodeId("b"), Incarnation(1), there_.address(), {3, kLayers}}};
    ShardNode* const nodes[] = {&a_, &b_};
    for (uint32_t i = 0; i < 2; ++i) {
      open.stage_index = i;
      nodes[i]->Do([&](ShardLoop& loop) {
        loop.OnOpen(open, [](const absl::StatusOr<OpenReply>& reply) {
          EXPECT_TRUE(reply.ok()) << reply.status();
        });
      });
    }
  }

  void Fence(const AttemptKey& key) {
    for (ShardNode* node : {&a_, &b_}) {
      node->Do([&](ShardLoop& loop) {
        loop.OnFence({.session = key.session, .epoch = key.epoch, .term = Term(1)},
                     [](FenceReply) {});
      });
    }
  }

  ShardNode a_;
  ShardNode b_;
  CuttingProxy there_;
  CuttingProxy back_;
};

SamplingParams Greedy() { return {.logprobs = true}; }
SamplingParams Seeded() {
  SamplingParams sampling;
  sampling.temperature = 0.8F;
  sampling.presence_penalty = 1.5F;
  sampling.repetition_penalty = 1.3F;
  sampling.seed = 4711;
  return sampling;
}

std::vector<int32_t> Undisturbed(const SamplingParams& sampling) {
  CutPair pair(absl::Seconds(1), {}, {});
  const CutPair::Outcome outcome = pair.Run(1, sampling, 1);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.tokens.size(), 24U);
  return outcome.tokens;
}

TEST(CutLinks, CutAtAnyByteTheyResumeWithTheSameTokens) {
  for (const SamplingParams& sampling : {Greedy(), Seeded()}) {
    const std::vector<int32_t> want = Undisturbed(sampling);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed));
      CutPair pair(kPatience, CutsOf(seed, 6, 200, 1500), CutsOf(seed + 100, 6, 200, 1500));
      const CutPair::Outcome outcome = pair.Run(1, sampling, 1);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_EQ(outcome.tokens, want);
      pair.ExpectNothingLeft();
      EXPECT_GE(pair.StopCutting(), 3U) << "the cuts must fall into the run";
    }
  }
}

TEST(CutLinks, WithoutResumeEveryCutIsANewEpochWithTheSameTokens) {
  for (const SamplingParams& sampling : {Greedy(), Seeded()}) {
    const std::vector<int32_t> want = Undisturbed(sampling);
    CutPair pair(absl::ZeroDuration(), CutsOf(7, 3, 800, 1600), CutsOf(8, 3, 800, 1600));
    const CutPair::Outcome outcome = pair.Run(1, sampling, 50);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_GT(outcome.epochs, 1);
    EXPECT_EQ(outcome.tokens, want);
    pair.ExpectNothingLeft();
  }
}

TEST(CutLinks, APeerThatStaysAwayEndsTheAttemptAndIsNamedWithItsReporter) {
  CutPair pair(absl::Milliseconds(100), CutsOf(1, 2000, 100, 100), {});
  const CutPair::Outcome outcome = pair.Run(1, Greedy(), 1);
  EXPECT_EQ(FailureKindOf(outcome.status), FailureKind::kStreamReset) << outcome.status;
  EXPECT_EQ(FailureDetailOf(outcome.status).node, NodeId("b"));
  EXPECT_EQ(FailureDetailOf(outcome.status).reporter, NodeId("a"));
}

}  // namespace
}  // namespace shardline
