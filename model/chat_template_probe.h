#pragma once

// Finds out what a chat template can express by showing it small conversations.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat_template.h"

namespace shardline {

// What is shown: as RenderReady takes it, nothing is adapted.
struct ChatProbe {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;
  bool add_generation_prompt = false;
};
using RenderProbe = std::function<absl::StatusOr<std::string>(const ChatProbe&)>;

// About ten renderings. A template that fails on a probe has not what it asks for.
ChatTemplateCaps ProbeCaps(const RenderProbe& render);

}  // namespace shardline
