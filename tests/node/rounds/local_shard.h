#pragma once

// A head and its one stage, and a device that computes at once: runs of one attempt at a time.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/instant.h"
#include "node/rounds/head_core.h"
#include "node/stage/stage_core.h"

namespace shardline::testing {

class LocalShard {
 public:
  using Device = std::function<ComputeDone(const ComputeJob&)>;

  struct Outcome {
    std::vector<SampledToken> tokens;  // By index, from the end of the prefix on.
    AttemptEnd end;
  };

  // `options` less node, context and pieces.
  LocalShard(HeadOptions options, int32_t pages, Device device);

  // Runs `run`, which needs prompt, prefix and what is to be generated, to its end.
  Outcome Run(RunAttempt run);

 private:
  void RunUntilOver(Outcome* outcome, uint32_t index);

  const Device device_;
  const Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  StageCore stage_;
  HeadCore head_;
  uint64_t epoch_ = 0;
};

}  // namespace shardline::testing
