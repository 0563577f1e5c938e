#pragma once

// The keys `tokenizer.chat_template*` of a GGUF file.

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "model/gguf_metadata.h"

namespace shardline {

// The default template and the one for tools (`tokenizer.chat_template.tool_use`), if there is one;
// the texts of the tokens are the tokenizer's and stay empty. absl NotFound if the file brings no
// template, kInvalidRequest if a key has another type.
absl::StatusOr<ChatTemplateSpec> ReadChatTemplateSpec(const GgufMetadata& metadata);

}  // namespace shardline
