#pragma once

// Bytes with a reference count, aligned for any kernel: the payload of a bundle on its way from a
// socket through a device to a socket, never copied in between.
//
// shared_ptr, because three parties hold one at once: the retained output of a step, the frame
// being written, and the computation that reads it. Written by its maker alone, before it is
// shared; read-only afterwards, from any thread.

#include <cstddef>
#include <memory>
#include <span>

namespace shardline {

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  // Uninitialised bytes. `size` may be 0.
  static std::shared_ptr<Buffer> Allocate(size_t size);

  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // The bytes as floats. REQUIRES: size is a multiple of 4.
  std::span<float> floats() { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(data_), size_ / sizeof(float)};
  }

 private:
  Buffer(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
};

using BufferRef = std::shared_ptr<const Buffer>;

}  // namespace shardline
