// Runs that arrive while the node begins to drain: each is refused or run, and waited for.

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/strand.h"
#include "gtest/gtest.h"
#include "node/rounds/head_core.h"
#include "node/transport/run_gate.h"

namespace shardline {
namespace {

constexpr int kArrivers = 4;
constexpr int kRunsEach = 40;
const Instant kNow = Instant::FromOrigin(absl::Seconds(100));

// A head on a strand, whose ring and device answer at once: what a node is to its callers.
class Place {
 public:
  Place()
      : head_({.node = NodeId("a"),
               .layers = {.begin = 0, .end = 2},
               .vocab_size = 100,
               .hidden_dim = 1,
               .context_tokens_max = 64,
               .attempts_max = 4,
               .tenant_queue_max = 256}) {}

  // A call as the head's service makes it: counted, then asked, then posted.
  void Call(uint64_t session) {
    if (!gate_.Enter()) {
      ++refused_at_gate_;
      gate_.Leave();
      return;
    }
    strand_.Post([this, session] {
      RunAttempt run{.key = {SessionId(session), Epoch(1)},
                     .prompt = {1},
                     .new_tokens_max = 3,
                     .budget = absl::Seconds(60),
                     .route = {{.node = NodeId("a")}},
                     .tokens_max = 64};
      if (!head_.OnRun(std::move(run), kNow).ok()) {
        ++refused_by_head_;
        gate_.Leave();
      }
      strand_.Post([this] { Go(); });
    });
  }

  void BeginDrain() {
    gate_.Shut();
    strand_.Post([this] {
      head_.Drain(MakeFailure(FailureKind::kWorkerDeath, "drained"), kNow + absl::Hours(1), kNow);
    });
  }

  bool AwaitEmpty() { return gate_.AwaitEmpty(absl::Seconds(60)); }

  // On the strand, so that all before it is over.
  void CheckNobodyIsLeft() {
    absl::Notification checked;
    strand_.Post([&] {
      EXPECT_TRUE(head_.drained());
      EXPECT_EQ(head_.attempts_running(), 0U);
      checked.Notify();
    });
    checked.WaitForNotification();
    EXPECT_EQ(ended_ + refused_at_gate_ + refused_by_head_, kArrivers * kRunsEach);
  }

 private:
  void Go() {
    HeadActions actions = head_.TakeActions();
    for (StageBundle& back : actions.steps) {
      for (BundleRow& row : back.rows) {
        row.position += row.token_count - 1;
        row.token_count = 1;
      }
      back.hidden = Buffer::Allocate(back.rows.size() * sizeof(float));
      head_.OnReturn(std::move(back), kNow);
    }
    for (const ComputeJob& job : actions.jobs) {
      ComputeDone done{.id = job.id};
      for (const SampleTarget& sample : job.samples) {
        done.samples.push_back({.key = sample.key, .tokens = {{.token = 5}}});
      }
      head_.OnComputeDone(std::move(done), kNow);
    }
    for (const AttemptEnd& end : actions.ends) {
      EXPECT_TRUE(end.status.ok());
      ++ended_;
      gate_.Leave();
    }
    if (!actions.empty()) strand_.Post([this] { Go(); });
  }

  HeadCore head_;
  RunGate gate_;
  std::atomic<int> refused_at_gate_ = 0;
  std::atomic<int> refused_by_head_ = 0;
  std::atomic<int> ended_ = 0;
  Strand strand_{1024};
};

TEST(DrainRace, EveryRunIsRefusedOrRunAndWaitedFor) {
  for (int round = 0; round < 20; ++round) {
    Place place;
    std::vector<std::thread> arrivers;
    for (int arriver = 0; arriver < kArrivers; ++arriver) {
      arrivers.emplace_back([&place, arriver] {
        for (int i = 0; i < kRunsEach; ++i) {
          place.Call(static_cast<uint64_t>(arriver * kRunsEach + i + 1));
        }
      });
    }
    std::thread drainer([&place] { place.BeginDrain(); });
    for (std::thread& arriver : arrivers) arriver.join();
    drainer.join();
    EXPECT_TRUE(place.AwaitEmpty()) << "a run was lost";
    place.CheckNobodyIsLeft();
  }
}

}  // namespace
}  // namespace shardline
