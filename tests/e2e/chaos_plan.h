#pragma once

// What a round of chaos will do, drawn from its seed before anything runs: which sessions, asked
// for by which kind of client, and which faults, one after the other. Pure: the same options give
// the same plan on every machine.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "shardline/v1/inference.pb.h"

namespace shardline::testing {

// A prompt whose answer is known. Every recipe has a marker word of its own in its prompt, which
// no answer to another recipe may hold.
struct Recipe {
  std::string marker;
  v1::GenerateRequest request;  // Without deadline; asks for kRecipeTokens.
};
inline constexpr uint32_t kRecipeTokens = 40;

// Greedy and seeded ones, prompts of several lengths.
std::vector<Recipe> MakeRecipes(int count);

enum class Fault {
  kKill,         // kill -9 of a node, which is started again later.
  kPause,        // SIGSTOP, later SIGCONT.
  kCut,          // A node is cut off, later mended.
  kOneWay,       // One direction of a node's control or data path is cut, later mended.
  kLink,         // The data path to a node is cut; it still hears its coordinator.
  kReset,        // All connections to a node end with a reset.
  kMidBundle,    // A connection to a node ends with a reset in the middle of a message.
  kCoordinator,  // kill -9 of the coordinator, which is started again; clients re-attach.
  kCancel,       // An operator cancels a session.
  kLeave,        // A client hangs up.
  kDeadline,     // A request has too little time.
};
absl::string_view FaultName(Fault fault);
// The names, comma-separated; "all" or "none". Invalid argument for another word, naming it.
absl::StatusOr<std::set<Fault>> ParseFaults(absl::string_view names);
std::set<Fault> AllFaults();

struct PlannedSession {
  enum class Client { kPatient, kCancels, kLeaves, kHurries };

  int recipe = 0;
  uint32_t tokens = 0;  // Asked for; the answer is that much of the recipe's.
  Client client = Client::kPatient;
  uint32_t at_token = 0;  // When it cancels or leaves: after that many.
  bool keyed = false;     // With an idempotency key, so that a finished answer can be had again.
  absl::Duration deadline;
};

struct PlannedFault {
  Fault fault = Fault::kKill;
  int node = 0;
  // Of all sessions together, since the fault before was over.
  int after_tokens = 0;
  absl::Duration length;      // Until it is undone.
  bool control_path = false;  // kOneWay: that one, else the data path.
  bool towards_node = false;  // kOneWay.
  int64_t bytes = 0;          // kMidBundle: how far into what comes next.
};

struct ChaosOptions {
  uint64_t seed = 1;
  int sessions = 100;  // Of a round.
  int concurrency = 6;
  int nodes = 4;
  int shards = 3;    // The other nodes are spare.
  int replicas = 1;  // Nodes that hold each range.
  int recipes = 24;
  std::set<Fault> faults = AllFaults();
  // What a pause is drawn from, in leases of 1.5 s.
  std::vector<double> pause_leases = {0.5, 1, 2};
  absl::Duration deadline = absl::Seconds(40);  // Of a patient client.
};

struct ChaosPlan {
  std::vector<PlannedSession> sessions;
  std::vector<PlannedFault> faults;  // More than will be needed.
};
ChaosPlan MakeChaosPlan(const ChaosOptions& options);

}  // namespace shardline::testing
