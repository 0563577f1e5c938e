#pragma once

// The pre-plan guard: the one place that knows what was prepared for the next round, and the only
// one that may use it or throw it away.
//
// While a round runs the next one is staged: every resource (KV pages, sampler slots, job slices
// and bundle headers, proposers) prepares its part for one RoundPlan. When a round is dispatched
// the guard compares it with the staged plan. The same work: every resource promotes its part, in
// order. Anything else: the stage is dropped on every resource, in reverse order, before the
// other round touches any of them; a warning names both; the displaced round is planned afresh.
// All or nothing: a resource that cannot stage its part drops the others' too, and none promotes
// before every one of them has agreed.
//
// That a resource asks once more whether what it promotes is what it staged (kStepConflict) is a
// second line of defence, never the first.
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
  // REQUIRES: nothing is staged.
  virtual absl::Status Stage(const RoundPlan& plan) = 0;

  // Whether what was staged may be promoted into `plan`: kStepConflict if it is other work, or if
  // what it stands on has changed since. Changes nothing.
  virtual absl::Status Check(const RoundPlan& plan) const = 0;

  // What was staged is now in force, and nothing is staged any more. Cannot fail. REQUIRES: Check
  // said OK, and nothing has happened since.
  virtual void Promote() = 0;

  // State is as if Stage had never been called. Nothing staged: nothing happens.
  virtual void Drop() = 0;
};

struct PrePlanStats {
  uint64_t staged = 0;
  uint64_t promoted = 0;
  uint64_t displaced = 0;  // Another round came first.
  uint64_t dropped = 0;    // For any other reason.
  uint64_t unstaged = 0;   // A resource could not stage its part.
  uint64_t refused = 0;    // By a resource, in the round it was staged for: the second line.
};

class PrePlan {
 public:
  // `resources` in the order in which they stage and promote; not owned.
  explicit PrePlan(std::vector<RoundResource*> resources);

  // Stages `plan`, after dropping whatever was. A failure leaves nothing staged anywhere, and is
  // the resource's.
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

// What a resource that staged `staged` answers to Check(plan), before it looks at what it has.
absl::Status CheckStaged(const std::optional<RoundPlan>& staged, const RoundPlan& plan);

}  // namespace shardline
