// shardline-sim: runs simulations by the thousand, or one of them again.

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

constexpr char kExamples[] = R"(Examples:
  shardline-sim --seeds 0..100000            a hundred thousand schedules
  shardline-sim --sweep --pairs              every fault, and pairs, at every event
  shardline-sim --trace --replay "world seed=7; session at=60 seed=1 tokens=4; at=90 kill node=1")";

// Reads "A..B"; false if it is something else.
bool ReadRange(const std::string& text, uint64_t& begin, uint64_t& end) {
  const std::vector<std::string> parts = absl::StrSplit(text, "..");
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &begin) &&
         absl::SimpleAtoi(parts[1], &end) && begin < end;
}

int Replay(const std::string& text, bool trace) {
  const absl::StatusOr<Scenario> scenario = Scenario::Parse(text);
  if (!scenario.ok()) {
    std::fprintf(stderr, "%s\n", std::string(scenario.status().message()).c_str());
    return 2;
  }
  const Outcome outcome = RunScenario(*scenario, trace);
  std::fputs(trace ? outcome.all.c_str() : outcome.tail.c_str(), stdout);
  if (!outcome.ok()) {
    std::printf("invariant %d: %s\n", outcome.violation->invariant,
                outcome.violation->what.c_str());
    return 1;
  }
  std::printf("ok: %llu events, %.3f s of virtual time, trace hash %016llx\n",
              static_cast<unsigned long long>(outcome.events),
              static_cast<double>(outcome.time) / 1e9,
              static_cast<unsigned long long>(outcome.trace_hash));
  return 0;
}

int Report(const char* what, const Batch& batch, bool shrink, bool sometimes) {
  std::printf("%s: %llu schedules, %llu failures, %llu events, trace hash %016llx\n", what,
              static_cast<unsigned long long>(batch.schedules),
              static_cast<unsigned long long>(batch.failures),
              static_cast<unsigned long long>(batch.events),
              static_cast<unsigned long long>(batch.trace_hash));
  std::printf("sim_events_per_s %.0f\n",
              static_cast<double>(batch.events) / std::max(batch.seconds, 1e-9));
  for (size_t i = 0; sometimes && i < batch.counts.size(); ++i) {
    std::printf("  %-38s %llu\n", std::string(SometimesName(static_cast<Sometimes>(i))).c_str(),
                static_cast<unsigned long long>(batch.counts[i]));
  }
  for (const Failure& failure : batch.first_failures) {
    std::fputs(Describe(failure, shrink).c_str(), stdout);
  }
  return batch.failures == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app{"Simulates a Shardline cluster: real cores, virtual time, seeded faults"};
  app.footer(kExamples);
  std::string seeds;
  std::string replay;
  bool sweep = false;
  bool pairs = false;
  bool trace = false;
  bool no_shrink = false;
  bool sometimes = false;
  uint64_t stride = 1;
  int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.add_option("--seeds", seeds, "Schedules drawn from the seeds A to B - 1")->type_name("A..B");
  app.add_flag("--sweep", sweep, "One fault of each kind before every event of a small world");
  app.add_flag("--pairs", pairs, "Pairs of kill, cancel, deadline and reset in that world");
  app.add_option("--stride", stride, "Of --pairs: every so many events")->check(CLI::Range(1, 50));
  app.add_option("--replay", replay, "One scenario, as a failure prints it");
  app.add_flag("--trace", trace, "With --replay: every event");
  app.add_flag("--no-shrink", no_shrink, "Print failures as they were drawn");
  app.add_flag("--sometimes", sometimes, "Count what must happen now and then");
  app.add_option("--jobs", jobs, "Threads")->check(CLI::Range(1, 256));
  CLI11_PARSE(app, argc, argv);

  if (!replay.empty()) return Replay(replay, trace);
  int result = 0;
  if (!seeds.empty()) {
    uint64_t begin = 0;
    uint64_t end = 0;
    if (!ReadRange(seeds, begin, end)) {
      std::fprintf(stderr, "--seeds: '%s' is not A..B with A < B\n", seeds.c_str());
      return 2;
    }
    const Batch batch =
        RunBatch(end - begin, jobs, [begin](uint64_t i) { return DrawScenario(begin + i); });
    result |= Report("seeds", batch, !no_shrink, sometimes);
  }
  if (sweep) {
    const std::vector<Scenario> all = SweepScenarios(1);
    const Batch batch = RunBatch(all.size(), jobs, [&all](uint64_t i) { return all[i]; });
    result |= Report("sweep", batch, !no_shrink, sometimes);
  }
  if (pairs) {
    const std::vector<Scenario> all = PairScenarios(1, stride);
    const Batch batch = RunBatch(all.size(), jobs, [&all](uint64_t i) { return all[i]; });
    result |= Report("pairs", batch, !no_shrink, sometimes);
  }
  if (seeds.empty() && !sweep && !pairs) std::fputs(app.help().c_str(), stdout);
  return result;
}

}  // namespace
}  // namespace shardline::sim

int main(int argc, char** argv) { return shardline::sim::Main(argc, argv); }
