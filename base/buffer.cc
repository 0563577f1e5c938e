#include "base/buffer.h"

#include <new>

namespace shardline {

std::shared_ptr<Buffer> Buffer::Allocate(size_t size) {
  auto* data = static_cast<std::byte*>(
      ::operator new (size == 0 ? kAlignment : size, std::align_val_t{kAlignment}));
  return std::shared_ptr<Buffer>(new Buffer(data, size));
}

Buffer::~Buffer() { ::operator delete (data_, std::align_val_t{kAlignment}); }

}  // namespace shardline
