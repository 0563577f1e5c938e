#include "tests/sim/world_heap.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace shardline::sim {

void KeepTheHeap() {
  constexpr int kBytes = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kBytes);
  mallopt(M_MMAP_THRESHOLD, kBytes);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace shardline::sim

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define SL_WORLD_HEAP
#endif
#endif

#ifdef SL_WORLD_HEAP
namespace {

constexpr size_t kClassBytes = 16;
constexpr size_t kBlockBytesMax = 4096;
constexpr size_t kClasses = kBlockBytesMax / kClassBytes;
constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kChunks = 1 << 17;
constexpr size_t kArenaBytes = kChunks * kChunkBytes;

struct FreeBlock {
  FreeBlock* next;
};

std::atomic<char*> arena = nullptr;
std::atomic<size_t> chunks_used = 0;
uint8_t chunk_class[kChunks];  // Of the blocks in each chunk.
constinit thread_local FreeBlock* free_lists[kClasses] = {};

// Address space alone, until it is touched. Null when the system has none to give.
char* Arena() {
  char* known = arena.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  void* const mapped = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (arena.compare_exchange_strong(known, static_cast<char*>(mapped))) {
    return static_cast<char*>(mapped);
  }
  munmap(mapped, kArenaBytes);
  return known;
}

// A chunk more of blocks of this class; false when there is none.
bool Refill(size_t block_class) {
  char* const base = Arena();
  if (base == nullptr) return false;
  const size_t chunk = chunks_used.fetch_add(1, std::memory_order_relaxed);
  if (chunk >= kChunks) return false;
  chunk_class[chunk] = static_cast<uint8_t>(block_class);
  char* const first = base + chunk * kChunkBytes;
  const size_t bytes = (block_class + 1) * kClassBytes;
  FreeBlock* list = nullptr;
  for (size_t i = kChunkBytes / bytes; i-- > 0;) {
    list = new (first + i * bytes) FreeBlock{list};
  }
  free_lists[block_class] = list;
  return true;
}

void* AllocateLarge(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) std::abort();
  return block;
}

}  // namespace

void* operator new(size_t bytes) {
  if (bytes > kBlockBytesMax) return AllocateLarge(bytes);
  const size_t block_class = bytes == 0 ? 0 : (bytes - 1) / kClassBytes;
  if (free_lists[block_class] == nullptr && !Refill(block_class)) return AllocateLarge(bytes);
  FreeBlock* const block = free_lists[block_class];
  free_lists[block_class] = block->next;
  return block;
}

void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  const uintptr_t base = reinterpret_cast<uintptr_t>(arena.load(std::memory_order_relaxed));
  const size_t offset = reinterpret_cast<uintptr_t>(block) - base;
  if (base == 0 || offset >= kArenaBytes) return std::free(block);
  const size_t block_class = chunk_class[offset / kChunkBytes];
  free_lists[block_class] = new (block) FreeBlock{free_lists[block_class]};
}

void operator delete(void* block, size_t) noexcept { operator delete(block); }

// Blocks lie at multiples of their size, counted from a page: so of the alignment, too.
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  const size_t rounded = (bytes + align - 1) / align * align;
  if (rounded <= kBlockBytesMax) return operator new(rounded);
  void* const block = std::aligned_alloc(align, rounded);
  if (block == nullptr) std::abort();
  return block;
}

void operator delete(void* block, std::align_val_t) noexcept { operator delete(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { operator delete(block); }
#endif
