#pragma once

// Writes small GGUF files for tests, right ones and (through the raw parts) wrong ones.
//
//   GgufWriter writer;
//   writer.SetString("general.architecture", "llama").AddTensor("x", kF32, {4}, bytes);
//   const std::string path = writer.WriteTo(directory + "/x.gguf");

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_types.h"

namespace shardline::testing {

// Appends the bytes of a number, little-endian.
template <typename T>
void AppendNumber(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Appends a u64 length and the text.
void AppendGgufString(std::string& out, std::string_view text);

// A tensor entry as it will stand in the table; the raw ids let tests lie.
struct GgufTensorEntry {
  std::string name;
  std::vector<uint64_t> shape;  // Row length first.
  uint32_t type_id = 0;
  std::string bytes;
};

class GgufWriter {
 public:
  GgufWriter& SetUint32(std::string_view key, uint32_t value);
  GgufWriter& SetUint16(std::string_view key, uint16_t value);
  GgufWriter& SetInt32(std::string_view key, int32_t value);
  GgufWriter& SetUint64(std::string_view key, uint64_t value);
  GgufWriter& SetFloat32(std::string_view key, float value);
  GgufWriter& SetBool(std::string_view key, bool value);
  GgufWriter& SetString(std::string_view key, std::string_view value);
  GgufWriter& SetStringArray(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& SetInt32Array(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& SetFloat32Array(std::string_view key, const std::vector<float>& values);
  // `encoded` is what follows the type id. Setting a key again replaces it, in place.
  GgufWriter& SetRaw(std::string_view key, GgufValueType type, std::string encoded);
  GgufWriter& AddRaw(std::string_view key, uint32_t type_id, std::string encoded);  // Even twice.
  GgufWriter& RemoveKey(std::string_view key);

  // `bytes` may have any length; a right file has TensorBytes(type, shape).
  GgufWriter& AddTensor(std::string_view name, GgufTensorType type, const TensorShape& shape,
                        std::string bytes);
  GgufWriter& RemoveTensor(std::string_view name);
  GgufTensorEntry& tensor(std::string_view name);  // Dies if there is none.
  std::vector<GgufTensorEntry>& tensors() { return tensors_; }

  GgufWriter& set_version(uint32_t version);
  // Of the tensor data. Also sets general.alignment, unless it is the default 32.
  GgufWriter& set_alignment(uint32_t alignment);

  std::string Encode() const;
  std::string WriteTo(const std::string& path) const;  // Gives back `path`.

  // The same model as `count` files "<prefix>-00001-of-0000N.gguf", the tensors dealt in runs as
  // equal as can be. Gives the paths, in order.
  std::vector<std::string> WriteSplit(const std::string& prefix, int count) const;

 private:
  struct Key {
    std::string name;
    uint32_t type_id;
    std::string encoded;
  };

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  std::vector<Key> keys_;
  std::vector<GgufTensorEntry> tensors_;
};

void WriteBytes(const std::string& path, std::string_view bytes);
std::string ReadBytes(const std::string& path);

// A fresh directory for the running test, below the test run's temporary directory.
std::string FreshDirectory();

}  // namespace shardline::testing
