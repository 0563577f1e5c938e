#include <chrono>
#include <cstdio>

#include "CLI/CLI.hpp"
#include "tests/sim/sim_world.h"

int main(int argc, char** argv) {
  CLI::App app{"shardline-sim"};
  std::string seeds = "0..100";
  std::string replay;
  bool trace = false;
  app.add_option("--seeds", seeds);
  app.add_option("--replay", replay);
  app.add_flag("--trace", trace);
  CLI11_PARSE(app, argc, argv);
  using namespace shardline::sim;
  if (!replay.empty()) {
    auto scenario = Scenario::Parse(replay);
    if (!scenario.ok()) {
      std::printf("%s\n", std::string(scenario.status().message()).c_str());
      return 2;
    }
    Outcome outcome = RunScenario(*scenario, trace);
    std::printf("%s", trace ? outcome.all.c_str() : outcome.tail.c_str());
    std::printf("%s\n", outcome.ok() ? "ok" : outcome.violation->what.c_str());
    return 0;
  }
  unsigned long long a, b;
  std::sscanf(seeds.c_str(), "%llu..%llu", &a, &b);
  uint64_t events = 0, bad = 0;
  SometimesCounts counts = {};
  auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = a; seed < b; ++seed) {
    Scenario scenario = DrawScenario(seed);
    Outcome outcome = RunScenario(scenario);
    events += outcome.events;
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += outcome.counts[i];
    if (!outcome.ok()) {
      ++bad;
      std::printf("[%d] %s\n  %s\n", outcome.violation->invariant, outcome.violation->what.c_str(),
                  scenario.ToString().c_str());
    }
  }
  double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "%llu schedules, %llu bad, %llu events, %.1f us/event, %.0f schedules/s, %.0f events/s\n",
      b - a, (unsigned long long)bad, (unsigned long long)events, s * 1e6 / events, (b - a) / s,
      events / s);
  for (size_t i = 0; i < counts.size(); ++i)
    std::printf("  %-40s %llu\n", std::string(SometimesName(static_cast<Sometimes>(i))).c_str(),
                (unsigned long long)counts[i]);
}
