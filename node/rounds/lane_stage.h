#pragma once

// What a head prepares for the next round of a lane while this one runs: the slots that its tokens
// will be drawn in, and the rows that will be sent.
//
// A lane's stage holds only what belongs to the lane's own attempts, so each lane has one whatever
// the others do. Not thread-safe: on the shard's strand.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/prefix_chain.h"
#include "node/rounds/sampler_slots.h"
#include "node/stage/pre_plan.h"
#include "node/stage/round_plan.h"
#include "node/stage/stage_bundle.h"

namespace shardline {

// Keeps the slots of a round's rows from anybody else: one that is given back meanwhile is free
// only when the stage is gone.
class StagedSlots final : public RoundResource {
 public:
  // None for an attempt that runs no longer.
  using LeaseOf = std::function<std::optional<SamplerLease>(const AttemptKey&)>;

  // `slots` is not owned.
  StagedSlots(SamplerSlots* slots, LeaseOf lease_of)
      : slots_(slots), lease_of_(std::move(lease_of)) {}

  std::string_view name() const override { return "sampler slots"; }
  // kStepConflict if an attempt holds another slot than its row says, or none.
  absl::Status Stage(const RoundPlan& plan) override;
  absl::Status Check(const RoundPlan& plan) const override;
  void Promote() override { Drop(); }  // From now on the attempts' own leases keep them.
  void Drop() override;

 private:
  SamplerSlots* const slots_;
  const LeaseOf lease_of_;
  std::optional<RoundPlan> staged_;
  std::vector<SamplerLease> held_;
};

// A row as it is sent, less its budget, and the prefix chain of its attempt behind it.
struct RowHeader {
  BundleRow row;
  PrefixKey chain;
  int32_t chain_pages = 0;
};

class StagedRows final : public RoundResource {
 public:
  // None for a row that its attempt would not send next.
  using HeaderOf = std::function<std::optional<RowHeader>(const RoundRow&)>;

  explicit StagedRows(HeaderOf header_of) : header_of_(std::move(header_of)) {}

  std::string_view name() const override { return "bundle headers"; }
  absl::Status Stage(const RoundPlan& plan) override;
  absl::Status Check(const RoundPlan& plan) const override;
  void Promote() override;
  void Drop() override;

  // What is staged, one a row.
  const std::vector<RowHeader>& rows() const { return rows_; }
  // What was promoted, once.
  std::vector<RowHeader> TakeRows() { return std::exchange(promoted_, {}); }

 private:
  const HeaderOf header_of_;
  std::optional<RoundPlan> staged_;
  std::vector<RowHeader> rows_;
  std::vector<RowHeader> promoted_;
};

struct LaneStage {
  LaneStage(SamplerSlots* sampler_slots, StagedSlots::LeaseOf lease_of,
            StagedRows::HeaderOf header_of)
      : slots(sampler_slots, std::move(lease_of)), rows(std::move(header_of)) {}

  StagedSlots slots;
  StagedRows rows;
  PrePlan guard{{&slots, &rows}};
};

}  // namespace shardline
