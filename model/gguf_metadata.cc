#include "model/gguf_metadata.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/byte_reader.h"

namespace shardline {
namespace {

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// The integer at `bytes`; nothing if the type is no integer or the value exceeds an int64.
std::optional<int64_t> LoadInt(GgufValueType type, const std::byte* bytes) {
  switch (type) {
    case GgufValueType::kUint8:
      return Load<uint8_t>(bytes);
    case GgufValueType::kInt8:
      return Load<int8_t>(bytes);
    case GgufValueType::kUint16:
      return Load<uint16_t>(bytes);
    case GgufValueType::kInt16:
      return Load<int16_t>(bytes);
    case GgufValueType::kUint32:
      return Load<uint32_t>(bytes);
    case GgufValueType::kInt32:
      return Load<int32_t>(bytes);
    case GgufValueType::kInt64:
      return Load<int64_t>(bytes);
    case GgufValueType::kUint64: {
      const uint64_t value = Load<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> LoadFloat(GgufValueType type, const std::byte* bytes) {
  if (type == GgufValueType::kFloat32) return Load<float>(bytes);
  if (type == GgufValueType::kFloat64) return Load<double>(bytes);
  return std::nullopt;
}

template <typename T>
absl::StatusOr<T> OrFallback(absl::StatusOr<T> found, T fallback) {
  if (absl::IsNotFound(found.status())) return fallback;
  return found;
}

}  // namespace

bool GgufMetadata::Add(std::string_view key, const GgufValue& value) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.push_back({key, value});
  return true;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

absl::StatusOr<const GgufValue*> GgufMetadata::Require(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) {
    return absl::NotFoundError(absl::StrCat(file_, ": no metadata key ", Quoted(key)));
  }
  return value;
}

absl::Status GgufMetadata::WrongType(std::string_view key, const GgufValue& value,
                                     const char* wanted) const {
  std::string type(GgufValueTypeName(value.type));
  if (value.type == GgufValueType::kArray) {
    absl::StrAppend(&type, " of ", std::string(GgufValueTypeName(value.element_type)));
  }
  return MakeFailure(
      FailureKind::kInvalidRequest,
      absl::StrCat(file_, ": metadata key ", Quoted(key), " is ", type, ", not ", wanted));
}

absl::StatusOr<uint64_t> GgufMetadata::GetUint(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  const std::optional<int64_t> number = LoadInt(value->type, value->bytes.data());
  if (!number || *number < 0) return WrongType(key, *value, "an integer from 0 to 2^63-1");
  return static_cast<uint64_t>(*number);
}

absl::StatusOr<double> GgufMetadata::GetFloat(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  const std::optional<double> number = LoadFloat(value->type, value->bytes.data());
  if (!number) return WrongType(key, *value, "a float");
  return *number;
}

absl::StatusOr<bool> GgufMetadata::GetBool(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kBool) return WrongType(key, *value, "a bool");
  return value->bytes[0] != std::byte{0};
}

absl::StatusOr<std::string_view> GgufMetadata::GetString(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kString) return WrongType(key, *value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

absl::StatusOr<std::vector<std::string_view>> GgufMetadata::GetStringArray(
    std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray || value->element_type != GgufValueType::kString) {
    return WrongType(key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  ByteReader reader(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<std::string_view> text = reader.ReadString(value->bytes.size());
    SL_CHECK(text.has_value());  // ParseGgufHeader walked the same bytes.
    strings.push_back(*text);
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::GetIntArray(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray) return WrongType(key, *value, "an array of integers");
  const size_t stride = GgufValueBytes(value->element_type);
  std::vector<int64_t> numbers;
  if (stride != 0) numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number =
        LoadInt(value->element_type, value->bytes.data() + i * stride);
    if (!number) return WrongType(key, *value, "an array of integers up to 2^63-1");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufMetadata::GetFloatArray(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray) return WrongType(key, *value, "an array of floats");
  const size_t stride = GgufValueBytes(value->element_type);
  std::vector<float> numbers;
  if (stride != 0) numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number =
        LoadFloat(value->element_type, value->bytes.data() + i * stride);
    if (!number) return WrongType(key, *value, "an array of floats");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

absl::StatusOr<uint64_t> GgufMetadata::GetUintOr(std::string_view key, uint64_t fallback) const {
  return OrFallback(GetUint(key), fallback);
}

absl::StatusOr<double> GgufMetadata::GetFloatOr(std::string_view key, double fallback) const {
  return OrFallback(GetFloat(key), fallback);
}

absl::StatusOr<bool> GgufMetadata::GetBoolOr(std::string_view key, bool fallback) const {
  return OrFallback(GetBool(key), fallback);
}

absl::StatusOr<uint64_t> GgufMetadata::ArrayCount(std::string_view key) const {
  SL_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray) return WrongType(key, *value, "an array");
  return value->count;
}

}  // namespace shardline
