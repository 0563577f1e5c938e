#pragma once

// The keys `tokenizer.ggml.*` of a GGUF file, field for field.

#include "absl/status/statusor.h"
#include "model/gguf_metadata.h"
#include "model/tokenizer/tokenizer_spec.h"

namespace shardline {

// kInvalidRequest, naming file and key, if the tokenizer is missing or a key has another type.
// What the values mean is judged by Tokenizer::Create.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufMetadata& metadata);

}  // namespace shardline
