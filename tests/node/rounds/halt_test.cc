// Ends that must not be lost although memory is: allocations fail, at each index in turn, and then
// all of them.

#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "node/rounds/head_core.h"

namespace {

bool armed = false;
int64_t allocations_left = 0;  // Before the first that fails.
bool fails_once = false;
int64_t allocations_seen = 0;

void* Allocate(size_t size) {
  if (armed) {
    ++allocations_seen;
    const bool fails = fails_once ? allocations_left == 0 : allocations_left <= 0;
    --allocations_left;
    if (fails) throw std::bad_alloc();
  }
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t /*size*/) noexcept { std::free(memory); }

namespace shardline {
namespace {

// Runs `call` with failing allocations from the one after `left` on; false if it threw.
bool WithFailures(int64_t left, bool once, const std::function<void()>& call) {
  allocations_left = left;
  fails_once = once;
  armed = true;
  bool is_whole = true;
  try {
    call();
  } catch (const std::bad_alloc&) {
    is_whole = false;
  }
  armed = false;
  return is_whole;
}

constexpr uint64_t kSessions = 9;

AttemptKey KeyOf(uint64_t session) { return {SessionId(session), Epoch(1)}; }

// A head in the middle of things: some attempts decode, some fill, some are drawn for, some wait.
class Crowd {
 public:
  Crowd()
      : head_({.node = NodeId("a"),
               .layers = {.begin = 0, .end = 2},
               .vocab_size = 100,
               .hidden_dim = 1,
               .context_tokens_max = 4096,
               .chunk_tokens_max = 4,
               .attempts_max = 5}) {}

  HeadCore& head() { return head_; }

  // Everything that happens, `each` of it; what a call takes is made before.
  void Happen(const std::function<bool(const std::function<void()>&)>& each) {
    for (uint64_t session = 1; session <= kSessions; ++session) {
      RunAttempt run{.key = KeyOf(session),
                     .prompt = std::vector<int32_t>(session == 3 ? 400 : session, 1),
                     .new_tokens_max = 50,
                     .budget = absl::Seconds(60),
                     .route = {{.node = NodeId("a")}},
                     .tokens_max = 4096,
                     .tenant = "a tenant with a name that is longer than short strings are",
                     .rounds_in_flight = 2};
      absl::Status status = absl::UnknownError("thrown");
      const bool is_whole = each([&] { status = head_.OnRun(std::move(run), now_); });
      if (is_whole && status.ok()) accepted_.push_back(KeyOf(session));
      Go(each);
    }
    for (int i = 0; i < 6; ++i) Go(each);
  }

  // One end each, and none for anybody else; those of a call that threw may have one.
  void CheckEnds(const absl::Status& reason) {
    std::map<AttemptKey, int> ends;
    for (const AttemptEnd& end : ends_) {
      EXPECT_EQ(++ends[end.key], 1);
      EXPECT_EQ(end.status, reason);
    }
    for (const AttemptKey& key : accepted_) EXPECT_EQ(ends[key], 1) << key.session.value();
    EXPECT_EQ(head_.attempts_running(), 0U);
  }

  void Take(HeadActions& actions) {
    steps_.insert(steps_.end(), actions.steps.begin(), actions.steps.end());
    jobs_.insert(jobs_.end(), actions.jobs.begin(), actions.jobs.end());
    ends_.splice(ends_.end(), actions.ends);
  }

  const std::vector<AttemptKey>& accepted() const { return accepted_; }
  std::list<AttemptEnd>& ends() { return ends_; }
  Instant now() const { return now_; }

 private:
  void Go(const std::function<bool(const std::function<void()>&)>& each) {
    HeadActions actions = head_.TakeActions();
    Take(actions);
    std::vector<StageBundle> steps = std::exchange(steps_, {});
    std::vector<ComputeJob> jobs = std::exchange(jobs_, {});
    for (StageBundle& back : steps) {
      for (BundleRow& row : back.rows) {
        row.position += row.token_count - 1;
        row.token_count = 1;
      }
      back.tokens.clear();
      back.hidden = Buffer::Allocate(back.rows.size() * sizeof(float));
      each([&] { head_.OnReturn(std::move(back), now_); });
    }
    for (const ComputeJob& job : jobs) {
      ComputeDone done{.id = job.id};
      for (const SampleTarget& sample : job.samples) {
        done.samples.push_back({.key = sample.key, .tokens = {{.token = 5}}});
      }
      each([&] { head_.OnComputeDone(std::move(done), now_); });
    }
  }

  HeadCore head_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  std::vector<StageBundle> steps_;
  std::vector<ComputeJob> jobs_;
  std::vector<AttemptKey> accepted_;
  std::list<AttemptEnd> ends_;
};

void HaltWithoutMemory(Crowd& crowd) {
  const absl::Status reason = MakeFailure(FailureKind::kWorkerDeath, "the node goes away");
  HeadActions last;
  HeadActions more;
  EXPECT_TRUE(WithFailures(0, false, [&] {
    last = crowd.head().TakeActions();
    crowd.head().Halt(reason, crowd.now());
    more = crowd.head().TakeActions();
  })) << "a halt must not need memory";
  crowd.Take(last);
  crowd.Take(more);
  crowd.CheckEnds(reason);
}

TEST(Halt, EndsEveryAttemptWithoutAnyMemory) {
  Crowd crowd;
  crowd.Happen([](const std::function<void()>& call) {
    call();
    return true;
  });
  EXPECT_EQ(crowd.accepted().size(), kSessions);
  EXPECT_EQ(crowd.head().attempts_queued(), 4U);
  HaltWithoutMemory(crowd);
}

TEST(Halt, EndsEveryAttemptWhicheverAllocationFailedBefore) {
  for (const bool once : {true, false}) {
    bool reached = true;
    int64_t index = 0;
    for (; reached; ++index) {
      SCOPED_TRACE(index);
      Crowd crowd;
      int64_t left = index;
      reached = false;
      crowd.Happen([&](const std::function<void()>& call) {
        const bool is_whole = WithFailures(left, once, call);
        left = allocations_left;
        reached = reached || left < 0;
        return is_whole;
      });
      HaltWithoutMemory(crowd);
      if (HasFailure()) return;
    }
    EXPECT_GT(index, 100) << "allocations of a whole run";
  }
}

TEST(Halt, CancelsAndFencesEndTheirAttemptsWithoutAnyMemory) {
  Crowd crowd;
  crowd.Happen([](const std::function<void()>& call) {
    call();
    return true;
  });
  HeadActions actions = crowd.head().TakeActions();
  crowd.Take(actions);
  for (uint64_t session = 1; session <= kSessions; ++session) {
    WithFailures(0, false, [&] {
      if (session % 2 == 0) {
        crowd.head().OnCancel(KeyOf(session), crowd.now());
      } else {
        crowd.head().OnFence(SessionId(session), Epoch(1), FailureKind::kStaleEpoch, crowd.now());
      }
    });
    actions = crowd.head().TakeActions();
    crowd.Take(actions);
    ASSERT_EQ(crowd.ends().size(), session);
    EXPECT_EQ(crowd.ends().back().key, KeyOf(session));
    EXPECT_EQ(FailureKindOf(crowd.ends().back().status),
              session % 2 == 0 ? FailureKind::kCancelled : FailureKind::kStaleEpoch);
  }
}

}  // namespace
}  // namespace shardline
