#pragma once

// The models in service, as the HTTP API asks for them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/gateway/gateway_models.h"
#include "coordinator/model_loads.h"

namespace shardline {

class ServedModels final : public GatewayModels {
 public:
  // `loads` outlives this.
  ServedModels(const ModelLoads* loads, int64_t since_unix_s)
      : loads_(loads), since_unix_s_(since_unix_s) {}

  std::optional<GatewayModel> Find(const std::string& name) const override;
  std::vector<GatewayModel> List() const override;

 private:
  const ModelLoads* const loads_;
  const int64_t since_unix_s_;
};

}  // namespace shardline
