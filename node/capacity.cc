#include "node/capacity.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>

#include "absl/time/time.h"
#include "base/clock.h"
#include "kernels/thread_pool.h"

namespace shardline {
namespace {

constexpr size_t kReadBytes = 64 << 20;
constexpr size_t kReadTaskBytes = 1 << 20;
constexpr absl::Duration kTimeLimit = absl::Milliseconds(60);
constexpr size_t kDotBytes = 4096;
constexpr int kDotRepeats = 256;

// Passes over `task_count` tasks until the time is up; the best pass, in tasks a second.
template <typename Body>
double BestRate(ThreadPool& pool, int64_t task_count, const Body& body) {
  const Instant begin = SystemClock()->Now();
  absl::Duration best = absl::InfiniteDuration();
  while (SystemClock()->Now() < begin + kTimeLimit) {
    const Instant pass_begin = SystemClock()->Now();
    pool.ParallelFor(task_count, body);
    best = std::min(best, SystemClock()->Now() - pass_begin);
  }
  return static_cast<double>(task_count) / absl::ToDoubleSeconds(best);
}

}  // namespace

MeasuredSpeed MeasureSpeed(int threads) {
  ThreadPool pool({.threads = threads});
  std::atomic<uint64_t> sink = 0;  // Keeps the work from being optimised away.

  const auto words = std::make_unique<uint64_t[]>(kReadBytes / sizeof(uint64_t));
  constexpr size_t kTaskWords = kReadTaskBytes / sizeof(uint64_t);
  const double read_tasks = BestRate(pool, kReadBytes / kReadTaskBytes, [&](int64_t task) {
    const uint64_t* begin = words.get() + static_cast<size_t>(task) * kTaskWords;
    uint64_t sum[8] = {};
    for (size_t i = 0; i < kTaskWords; i += 8) {
      for (size_t lane = 0; lane < 8; ++lane) sum[lane] += begin[i + lane];
    }
    for (const uint64_t lane : sum) sink.fetch_add(lane, std::memory_order_relaxed);
  });

  const int64_t dot_tasks = 4 * pool.thread_count();
  const double dots = BestRate(pool, dot_tasks, [&](int64_t task) {
    alignas(64) int8_t a[kDotBytes];
    alignas(64) int8_t b[kDotBytes];
    std::memset(a, static_cast<int>(task) + 1, sizeof(a));
    std::memset(b, 3, sizeof(b));
    int32_t sum = 0;
    for (int repeat = 0; repeat < kDotRepeats; ++repeat) {
      a[repeat % kDotBytes] = static_cast<int8_t>(repeat);
      for (size_t i = 0; i < kDotBytes; ++i) sum += int32_t{a[i]} * int32_t{b[i]};
    }
    sink.fetch_add(static_cast<uint64_t>(sum), std::memory_order_relaxed);
  });

  return {.read_bytes_per_s = read_tasks * kReadTaskBytes,
          .int8_ops_per_s = dots * 2.0 * kDotBytes * kDotRepeats};
}

uint64_t MemoryTotalBytes() {
  uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::string MachineId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace shardline
