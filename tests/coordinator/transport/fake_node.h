#pragma once

// A node without a model: real gRPC on loopback, answers from a script, and misbehaves on demand.
// Takes only what its coordinator has signed.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "shardline/v1/head.pb.h"
#include "shardline/v1/join.pb.h"
#include "shardline/v1/link.pb.h"

namespace shardline::testing {

struct FakeNodeOptions {
  std::string id;
  uint64_t memory_bytes = uint64_t{1} << 30;
  std::string numerics_id = "fake";
  std::string machine = {};  // Empty: one of its own.
  double step_us = 0;        // Measured, it says; 0: it did not.
  double row_us = 0;
};

// What a head answers to RunAttempt, from behind the forced prefix on.
struct FakeAnswer {
  std::vector<int32_t> tokens;
  bool then_hang = false;     // After the tokens: no end until the attempt is fenced.
  int alternatives_each = 0;  // Top log-probabilities per token, to make events large.
};

class FakeNode {
 public:
  explicit FakeNode(const FakeNodeOptions& options);
  ~FakeNode();

  // A new process joins: new boot id, no shard. Leave() first, if joined.
  void Join(int coordinator_port);
  // The same process joins again, with the shard and the incarnation it has.
  void Rejoin(int coordinator_port);
  // The Join stream breaks; the node's own server stays up.
  void Leave();
  // Joined, but no more beats.
  void FallSilent();

  void SetAnswer(FakeAnswer answer);
  void RefuseOpens(absl::Status status);  // OK: grants again.

  std::vector<v1::OpenRequest> opens() const;
  std::vector<v1::RunAttemptRequest> runs() const;  // As head.
  std::vector<v1::FenceRequest> fences() const;
  std::vector<v1::LoadShard> loads() const;
  absl::Status refusal() const;  // Of the last Join; OK if none.
  uint64_t incarnation() const;  // 0 before the first welcome.

  // What the next hellos and beats say.
  void SetTermSeen(uint64_t term);
  void SetDraining(int64_t drain_ms);
  void ReportSilent(const std::string& node_id, uint64_t incarnation);

  // Waits until `holds` is true of this node; false after ten seconds without.
  bool WaitUntil(const std::function<bool(const FakeNode&)>& holds) const;

 private:
  struct State;
  void Start(int coordinator_port, bool same_process);

  const std::unique_ptr<State> state_;
};

// True once `node` was told that the attempt of `session` is over.
bool WasFenced(const FakeNode& node, uint64_t session);

}  // namespace shardline::testing
