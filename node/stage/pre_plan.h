#pragma once

// The pre-plan guard: the one place that knows what was prepared for the next round, and the only
// one that may use it or throw it away.
//
// While a round runs the next one is staged: every resource (KV pages, sampler slots, job slices
// and bundle headers, proposers) prepares its part for one RoundPlan. When a round is dispatched
// the guard compares it with the staged plan. The same work: every resource promotes its part, in
// order. Anything else: the stage is dropped on every resource, in reverse order, before the
// other round touches any of them; a warning names both; the displaced round is planned afresh.
// All or nothing: a resource that cannot stage or promote its part drops the others' too.
//
// A resource's own check that what it promotes is what it staged is a second line of defence
// (FailureKind kStepConflict), never the first.
//
// Sans-IO, not thread-safe: on the shard's strand.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "node/stage/round_plan.h"

namespace shardline {

class RoundResource {
 public:
  virtual ~RoundResource() = default;

  virtual std::string_view name() const = 0;

  // Prepares the part of `plan`, so that Drop can undo all of it. A failure leaves nothing.
  virtual absl::Status Stage(const RoundPlan& plan) = 0;

  // What was staged is now in force. kStepConflict, and nothing changes, if `plan` is not what was
  // staged.
  virtual absl::Status Promote(const RoundPlan& plan) = 0;

  // State is as if Stage had never been called. Nothing staged: nothing happens.
  virtual void Drop() = 0;
};

struct PrePlanStats {
  uint64_t staged = 0;
  uint64_t promoted = 0;
  uint64_t displaced = 0;  // Another round came first.
  uint64_t dropped = 0;    // For any other reason.
  uint64_t refused = 0;    // By a resource, when it was to stage or promote.
};

class PrePlan {
 public:
  // `resources` in the order in which they stage and promote; not owned.
  explicit PrePlan(std::vector<RoundResource*> resources);

  // Stages `plan`, after dropping whatever was. A failure leaves nothing staged anywhere.
  absl::Status Stage(const RoundPlan& plan);

  // To be called with every round before it touches any resource. True: it was staged, and is
  // promoted on all of them. False: nothing is staged any more, and the round is planned inline.
  bool Dispatch(const RoundPlan& plan);

  // The stage goes, for the reason given: a cancelled or failed round, an error, a changed view.
  void Drop(std::string_view reason);

  const std::optional<RoundPlan>& staged() const { return staged_; }
  const PrePlanStats& stats() const { return stats_; }

 private:
  void DropAll();

  const std::vector<RoundResource*> resources_;
  std::optional<RoundPlan> staged_;
  PrePlanStats stats_;
};

}  // namespace shardline
