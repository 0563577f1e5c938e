#pragma once

// A cursor over foreign bytes that cannot leave them: every read says whether it fitted.
//
// Little-endian, as every format here is. A failed read moves nothing. Holds a view only.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace shardline {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  std::optional<T> Read() {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::optional<std::span<const std::byte>> ReadBytes(uint64_t count) {
    if (count > remaining()) return std::nullopt;
    std::span<const std::byte> bytes = bytes_.subspan(position_, count);
    position_ += count;
    return bytes;
  }

  // A u64 length and that many bytes; no more than `bytes_max`.
  std::optional<std::string_view> ReadString(uint64_t bytes_max) {
    ByteReader ahead = *this;
    const std::optional<uint64_t> length = ahead.Read<uint64_t>();
    if (!length || *length > bytes_max) return std::nullopt;
    const std::optional<std::span<const std::byte>> text = ahead.ReadBytes(*length);
    if (!text) return std::nullopt;
    *this = ahead;
    return std::string_view(reinterpret_cast<const char*>(text->data()), text->size());
  }

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;  // <= bytes_.size()
};

}  // namespace shardline
