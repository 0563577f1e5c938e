#pragma once

// What a stage prepares for a bundle that it knows of before it has come: the page tables that its
// job will read and write through, and the rows that will go on from here.
//
// Staging reads and changes nothing. What is promoted goes to the rows it was made for, and only
// while no page has changed hands and every length is the one that the rows expect.
//
// Not thread-safe: on the shard's strand.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "node/kv/hot_kv_manager.h"
#include "node/stage/pre_plan.h"
#include "node/stage/round_plan.h"
#include "node/stage/stage_bundle.h"

namespace shardline {

// The page tables of a round's rows.
class StagedPages final : public RoundResource {
 public:
  // `kv` is not owned.
  explicit StagedPages(const HotKvManager* kv) : kv_(kv) {}

  std::string_view name() const override { return "kv pages"; }

  // kStepConflict if the plan was made for another generation of the pages or for other lengths,
  // kKvExhausted past a reservation, kCacheMiss for an attempt without pages.
  absl::Status Stage(const RoundPlan& plan) override;
  absl::Status Check(const RoundPlan& plan) const override;
  void Promote() override;
  void Drop() override;

  // The tables that were promoted, one a row, and once; none if nothing was.
  std::vector<std::vector<int32_t>> TakeTables() { return std::exchange(promoted_, {}); }

 private:
  absl::Status CheckRow(const RoundRow& row) const;

  const HotKvManager* const kv_;
  std::optional<RoundPlan> staged_;
  std::vector<std::vector<int32_t>> tables_;  // Of `staged_`.
  std::vector<std::vector<int32_t>> promoted_;
};

// The header of the bundle that goes on. A hint to the next stage: nothing is computed from it.
class StagedHeaders final : public RoundResource {
 public:
  // `onward` makes of a row that arrives the one that goes on.
  explicit StagedHeaders(std::function<BundleRow(const BundleRow&)> onward)
      : onward_(std::move(onward)) {}

  // What the next Stage is about: the rows that its plan was made of.
  void Offer(std::vector<BundleRow> arriving) { arriving_ = std::move(arriving); }

  std::string_view name() const override { return "bundle headers"; }
  absl::Status Stage(const RoundPlan& plan) override;
  absl::Status Check(const RoundPlan& plan) const override;
  void Promote() override;
  void Drop() override;

  // As StagedPages.
  std::vector<BundleRow> TakeRows() { return std::exchange(promoted_, {}); }

 private:
  const std::function<BundleRow(const BundleRow&)> onward_;
  std::vector<BundleRow> arriving_;
  std::optional<RoundPlan> staged_;
  std::vector<BundleRow> rows_;  // Of `staged_`.
  std::vector<BundleRow> promoted_;
};

// What is prepared for the next bundle of one sender. `kv` is not owned.
struct StagedBundle {
  StagedBundle(const HotKvManager* kv, std::function<BundleRow(const BundleRow&)> onward)
      : pages(kv), headers(std::move(onward)) {}

  StagedPages pages;
  StagedHeaders headers;
  PrePlan guard{{&pages, &headers}};
};

// What a bundle's rows are, as a round; they may be a stranger's and mean anything.
RoundPlan PlanOf(const std::vector<BundleRow>& rows, uint64_t walk, uint64_t kv_generation);

}  // namespace shardline
