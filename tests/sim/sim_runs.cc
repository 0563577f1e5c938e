#include "tests/sim/sim_runs.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tests/sim/rng.h"
#include "tests/sim/world_heap.h"

namespace shardline::sim {
namespace {

constexpr size_t kFailuresKept = 5;

// Of this thread alone: what others do with the machine does not count.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Join(Batch& whole, const Batch& part) {
  whole.schedules += part.schedules;
  whole.events += part.events;
  whole.failures += part.failures;
  whole.seconds += part.seconds;
  whole.trace_hash += part.trace_hash;
  for (size_t i = 0; i < whole.counts.size(); ++i) whole.counts[i] += part.counts[i];
  whole.first_failures.insert(whole.first_failures.end(), part.first_failures.begin(),
                              part.first_failures.end());
  std::sort(whole.first_failures.begin(), whole.first_failures.end(),
            [](const Failure& a, const Failure& b) { return a.index < b.index; });
  if (whole.first_failures.size() > kFailuresKept) whole.first_failures.resize(kFailuresKept);
}

}  // namespace

Batch RunBatch(uint64_t count, int jobs, const std::function<Scenario(uint64_t)>& nth,
               bool stop_at_first, const std::function<void()>& on_thread) {
  KeepTheHeap();
  InitLog({.level = LogLevel::kError});  // What cores warn of happens by the thousand.
  Batch whole;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    if (on_thread) on_thread();
    Batch part;
    const double begin = CpuSeconds();
    while (!stop) {
      const uint64_t index = next++;
      if (index >= count) break;
      Scenario scenario = nth(index);
      const Outcome outcome = RunScenario(scenario);
      ++part.schedules;
      part.events += outcome.events;
      part.trace_hash += Rng(outcome.trace_hash ^ index).Next();
      for (size_t i = 0; i < part.counts.size(); ++i) part.counts[i] += outcome.counts[i];
      if (outcome.ok()) continue;
      ++part.failures;
      stop = stop_at_first;
      if (part.first_failures.size() < kFailuresKept) {
        part.first_failures.push_back(
            {.index = index, .scenario = std::move(scenario), .violation = *outcome.violation});
      }
    }
    part.seconds = CpuSeconds() - begin;
    const std::lock_guard lock(mutex);
    Join(whole, part);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return whole;
}

std::vector<Scenario> SweepScenarios(uint64_t seed) {
  const Scenario plain = PlainScenario(seed);
  const Outcome undisturbed = RunScenario(plain);
  const uint64_t last = undisturbed.session_events + 10;
  std::vector<Scenario> scenarios;
  const auto add = [&](const Fault& fault) {
    scenarios.push_back(plain);
    scenarios.back().faults.push_back(fault);
  };
  for (int k = 0; k < static_cast<int>(FaultKind::kCount); ++k) {
    const auto kind = static_cast<FaultKind>(k);
    for (uint64_t at = 0; at < last; ++at) {
      Fault fault = {.at = at, .kind = kind, .amount = 1, .length = 400 * kMillisecond};
      switch (kind) {
        case FaultKind::kCrash:
        case FaultKind::kZombie:
        case FaultKind::kPauseCoordinator:
        case FaultKind::kDiskFull:
        case FaultKind::kDiskError:
        case FaultKind::kDiskUnheard:
        case FaultKind::kCancel:
          add(fault);
          break;
        case FaultKind::kDiskSlow:
          fault.amount = 300;
          add(fault);
          break;
        case FaultKind::kCut:
        case FaultKind::kReset:
        case FaultKind::kHalfReset:
          for (const auto& [from, to] : {std::pair{0, 1}, {2, 0}, {kCoordinatorEnd, 1}}) {
            fault.node = from;
            fault.other = to;
            add(fault);
          }
          break;
        case FaultKind::kDelay:
        case FaultKind::kDropFrames:
        case FaultKind::kRepeatFrames:
        case FaultKind::kReorderFrames:
        case FaultKind::kMisroute:
          fault.node = static_cast<int>(at % 3);
          fault.other = (fault.node + 1) % 3;
          fault.amount = 400;
          add(fault);
          break;
        default:
          fault.node = static_cast<int>(at % 3);
          if (kind == FaultKind::kForge) fault.amount = static_cast<int64_t>(at % 6);
          if (kind == FaultKind::kSlow) fault.amount = 1000;
          add(fault);
          if (kind == FaultKind::kKill || kind == FaultKind::kPause) {
            fault.node = (fault.node + 1) % 3;
            fault.length = 1700 * kMillisecond;
            add(fault);
          }
          break;
      }
    }
  }
  return scenarios;
}

std::vector<Scenario> PairScenarios(uint64_t seed, uint64_t stride) {
  const Scenario plain = PlainScenario(seed);
  const Outcome undisturbed = RunScenario(plain);
  const uint64_t first = plain.sessions.front().at;
  const uint64_t last = undisturbed.session_events + 4;
  std::vector<Scenario> scenarios;
  // A deadline is not an event of the outside: the budget is cut to end about there.
  enum class What { kKill, kCancel, kDeadline, kReset };
  const auto apply = [&](Scenario& scenario, What what, uint64_t at) {
    const int node = static_cast<int>(at % 3);
    switch (what) {
      case What::kKill:
        scenario.faults.push_back(
            {.at = at, .kind = FaultKind::kKill, .node = node, .length = 300 * kMillisecond});
        break;
      case What::kCancel:
        scenario.faults.push_back({.at = at, .kind = FaultKind::kCancel});
        break;
      case What::kDeadline:
        scenario.sessions.front().budget = static_cast<SimTime>(at - first + 1) * 60 * kMicrosecond;
        break;
      case What::kReset:
        scenario.faults.push_back(
            {.at = at, .kind = FaultKind::kReset, .node = node, .other = (node + 1) % 3});
        break;
    }
  };
  for (int a = 0; a < 4; ++a) {
    for (int b = a; b < 4; ++b) {
      for (uint64_t i = first; i < last; i += stride) {
        for (uint64_t j = i; j < last; j += stride) {
          Scenario scenario = plain;
          apply(scenario, static_cast<What>(a), i);
          apply(scenario, static_cast<What>(b), j);
          scenarios.push_back(scenario);
          if (a == b) continue;
          scenario = plain;
          apply(scenario, static_cast<What>(b), i);
          apply(scenario, static_cast<What>(a), j);
          scenarios.push_back(std::move(scenario));
        }
      }
    }
  }
  return scenarios;
}

std::string Describe(const Failure& failure, bool shrink) {
  const Scenario small =
      shrink ? Shrink(failure.scenario, failure.violation.invariant) : failure.scenario;
  const Outcome outcome = RunScenario(small);
  const Violation& violation = outcome.violation ? *outcome.violation : failure.violation;
  return absl::StrCat("invariant ", violation.invariant, ": ", violation.what, "\n  schedule ",
                      failure.index, ", ", small.sessions.size(), " sessions, ",
                      small.faults.size(), " faults\n  the last events:\n", outcome.tail,
                      "  see it again:\n  build/release/bin/shardline-sim --trace --replay \"",
                      small.ToString(), "\"\n");
}

}  // namespace shardline::sim
