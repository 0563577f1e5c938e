#pragma once

// The numbers of the GGUF format: how tensors are stored and how metadata values are typed.
//
// The block layouts belong to whoever computes with them; here only sizes matter. The ids are the
// file format's and never change.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"

namespace shardline {

// How the elements of a tensor are stored. Only what this build can compute with.
enum class GgufTensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgufTensorTypeTraits {
  std::string_view name;   // "q4_k"
  int32_t block_elements;  // Consecutive elements of a row that share a block: 1, 32 or 256.
  int32_t block_bytes;
};

// The type with this id in a file; nothing if this build does not support it.
std::optional<GgufTensorType> GgufTensorTypeOf(uint32_t id);

const GgufTensorTypeTraits& TraitsOf(GgufTensorType type);

// The type of one metadata value.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kGgufValueTypeCount = 13;

std::string_view GgufValueTypeName(GgufValueType type);

// Bytes of a value of fixed size; 0 for strings and arrays.
size_t GgufValueBytes(GgufValueType type);

// Sizes in the file's order: [0] is the length of a row, the dimension that is contiguous.
using TensorShape = absl::InlinedVector<int64_t, 4>;

// "576x49152"
std::string ShapeToString(const TensorShape& shape);

// Bytes of a tensor; nothing if a size is not positive, the row is not a whole number of blocks,
// or the product does not fit an int64.
std::optional<int64_t> TensorBytes(GgufTensorType type, const TensorShape& shape);

// Foreign text made fit for a message: quoted, escaped, cut to 80 bytes.
std::string Quoted(std::string_view text);

}  // namespace shardline
