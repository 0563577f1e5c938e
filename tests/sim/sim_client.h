#pragma once

// One client with one request: asks, listens, checks what it hears, may cancel, hang up, or come
// back after its connection broke.

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/sim/scenario.h"
#include "tests/sim/sim_cluster.h"

namespace shardline::sim {

enum class ClientPhase {
  kWaiting,    // Has not asked yet.
  kAsking,     // Its request is out.
  kCompleted,  // Heard the end of a success.
  kFailed,     // Heard a failure.
  kUnknown,    // Its connection broke and it does not come back.
};

class SimClient final : public SimProcess {
 public:
  // `index` is its place in the cluster's list.
  SimClient(SimCluster* cluster, const SessionSpec& spec, int index);

  void Ask();
  // Gives up: hangs up without a word.
  void Cancel();
  void OnWords(Stream* stream, const ClientWords& words);

  const SessionSpec& spec() const { return spec_; }
  int index() const { return number() - kFirstClient; }
  ClientPhase phase() const { return phase_; }
  bool over() const { return phase_ != ClientPhase::kWaiting && phase_ != ClientPhase::kAsking; }
  bool cancelled() const { return cancelled_; }
  bool came_back() const { return came_back_; }
  SimTime asked_at() const { return asked_at_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<int32_t>& reference() const { return reference_; }
  const absl::Status& failure() const { return failure_; }
  const std::optional<AttemptKey>& attempt() const { return attempt_; }

 private:
  void Dial();
  void OnBroken(Stream* stream);
  void ComeBack();

  SimCluster* const cluster_;
  const SessionSpec spec_;
  const std::vector<int32_t> prompt_;
  const SamplingParams sampling_;
  const std::vector<int32_t> reference_;

  ClientPhase phase_ = ClientPhase::kWaiting;
  bool cancelled_ = false;
  bool came_back_ = false;
  SimTime asked_at_ = 0;
  Stream* stream_ = nullptr;
  int teller_ = 0;  // The coordinator that sent the last token.
  std::vector<int32_t> tokens_;
  std::optional<AttemptKey> attempt_;
  absl::Status failure_;
};

}  // namespace shardline::sim
