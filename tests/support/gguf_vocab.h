#pragma once

// Reads a TokenizerSpec out of a GGUF file, for tests only. Format: GGUF version 3, little-endian:
// magic, version, tensor count, key count, then key-value pairs.

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer_spec.h"

namespace shardline::testing {

class GgufVocabReader {
 public:
  explicit GgufVocabReader(const std::string& path) : file_(path, std::ios::binary) {}

  absl::StatusOr<TokenizerSpec> Read() {
    if (!file_ || Number<uint32_t>() != 0x46554747) return absl::NotFoundError("no GGUF file");
    Number<uint32_t>();
    Number<uint64_t>();
    const auto key_count = Number<uint64_t>();
    for (uint64_t i = 0; i < key_count && file_; ++i) ReadPair();
    if (!file_) return absl::DataLossError("GGUF file ends early or has an unknown value type");
    return spec_;
  }

 private:
  // The value types of GGUF that a tokenizer needs by name.
  enum Type : uint32_t {
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9
  };

  template <typename T>
  T Number() {
    T value = {};
    file_.read(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }

  std::string String() {
    const auto bytes = Number<uint64_t>();
    if (bytes > (1u << 24)) file_.setstate(std::ios::failbit);
    if (!file_) return "";
    std::string value(bytes, '\0');
    file_.read(value.data(), static_cast<std::streamsize>(bytes));
    return value;
  }

  template <typename T, typename Read>
  void Array(std::vector<T>* out, Read read) {
    Number<uint32_t>();
    const auto count = Number<uint64_t>();
    for (uint64_t i = 0; i < count && file_; ++i) out->push_back(read());
  }

  void Skip(uint32_t type) {
    constexpr int kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) {
      String();
    } else if (type == kArray) {
      const auto element = Number<uint32_t>();
      const auto count = Number<uint64_t>();
      for (uint64_t i = 0; i < count && file_; ++i) Skip(element);
    } else if (type < std::size(kBytes)) {
      file_.ignore(kBytes[type]);
    } else {
      file_.setstate(std::ios::failbit);
    }
  }

  void ReadPair() {
    const std::string key = String();
    const auto type = Number<uint32_t>();
    const std::string prefix = "tokenizer.ggml.";
    const std::string name = key.rfind(prefix, 0) == 0 ? key.substr(prefix.size()) : "";
    const auto id = [&] { return static_cast<int32_t>(Number<uint32_t>()); };
    if (key == "general.name") {
      spec_.model_name = String();
    } else if (name == "model") {
      spec_.type = String();
    } else if (name == "pre") {
      spec_.pre = String();
    } else if (name == "tokens") {
      Array(&spec_.tokens, [&] { return String(); });
    } else if (name == "merges") {
      Array(&spec_.merges, [&] { return String(); });
    } else if (name == "scores") {
      Array(&spec_.scores, [&] { return Number<float>(); });
    } else if (name == "token_type") {
      Array(&spec_.token_types, [&] { return static_cast<TokenType>(Number<int32_t>()); });
    } else if (name == "bos_token_id") {
      spec_.bos_id = id();
    } else if (name == "eos_token_id") {
      spec_.eos_id = id();
    } else if (name == "unknown_token_id") {
      spec_.unknown_id = id();
    } else if (name == "padding_token_id") {
      spec_.padding_id = id();
    } else if (name == "eot_token_id") {
      spec_.eot_id = id();
    } else if (name == "add_bos_token") {
      spec_.add_bos = Number<bool>();
    } else if (name == "add_eos_token") {
      spec_.add_eos = Number<bool>();
    } else if (name == "add_space_prefix") {
      spec_.add_space_prefix = Number<bool>();
    } else {
      Skip(type);
    }
  }

  std::ifstream file_;
  TokenizerSpec spec_;
};

}  // namespace shardline::testing
