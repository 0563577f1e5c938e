#include "node/stage/pre_plan.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"

namespace shardline {

PrePlan::PrePlan(std::vector<RoundResource*> resources) : resources_(std::move(resources)) {}

void PrePlan::DropAll() {
  for (auto it = resources_.rbegin(); it != resources_.rend(); ++it) (*it)->Drop();
  staged_.reset();
}

absl::Status PrePlan::Stage(const RoundPlan& plan) {
  if (staged_) Drop("another round is staged");
  for (RoundResource* resource : resources_) {
    if (absl::Status status = resource->Stage(plan); !status.ok()) {
      ++stats_.refused;
      DropAll();
      return status;
    }
  }
  staged_ = plan;
  ++stats_.staged;
  return absl::OkStatus();
}

bool PrePlan::Dispatch(const RoundPlan& plan) {
  if (!staged_) return false;
  if (!staged_->SameWork(plan) && !Planted(PlantedBug::kPromotesWhateverIsStaged)) {
    ++stats_.displaced;
    LogWarning("staged round displaced",
               {{"staged", staged_->ToString()}, {"dispatched", plan.ToString()}});
    DropAll();
    return false;
  }
  for (RoundResource* resource : resources_) {
    if (const absl::Status status = resource->Promote(plan); !status.ok()) {
      ++stats_.refused;
      LogWarning("staged round refused", {{"resource", std::string(resource->name())},
                                          {"round", plan.ToString()},
                                          {"reason", std::string(status.message())}});
      DropAll();
      return false;
    }
  }
  staged_.reset();
  ++stats_.promoted;
  return true;
}

void PrePlan::Drop(std::string_view reason) {
  if (!staged_) return;
  ++stats_.dropped;
  LogDebug("staged round dropped",
           {{"staged", staged_->ToString()}, {"reason", std::string(reason)}});
  DropAll();
}

}  // namespace shardline
