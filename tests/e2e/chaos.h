#pragma once

// A round of chaos: real processes, sessions at random, faults at random tokens, and then the
// questions that must all have the right answer. `shardline-chaos --help` says how to run many.
//
// What is asked of a round:
//   every session ends by its deadline and its grace, with one outcome;
//   its tokens are those of the undisturbed run, each index once, and of no other session;
//   every attempt has one terminal record, and the session's outcome is what its client saw;
//   all KV pages are free at the end, on every node;
//   no process died that was not killed.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos_client.h"
#include "tests/e2e/chaos_plan.h"

namespace shardline::testing {

struct ChaosReport {
  uint64_t seed = 0;
  int sessions = 0;
  std::map<ClientReport::Outcome, int> outcomes;
  std::map<std::string, int> failures;  // Of the failed ones, by kind.
  std::map<Fault, int> faults;
  int restarts = 0;
  int completed_after_restart = 0;
  int reattaches = 0;
  int64_t tokens = 0;
  int64_t records = 0;  // Of the ledger; -1: it was not asked.
  absl::Duration took;
  absl::Duration stall_max;             // The longest this machine kept a ready thread waiting.
  std::vector<std::string> violations;  // Empty: everything held.
  std::string directory;                // Of the logs; kept iff there are violations.
};

// One line: the seed, sessions by outcome, faults by kind, violations.
std::string Summary(const ChaosReport& report);
ChaosReport Sum(const std::vector<ChaosReport>& reports);

// Answers of the recipes from one process, undisturbed. The model is GoldenModelPath().
std::vector<ReferenceAnswer> AnswerAlone(const std::vector<Recipe>& recipes);

// REQUIRES: `recipes` are MakeRecipes(options.recipes), `answers` theirs.
ChaosReport RunChaos(const ChaosOptions& options, const std::vector<Recipe>& recipes,
                     const std::vector<ReferenceAnswer>& answers);

}  // namespace shardline::testing
