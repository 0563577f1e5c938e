#include "kernels/thread_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/cpu_quota.h"
#include "kernels/flush_denormals.h"

namespace shardline {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

// Sleeps while `word` holds `seen`; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

// Spins until done() or `limit` has passed; true if done. The clock is read every few pauses.
template <typename Done>
bool SpinUntil(Nanoseconds limit, Done done) {
  constexpr int kPausesPerLook = 16;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

// What a worker that was told of a fork spins for it: the wake-up of another thread takes as long.
constexpr Nanoseconds kExpectedSpin{100'000};

}  // namespace

std::vector<int> UsableCpus() {
  // A kernel built for more CPUs than cpu_set_t holds wants a larger set.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 16); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    std::vector<int> usable;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) usable.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!usable.empty()) return usable;
  }
  return {};
}

int UsableCpuCount() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream self_cgroup;
  self_cgroup << file.rdbuf();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const int affinity = std::max(1, static_cast<int>(UsableCpus().size()));
  int count = std::min(affinity, CgroupCpuLimit(self_cgroup.str(), "/sys/fs/cgroup"));
  if (online > 0) count = std::min<int>(count, static_cast<int>(online));
  return std::max(count, 1);
}

// A fork is published by storing `work`: its generation above, the tasks nobody has claimed below.
// A claim is a compare-and-swap that takes one off, so it succeeds only in the generation it
// looked at, and from then until it is counted in `finished` the caller cannot return: `body` and
// `task_count` may be read. A worker that wakes late finds nothing unclaimed and touches neither.
struct ThreadPool::State {
  Nanoseconds spin;
  std::vector<std::thread> threads;

  // Written by the caller between forks only.
  const absl::FunctionRef<void(int64_t)>* body = nullptr;
  int64_t task_count = 0;

  alignas(64) std::atomic<uint64_t> work = 0;
  alignas(64) std::atomic<uint32_t> finished = 0;  // Tasks done; the caller sleeps on it.
  alignas(64) std::atomic<uint32_t> forks = 0;     // Forks so far; workers sleep on it.
  alignas(64) std::atomic<uint32_t> parked_workers = 0;
  std::atomic<bool> caller_parked = false;
  std::atomic<bool> resting = false;  // Nobody spins.
  std::atomic<bool> stop = false;

  static uint32_t Unclaimed(uint64_t value) { return static_cast<uint32_t>(value); }
  bool HasWork() const { return Unclaimed(work.load(std::memory_order_acquire)) != 0; }

  // Runs tasks until none is left to claim; returns how many.
  uint32_t RunTasks() {
    uint32_t ran = 0;
    uint64_t seen = work.load(std::memory_order_acquire);
    while (Unclaimed(seen) != 0) {
      if (!work.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        continue;
      }
      (*body)(task_count - Unclaimed(seen));
      ++ran;
      seen = work.load(std::memory_order_acquire);
      // The next fork cannot start before `ran` is counted, so `seen` is still ours.
    }
    return ran;
  }

  void Worker() {
    const ScopedFlushDenormals flush;
    bool expected = false;  // Woken for a fork that has yet to come.
    while (true) {
      if (const uint32_t ran = RunTasks(); ran > 0) {
        finished.fetch_add(ran);
        if (caller_parked.load()) FutexWakeAll(finished);
      }
      const uint32_t seen = forks.load();
      if (stop.load()) return;
      SpinUntil(expected ? kExpectedSpin : spin,
                [this] { return HasWork() || resting.load(std::memory_order_relaxed); });
      expected = false;
      if (HasWork()) continue;
      // Either this sees the next fork, or the fork sees this worker parked and wakes it.
      parked_workers.fetch_add(1);
      if (forks.load() == seen) FutexWait(forks, seen);
      parked_workers.fetch_sub(1);
      expected = !HasWork();
    }
  }

  void AnnounceFork() {
    forks.fetch_add(1);
    if (parked_workers.load() > 0) FutexWakeAll(forks);
  }

  void AwaitFinished(uint32_t count) {
    if (SpinUntil(spin, [&] { return finished.load(std::memory_order_acquire) == count; })) return;
    // The worker that holds a task may have lost its core, perhaps to this very loop.
    caller_parked.store(true);
    while (true) {
      const uint32_t seen = finished.load();
      if (seen == count) break;
      FutexWait(finished, seen);
    }
    caller_parked.store(false);
  }
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options) : state_(std::make_unique<State>()) {
  state_->spin = Nanoseconds(absl::ToInt64Nanoseconds(options.spin));
  const int usable = UsableCpuCount();
  const int threads = options.threads > 0 ? std::min(options.threads, usable) : usable;
  for (int i = 1; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Worker(); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->AnnounceFork();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::thread_count() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::ParallelFor(int64_t task_count, absl::FunctionRef<void(int64_t task)> body) {
  SL_CHECK(task_count >= 0);
  SL_CHECK(task_count <= INT32_MAX);
  const ScopedFlushDenormals flush;
  State& state = *state_;
  if (task_count <= 1 || state.threads.empty()) {
    for (int64_t task = 0; task < task_count; ++task) body(task);
    return;
  }
  state.body = &body;
  state.task_count = task_count;
  state.finished.store(0, std::memory_order_relaxed);
  state.resting.store(false, std::memory_order_relaxed);
  const uint64_t generation = (state.work.load(std::memory_order_relaxed) >> 32) + 1;
  state.work.store((generation << 32) | static_cast<uint64_t>(task_count));
  state.AnnounceFork();
  const uint32_t ran = state.RunTasks();
  const uint32_t total = state.finished.fetch_add(ran) + ran;
  if (total != static_cast<uint32_t>(task_count)) {
    state.AwaitFinished(static_cast<uint32_t>(task_count));
  }
}

void ThreadPool::Rest() { state_->resting.store(true, std::memory_order_relaxed); }

void ThreadPool::Expect() {
  if (state_->parked_workers.load() == 0) return;
  state_->resting.store(false, std::memory_order_relaxed);
  state_->AnnounceFork();
}

}  // namespace shardline
