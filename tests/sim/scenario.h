#pragma once

// What happens in one simulation, as data: the cluster, its workload, and the faults.
//
// A scenario has a text form of one statement a line (or between semicolons), so that it can be
// printed, replayed, and shrunk:
//
//   world seed=7 nodes=3 pages=8
//   session at=40 seed=3 prompt=5 tokens=4 budget=3000 key=1
//   at=55 kill node=1 for=400
//
// `at` counts events, times are milliseconds. With its seed a scenario is the whole story.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/sim/event_queue.h"

namespace shardline::sim {

enum class FaultKind : uint8_t {
  kKill,           // A node's process dies; a new one starts after `for`.
  kVanish,         // As kill, but its machine is gone: no connection is reset.
  kPause,          // A node's process stops, and goes on after `for`.
  kSlow,           // A node's device is `amount` times slower, for `for`.
  kHang,           // A node's device stops, for `for`.
  kNonFinite,      // `amount` slices of a node's next jobs are NaN.
  kMisshapen,      // `amount` answers of a node's device have another shape.
  kDeviceLost,     // `amount` jobs of a node fail.
  kRebirth,        // A node's Join stream breaks: it comes back as a new incarnation.
  kCut,            // Nothing gets from `node` to `other`, for `for`.
  kPartition,      // Nothing gets to or from `node`, for `for`.
  kReset,          // The connections between `node` and `other` break.
  kHalfReset,      // Its links to `other` break at `node` only: what is under way arrives.
  kDelay,          // Messages from `node` to `other` may take up to `amount` ms longer.
  kDropFrames,     // `amount` of a thousand link frames from `node` to `other` get lost,
  kRepeatFrames,   // or come twice (calls, too),
  kReorderFrames,  // or out of order,
  kMisroute,       // or to another node.
  kCrash,          // The coordinator dies; a new one starts after `for`.
  kZombie,         // A new coordinator takes over; the old one knows of nothing.
  kPauseCoordinator,
  kDiskFull,     // For `for`.
  kDiskError,    // The next write fails, and the store with it.
  kDiskUnheard,  // The next write succeeds and says it failed.
  kDiskSlow,     // Writes take `amount` ms longer, for `for`.
  kCancel,       // Client `node` hangs up.
  kForge,        // A stranger sends `node` a message of kind `amount`: see SimNode::TakeForged.
  kDrain,        // The head of `node` takes nobody new; the process goes after `for`.
  kCount,
};
std::string_view FaultKindName(FaultKind kind);

// Ends of wires: 0 to nodes - 1 are nodes, kCoordinatorEnd the coordinator.
inline constexpr int kCoordinatorEnd = 99;

struct Fault {
  uint64_t at = 0;  // Before this event.
  FaultKind kind = FaultKind::kKill;
  int node = 0;
  int other = 0;
  int64_t amount = 0;
  SimTime length = 0;

  friend bool operator==(const Fault&, const Fault&) = default;
};

struct SessionSpec {
  uint64_t at = 0;  // Asked before this event.
  uint64_t seed = 0;
  int prompt_tokens = 1;
  int new_tokens = 1;
  SimTime budget = 5 * kSecond;
  uint32_t key = 0;       // 0: none. Sessions of one key and seed are one request.
  bool poison = false;    // It kills every node that computes its second step.
  int shared_tokens = 0;  // The first ones of the prompt are those of every such session.
  uint32_t tenant = 0;

  friend bool operator==(const SessionSpec&, const SessionSpec&) = default;
};

struct Scenario {
  uint64_t seed = 0;
  int nodes = 3;
  int stages = 3;            // Of the first plan; nodes beyond stages * replicas are spare.
  int replicas = 1;          // Nodes for each stage.
  int resume_ms = 1000;      // How long steps may stay in doubt; 0: links are never resumed.
  bool capabilities = true;  // Nodes check who signed an OPEN.
  bool linger = false;       // Faults stay on after the last session has ended.
  int kv_pages = 16;
  int chunk_tokens_max = 8;
  int clock_ppm = 0;         // The nodes' clocks differ by up to this.
  int rounds_in_flight = 0;  // Of every route; 0: as the cost model has it.
  bool prefix_cache = true;
  bool drafts = false;
  int head_slots = 64;    // Attempts that a head runs at once,
  int head_queue = 256;   // and those that wait there.
  int waiting_max = 256;  // Sessions that wait at the coordinator.
  std::vector<SessionSpec> sessions;
  std::vector<Fault> faults;

  std::string ToString() const;
  static absl::StatusOr<Scenario> Parse(std::string_view text);

  friend bool operator==(const Scenario&, const Scenario&) = default;
};

// A scenario drawn from its seed: which faults are on at all, how many, how hard.
Scenario DrawScenario(uint64_t seed);

// One session of four tokens over three nodes, and nothing else: the world of the sweeps.
Scenario PlainScenario(uint64_t seed);

}  // namespace shardline::sim
