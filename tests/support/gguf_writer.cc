#include "tests/support/gguf_writer.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "gtest/gtest.h"
#include "model/gguf_split.h"

namespace shardline::testing {

void AppendGgufString(std::string& out, std::string_view text) {
  AppendNumber(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

GgufWriter& GgufWriter::AddRaw(std::string_view key, uint32_t type_id, std::string encoded) {
  keys_.push_back({std::string(key), type_id, std::move(encoded)});
  return *this;
}

GgufWriter& GgufWriter::SetRaw(std::string_view key, GgufValueType type, std::string encoded) {
  for (Key& known : keys_) {
    if (known.name != key) continue;
    known.type_id = static_cast<uint32_t>(type);
    known.encoded = std::move(encoded);
    return *this;
  }
  return AddRaw(key, static_cast<uint32_t>(type), std::move(encoded));
}

namespace {

template <typename T>
std::string Encoded(T value) {
  std::string out;
  AppendNumber(out, value);
  return out;
}

template <typename T>
std::string EncodedArray(GgufValueType type, const std::vector<T>& values) {
  std::string out = Encoded(static_cast<uint32_t>(type));
  AppendNumber(out, static_cast<uint64_t>(values.size()));
  for (const T& value : values) AppendNumber(out, value);
  return out;
}

}  // namespace

GgufWriter& GgufWriter::SetUint32(std::string_view key, uint32_t value) {
  return SetRaw(key, GgufValueType::kUint32, Encoded(value));
}

GgufWriter& GgufWriter::SetUint16(std::string_view key, uint16_t value) {
  return SetRaw(key, GgufValueType::kUint16, Encoded(value));
}

GgufWriter& GgufWriter::SetInt32(std::string_view key, int32_t value) {
  return SetRaw(key, GgufValueType::kInt32, Encoded(value));
}

GgufWriter& GgufWriter::SetUint64(std::string_view key, uint64_t value) {
  return SetRaw(key, GgufValueType::kUint64, Encoded(value));
}

GgufWriter& GgufWriter::SetFloat32(std::string_view key, float value) {
  return SetRaw(key, GgufValueType::kFloat32, Encoded(value));
}

GgufWriter& GgufWriter::SetBool(std::string_view key, bool value) {
  return SetRaw(key, GgufValueType::kBool, Encoded(static_cast<uint8_t>(value)));
}

GgufWriter& GgufWriter::SetString(std::string_view key, std::string_view value) {
  std::string encoded;
  AppendGgufString(encoded, value);
  return SetRaw(key, GgufValueType::kString, std::move(encoded));
}

GgufWriter& GgufWriter::SetStringArray(std::string_view key,
                                       const std::vector<std::string>& values) {
  std::string encoded = Encoded(static_cast<uint32_t>(GgufValueType::kString));
  AppendNumber(encoded, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) AppendGgufString(encoded, value);
  return SetRaw(key, GgufValueType::kArray, std::move(encoded));
}

GgufWriter& GgufWriter::SetInt32Array(std::string_view key, const std::vector<int32_t>& values) {
  return SetRaw(key, GgufValueType::kArray, EncodedArray(GgufValueType::kInt32, values));
}

GgufWriter& GgufWriter::SetFloat32Array(std::string_view key, const std::vector<float>& values) {
  return SetRaw(key, GgufValueType::kArray, EncodedArray(GgufValueType::kFloat32, values));
}

GgufWriter& GgufWriter::RemoveKey(std::string_view key) {
  std::erase_if(keys_, [&](const Key& known) { return known.name == key; });
  return *this;
}

GgufWriter& GgufWriter::AddTensor(std::string_view name, GgufTensorType type,
                                  const TensorShape& shape, std::string bytes) {
  tensors_.push_back({std::string(name), std::vector<uint64_t>(shape.begin(), shape.end()),
                      static_cast<uint32_t>(type), std::move(bytes)});
  return *this;
}

GgufWriter& GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [&](const GgufTensorEntry& tensor) { return tensor.name == name; });
  return *this;
}

GgufTensorEntry& GgufWriter::tensor(std::string_view name) {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const GgufTensorEntry& entry) { return entry.name == name; });
  SL_CHECK(found != tensors_.end(), "no tensor ", std::string(name));
  return *found;
}

GgufWriter& GgufWriter::set_version(uint32_t version) {
  version_ = version;
  return *this;
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return alignment == 32 ? RemoveKey("general.alignment")
                         : SetUint32("general.alignment", alignment);
}

std::string GgufWriter::Encode() const {
  const auto pad = [this](std::string& out) {
    out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
  };
  std::string out = "GGUF";
  AppendNumber(out, version_);
  AppendNumber(out, static_cast<uint64_t>(tensors_.size()));
  AppendNumber(out, static_cast<uint64_t>(keys_.size()));
  for (const Key& key : keys_) {
    AppendGgufString(out, key.name);
    AppendNumber(out, key.type_id);
    out += key.encoded;
  }
  std::string data;
  for (const GgufTensorEntry& tensor : tensors_) {
    pad(data);
    AppendGgufString(out, tensor.name);
    AppendNumber(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t size : tensor.shape) AppendNumber(out, size);
    AppendNumber(out, tensor.type_id);
    AppendNumber(out, static_cast<uint64_t>(data.size()));
    data += tensor.bytes;
  }
  if (!tensors_.empty()) pad(out);
  return out + data;
}

std::string GgufWriter::WriteTo(const std::string& path) const {
  WriteBytes(path, Encode());
  return path;
}

std::vector<std::string> GgufWriter::WriteSplit(const std::string& prefix, int count) const {
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    GgufWriter part;
    part.version_ = version_;
    part.alignment_ = alignment_;
    if (i == 0) {
      part.keys_ = keys_;
    } else if (alignment_ != 32) {
      part.set_alignment(alignment_);
    }
    part.SetUint16("split.no", static_cast<uint16_t>(i));
    part.SetUint16("split.count", static_cast<uint16_t>(count));
    part.SetInt32("split.tensors.count", static_cast<int32_t>(tensors_.size()));
    const size_t begin = tensors_.size() * i / count;
    const size_t end = tensors_.size() * (i + 1) / count;
    part.tensors_.assign(tensors_.begin() + begin, tensors_.begin() + end);
    paths.push_back(part.WriteTo(SplitPartPath({.prefix = prefix, .count = count}, i + 1)));
  }
  return paths;
}

void WriteBytes(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  SL_CHECK(file.good(), "cannot write ", path);
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  SL_CHECK(file.good(), "cannot read ", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string FreshDirectory() {
  std::string pattern = ::testing::TempDir() + "/shardline-XXXXXX";
  SL_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot make a directory like ", pattern);
  // Removed when the test program ends.
  static struct Cleaner {
    std::vector<std::string> directories;
    ~Cleaner() {
      for (const std::string& directory : directories) {
        std::error_code ignored;
        std::filesystem::remove_all(directory, ignored);
      }
    }
  } cleaner;
  cleaner.directories.push_back(pattern);
  return pattern;
}

}  // namespace shardline::testing
