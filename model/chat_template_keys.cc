#include "model/chat_template_keys.h"

#include <string>
#include <string_view>

#include "base/status_macros.h"

namespace shardline {

absl::StatusOr<ChatTemplateSpec> ReadChatTemplateSpec(const GgufMetadata& metadata) {
  ChatTemplateSpec spec;
  SL_ASSIGN_OR_RETURN(const std::string_view source, metadata.GetString("tokenizer.chat_template"));
  spec.source = std::string(source);
  const absl::StatusOr<std::string_view> for_tools =
      metadata.GetString("tokenizer.chat_template.tool_use");
  if (for_tools.ok()) {
    spec.tool_source = std::string(*for_tools);
  } else if (!absl::IsNotFound(for_tools.status())) {
    return for_tools.status();
  }
  return spec;
}

}  // namespace shardline
