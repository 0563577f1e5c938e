#pragma once

// Split GGUF sets: how the parts are named, and whether they belong together.
//
// Part 1 carries the model's metadata; each part carries split.no (from 0), split.count and
// split.tensors.count (of the whole set). Names end in "-00002-of-00003.gguf", from 1.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/gguf_header.h"

namespace shardline {

struct SplitName {
  std::string prefix;  // With the directory.
  int32_t number = 0;  // From 1.
  int32_t count = 0;
};

inline constexpr int32_t kSplitPartsMax = 512;

// What `path` says about the set it is a part of; nothing if it is not named as one.
std::optional<SplitName> ParseSplitName(const std::string& path);

// The path of part `number` of the set.
std::string SplitPartPath(const SplitName& name, int32_t number);

// kInvalidRequest unless `header` says it is part `number` (from 1) of a set of `count`.
absl::Status CheckSplitPart(const GgufHeader& header, int32_t number, int32_t count);

// kInvalidRequest, naming the foreign part, unless all parts agree: the tensor total, metadata
// keys that several carry, tensor names, and weight types. A part that stores every kind of
// matrix ("attn_q.weight") in a type that no other part uses for it is of another quantisation;
// files carry no stronger mark. What this cannot see, the manifest's digests do.
absl::Status CheckSplitSet(std::span<const GgufHeader> headers);

}  // namespace shardline
