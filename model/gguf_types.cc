#include "model/gguf_types.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace shardline {
namespace {

struct TypeRow {
  GgufTensorType type;
  GgufTensorTypeTraits traits;
};

constexpr TypeRow kTypes[] = {
    {GgufTensorType::kF32, {"f32", 1, 4}},       {GgufTensorType::kF16, {"f16", 1, 2}},
    {GgufTensorType::kBF16, {"bf16", 1, 2}},     {GgufTensorType::kQ8_0, {"q8_0", 32, 34}},
    {GgufTensorType::kQ4_0, {"q4_0", 32, 18}},   {GgufTensorType::kQ4_1, {"q4_1", 32, 20}},
    {GgufTensorType::kQ5_0, {"q5_0", 32, 22}},   {GgufTensorType::kQ5_1, {"q5_1", 32, 24}},
    {GgufTensorType::kQ4_K, {"q4_k", 256, 144}}, {GgufTensorType::kQ5_K, {"q5_k", 256, 176}},
    {GgufTensorType::kQ6_K, {"q6_k", 256, 210}},
};

struct ValueRow {
  std::string_view name;
  size_t bytes;
};

constexpr ValueRow kValues[kGgufValueTypeCount] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

}  // namespace

std::optional<GgufTensorType> GgufTensorTypeOf(uint32_t id) {
  for (const TypeRow& row : kTypes) {
    if (static_cast<uint32_t>(row.type) == id) return row.type;
  }
  return std::nullopt;
}

const GgufTensorTypeTraits& TraitsOf(GgufTensorType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.traits;
  }
  SL_CHECK(false, "no tensor type ", static_cast<uint32_t>(type));
  return kTypes[0].traits;
}

std::string_view GgufValueTypeName(GgufValueType type) {
  SL_CHECK(static_cast<uint32_t>(type) < kGgufValueTypeCount);
  return kValues[static_cast<uint32_t>(type)].name;
}

size_t GgufValueBytes(GgufValueType type) {
  SL_CHECK(static_cast<uint32_t>(type) < kGgufValueTypeCount);
  return kValues[static_cast<uint32_t>(type)].bytes;
}

std::string ShapeToString(const TensorShape& shape) { return absl::StrJoin(shape, "x"); }

std::optional<int64_t> TensorBytes(GgufTensorType type, const TensorShape& shape) {
  const GgufTensorTypeTraits& traits = TraitsOf(type);
  if (shape.empty() || shape[0] <= 0 || shape[0] % traits.block_elements != 0) return std::nullopt;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size <= 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / traits.block_elements, int64_t{traits.block_bytes},
                             &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kBytesMax = 80;
  const bool cut = text.size() > kBytesMax;
  const absl::string_view head(text.data(), cut ? kBytesMax : text.size());
  return absl::StrCat("'", absl::CHexEscape(head), cut ? "..." : "", "'");
}

}  // namespace shardline
