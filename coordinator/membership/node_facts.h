#pragma once

// What a node says of itself, in its hello and its beats, and how the coordinator lists it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/route.h"

namespace shardline {

// One Join stream, numbered by the shell. Never used twice in a process.
using JoinStreamId = Id<struct JoinStreamTag>;

struct NodeCapacity {
  uint64_t memory_bytes = 0;  // For weights, KV and scratch.
  uint32_t threads = 0;
  double read_bytes_per_s = 0;  // Measured, all threads.
  double int8_ops_per_s = 0;    // Measured, all threads.
  std::string backend;          // "cpu".
  std::string device;           // For people.
  std::string machine;          // The same for processes of one machine; empty: unknown.
  std::vector<uint32_t> cpus;   // That the process may run on.
};

struct NodeHello {
  uint32_t protocol_min = 0;
  uint32_t protocol_max = 0;
  NodeId node;
  std::string version;
  std::string address;
  std::string boot_id;      // Random per process: tells a reconnect from a restart.
  Incarnation incarnation;  // The one it holds when this is a reconnect, else 0.
  NodeCapacity capacity;
  Term term_seen;  // The highest it has obeyed.
};

// A neighbour that a node does not hear.
struct PeerReport {
  StagePeer peer;
  absl::Duration silent;
};

struct NodeBeat {
  uint64_t number = 0;  // From 1, rising.
  uint64_t echo = 0;    // The last reply the node has seen.
  uint64_t jobs_started = 0;
  uint64_t jobs_done = 0;
  uint32_t attempts_open = 0;
  uint32_t kv_pages_total = 0;
  uint32_t kv_pages_free = 0;
  uint64_t memory_used_bytes = 0;
  std::vector<PeerReport> peers;
};

// A link over which its sender does not hear its receiver.
struct SuspectLink {
  StagePeer from;
  StagePeer to;
  absl::Duration silent;  // As last reported.
};

// One line of the node list.
struct NodeView {
  NodeId node;
  bool live = false;
  Incarnation incarnation;  // The live one, or the last.
  std::string version;
  std::string address;
  NodeCapacity capacity;
  NodeBeat load;              // The last beat; all zero before the first.
  absl::Duration since_echo;  // Since the last echoed beat.
  absl::Duration age;         // Since this incarnation joined.
  absl::Duration lost_for;    // Since it was lost; zero while it lives.
  FailureKind lost_kind = FailureKind::kNone;
  std::string reason;  // Why it is lost.
};

}  // namespace shardline
