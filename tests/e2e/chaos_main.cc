// shardline-chaos: rounds of chaos on real processes, until something breaks or it is enough.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/e2e/chaos.h"

namespace shardline::testing {
namespace {

constexpr char kFooter[] =
    "Sessions run in rounds of at most 100, each on a cluster of its own; round i has the seed\n"
    "SEED + i. A round that broke says how to run it alone. Stopped, it is taken up again with "
    "the\n"
    "seed of the next round. Faults are kill, pause, cut, one-way, link, reset, bundle,\n"
    "coordinator, cancel, leave, deadline; or all, or none.\n\n"
    "Exit code: 0 when everything held, 1 when something broke, 2 for a bad command line.\n\n"
    "Example:\n"
    "  shardline-chaos --sessions 5000 --seed 1\n"
    "  shardline-chaos --sessions 100 --seed 17 --faults kill,pause --nodes 4";

constexpr int kRoundSessions = 100;

struct Command {
  ChaosOptions round;
  int sessions = 100;
  double minutes = 0;  // 0: as long as it takes.
  std::string faults = "all";
};

int Run(const Command& command) {
  const Instant started = SystemClock()->Now();
  const std::vector<Recipe> recipes = MakeRecipes(command.round.recipes);
  const std::vector<ReferenceAnswer> answers = AnswerAlone(recipes);
  std::printf("%d reference answers\n", static_cast<int>(answers.size()));
  std::vector<ChaosReport> reports;
  ChaosOptions round = command.round;
  for (int done = 0; done < command.sessions; done += round.sessions, ++round.seed) {
    if (command.minutes > 0 && SystemClock()->Now() - started > absl::Minutes(command.minutes)) {
      std::printf("time is up; go on with --seed %lu\n", static_cast<unsigned long>(round.seed));
      break;
    }
    round.sessions = std::min(kRoundSessions, command.sessions - done);
    reports.push_back(RunChaos(round, recipes, answers));
    const ChaosReport& report = reports.back();
    std::printf("%s\n", Summary(report).c_str());
    for (const std::string& violation : report.violations) std::printf("  %s\n", violation.c_str());
    if (!report.violations.empty()) {
      std::printf(
          "  again: shardline-chaos --sessions %d --seed %lu --faults %s --nodes %d --shards %d "
          "--replicas %d; logs: %s\n",
          round.sessions, static_cast<unsigned long>(round.seed), command.faults.c_str(),
          round.nodes, round.shards, round.replicas, report.directory.c_str());
    }
    std::fflush(stdout);
  }
  const ChaosReport sum = Sum(reports);
  std::printf("all: %s\n", Summary(sum).c_str());
  return sum.violations.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Real processes under faults; checks that no guarantee is broken.");
  app.footer(kFooter);
  Command command;
  app.add_option("--sessions", command.sessions, "How many in all")->capture_default_str();
  app.add_option("--seed", command.round.seed, "Of the first round")->capture_default_str();
  app.add_option("--faults", command.faults, "Which ones")->capture_default_str();
  app.add_option("--nodes", command.round.nodes, "Node processes")
      ->capture_default_str()
      ->check(CLI::Range(1, 26));
  app.add_option("--shards", command.round.shards, "Stages of a route; other nodes are spare")
      ->capture_default_str();
  app.add_option("--replicas", command.round.replicas, "Nodes that hold each range of layers")
      ->capture_default_str();
  app.add_option("--concurrency", command.round.concurrency, "Clients at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--recipes", command.round.recipes, "Different requests")
      ->capture_default_str()
      ->check(CLI::Range(1, 512));
  app.add_option("--minutes", command.minutes, "No new round after so long; 0: no limit")
      ->capture_default_str();
  app.add_option("--pauses", command.round.pause_leases, "Lengths of pauses, in leases of 1.5 s")
      ->capture_default_str()
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<std::set<Fault>> faults = ParseFaults(command.faults);
  if (!faults.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(faults.status().message()).c_str());
    return 2;
  }
  command.round.faults = *faults;
  return Run(command);
}

}  // namespace
}  // namespace shardline::testing

int main(int argc, char** argv) { return shardline::testing::Main(argc, argv); }
