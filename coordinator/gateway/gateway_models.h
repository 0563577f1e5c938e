#pragma once

// The models in service, as the HTTP API needs them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/model_file.h"
#include "model/chat_template.h"

namespace shardline {

struct GatewayModel {
  std::string name;
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const ChatTemplate> chat_template;  // Null: it has none that can be used.
  int32_t context_tokens_max = 0;
  int64_t created_unix_s = 0;  // For people.
};

// Any thread.
class GatewayModels {
 public:
  virtual ~GatewayModels() = default;
  // `name` empty: the only one in service. Nothing when there is none.
  virtual std::optional<GatewayModel> Find(const std::string& name) const = 0;
  virtual std::vector<GatewayModel> List() const = 0;  // By name.
};

}  // namespace shardline
