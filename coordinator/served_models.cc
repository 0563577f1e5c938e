#include "coordinator/served_models.h"

#include <utility>

namespace shardline {

std::optional<GatewayModel> ServedModels::Find(const std::string& name) const {
  std::vector<GatewayModel> models = List();
  if (name.empty()) {
    if (models.size() != 1) return std::nullopt;
    return std::move(models.front());
  }
  for (GatewayModel& model : models) {
    if (model.name == name) return std::move(model);
  }
  return std::nullopt;
}

std::vector<GatewayModel> ServedModels::List() const {
  std::vector<GatewayModel> models;
  for (const auto& [name, served] : loads_->InService()) {
    models.push_back({.name = name,
                      .file = served.file,
                      .context_tokens_max = served.context_tokens_max,
                      .created_unix_s = since_unix_s_});
  }
  return models;
}

}  // namespace shardline
