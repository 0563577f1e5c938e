#include "node/stage/pre_plan.h"

#include <bit>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/planted_bug.h"

namespace shardline {

PrePlan::PrePlan(std::vector<RoundResource*> resources) : resources_(std::move(resources)) {}

void PrePlan::DropAll() {
  for (auto it = resources_.rbegin(); it != resources_.rend(); ++it) (*it)->Drop();
  staged_.reset();
}

absl::Status PrePlan::Stage(const RoundPlan& plan) {
  if (staged_) {
    ++stats_.dropped;
    DropAll();
  }
  absl::Cleanup undo = [this] { DropAll(); };
  for (RoundResource* resource : resources_) {
    if (absl::Status status = resource->Stage(plan); !status.ok()) {
      ++stats_.unstaged;
      return status;
    }
  }
  staged_ = plan;
  ++stats_.staged;
  std::move(undo).Cancel();
  return absl::OkStatus();
}

bool PrePlan::Dispatch(const RoundPlan& plan) {
  if (!staged_) return false;
  if (!staged_->SameWork(plan) && !Planted(PlantedBug::kPromotesWhateverIsStaged)) {
    ++stats_.displaced;
    // Newcomers displace rounds all the time: the log has the first, then ever fewer.
    if (std::has_single_bit(stats_.displaced)) {
      LogWarning("staged round displaced", {{"staged", staged_->ToString()},
                                            {"dispatched", plan.ToString()},
                                            {"displaced_total", stats_.displaced}});
    }
    DropAll();
    return false;
  }
  for (const RoundResource* resource : resources_) {
    const absl::Status status = resource->Check(plan);
    if (status.ok()) continue;
    ++stats_.refused;
    LogWarning("staged round refused", {{"resource", std::string(resource->name())},
                                        {"round", plan.ToString()},
                                        {"reason", std::string(status.message())}});
    DropAll();
    return false;
  }
  for (RoundResource* resource : resources_) resource->Promote();
  staged_.reset();
  ++stats_.promoted;
  return true;
}

void PrePlan::Drop() {
  if (!staged_ || Planted(PlantedBug::kStageSurvivesFailure)) return;
  ++stats_.dropped;
  DropAll();
}

absl::Status CheckStaged(const std::optional<RoundPlan>& staged, const RoundPlan& plan) {
  if (Planted(PlantedBug::kPromotesWhateverIsStaged) && staged) return absl::OkStatus();
  if (staged && staged->SameWork(plan)) return absl::OkStatus();
  return MakeFailure(FailureKind::kStepConflict,
                     absl::StrCat("staged is ", staged ? staged->ToString() : "nothing"));
}

}  // namespace shardline
