#pragma once

// The key-value pairs of a GGUF file, read where they lie.
//
// Values are views into the file's bytes: opening a model with a vocabulary of a million tokens
// allocates nothing for it until somebody asks for the list. All bytes were checked by
// ParseGgufHeader, so reading a value cannot run out of the file.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/gguf_types.h"

namespace shardline {

struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // Of an array; else equal to `type`.
  uint64_t count = 1;                                  // Elements of an array; else 1.
  // The value as in the file, without its type, its string length and its array count. The
  // elements of an array of strings each keep their length.
  std::span<const std::byte> bytes;
};

// Immutable after loading; any thread. Views die with the file they came from.
//
// Getters fail with absl NotFound if the key is absent and with kInvalidRequest if its value has
// another type or does not fit; both name file and key. Integers of any width are one type here.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  GgufMetadata() = default;
  explicit GgufMetadata(std::string file) : file_(std::move(file)) {}

  // False if the key is there already.
  bool Add(std::string_view key, const GgufValue& value);

  const GgufValue* Find(std::string_view key) const;

  absl::StatusOr<uint64_t> GetUint(std::string_view key) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloatArray(std::string_view key) const;

  // As above, but an absent key gives `fallback`. A wrong type is still an error.
  absl::StatusOr<uint64_t> GetUintOr(std::string_view key, uint64_t fallback) const;
  absl::StatusOr<double> GetFloatOr(std::string_view key, double fallback) const;
  absl::StatusOr<bool> GetBoolOr(std::string_view key, bool fallback) const;

  // Elements of an array of any type; absl NotFound if absent.
  absl::StatusOr<uint64_t> ArrayCount(std::string_view key) const;

  // In the file's order.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& file() const { return file_; }

 private:
  absl::StatusOr<const GgufValue*> Require(std::string_view key) const;
  absl::Status WrongType(std::string_view key, const GgufValue& value, const char* wanted) const;

  std::string file_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string_view, size_t> index_;  // key -> entries_
};

}  // namespace shardline
