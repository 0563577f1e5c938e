#include "coordinator/gateway/model_errors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failure.h"
#include "coordinator/gateway/api_json.h"

namespace shardline {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(2);
constexpr absl::Duration kDrainingRetry = absl::Seconds(5);

const ClusterModel* FindModel(const ClusterView& view, const std::string& name) {
  for (const ClusterModel& model : view.models) {
    if (model.facts.name == name) return &model;
  }
  return nullptr;
}

bool IsLoading(const ClusterModel& model) {
  if (!model.placed) return !model.failed;
  return model.view.state == ModelState::kLoading || model.view.state == ModelState::kProbing;
}

// Of the node that has most of its shard before it; no time is guessed.
Json LoadingOf(const ClusterModel& model) {
  Json loading = {{"model", model.facts.name},
                  {"state", model.placed ? std::string(ModelStateName(model.view.state))
                                         : std::string("placing")}};
  if (!model.note.empty()) loading["note"] = model.note;
  if (!model.placed) return loading;
  uint64_t done = 0;
  uint64_t total = 0;
  uint64_t most_left = 0;
  for (const ShardView& shard : model.view.shards) {
    const uint64_t of_shard = std::max(shard.shard.bytes, shard.bytes_total);
    const uint64_t of_shard_done =
        shard.state == ShardState::kLoaded ? of_shard : std::min(shard.bytes_done, of_shard);
    done += of_shard_done;
    total += of_shard;
    if (of_shard - of_shard_done > most_left) {
      most_left = of_shard - of_shard_done;
      loading["node"] = shard.shard.node.value();
    }
  }
  loading["progress"] = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
  loading["bytes_sent"] = done;
  loading["total_bytes"] = total;
  return loading;
}

ApiError Loading(const ClusterModel& model) {
  ApiError error = NotServing("model_loading",
                              absl::StrCat("The model ", model.facts.name, " is loading"), kRetry);
  error.loading_json = JsonLine(LoadingOf(model));
  return error;
}

ApiError ShardUnavailable(std::string message) {
  return NotServing("shard_unavailable", std::move(message), kRetry);
}

std::string NamesOf(const ClusterView& view) {
  std::vector<std::string> names;
  for (const ClusterModel& model : view.models) names.push_back(model.facts.name);
  if (names.empty()) return "No model is loaded.";
  return absl::StrCat("There are: ", absl::StrJoin(names, ", "), ".");
}

}  // namespace

ApiError ErrorOfMissingModel(const absl::StatusOr<ClusterView>& view, const std::string& name) {
  if (!view.ok()) return ErrorOf(view.status());
  if (name.empty()) {
    if (view->models.size() == 1 && IsLoading(view->models[0])) return Loading(view->models[0]);
    if (view->models.size() > 1) {
      return InvalidValue("model", absl::StrCat("Name a model. ", NamesOf(*view)));
    }
    return NotServing("no_plan", "No model is loaded", kRetry);
  }
  const ClusterModel* model = FindModel(*view, name);
  if (model != nullptr && IsLoading(*model)) return Loading(*model);
  if (model != nullptr) {
    return ShardUnavailable(absl::StrCat("The model ", name, " is not in service: ",
                                         model->placed ? model->view.reason : model->note));
  }
  ApiError error = ModelNotFound(name);
  absl::StrAppend(&error.message, ". ", NamesOf(*view));
  return error;
}

bool ModelMayExplain(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) || absl::IsUnavailable(failure) ||
         absl::IsNotFound(failure);
}

ApiError ErrorOfModel(const absl::StatusOr<ClusterView>& view, const std::string& name,
                      const absl::Status& failure) {
  if (!view.ok()) return ErrorOf(failure);
  const ClusterModel* model = FindModel(*view, name);
  if (model == nullptr) {
    return absl::IsNotFound(failure) ? ErrorOfMissingModel(view, name) : ErrorOf(failure);
  }
  if (IsLoading(*model)) return Loading(*model);
  const bool broken = model->failed || (model->placed && model->view.state != ModelState::kReady);
  if (broken) return ShardUnavailable(std::string(failure.message()));
  return ErrorOf(failure);
}

ApiError ErrorOfDraining() {
  return NotServing("draining", "The coordinator is shutting down and takes no more requests",
                    kDrainingRetry);
}

}  // namespace shardline
