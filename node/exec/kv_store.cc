#include "node/exec/kv_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"

namespace shardline {
namespace {

int64_t PageBytes(const HyperParameters& hp, int32_t layer_count) {
  return int64_t{layer_count} * 2 * kPageTokens * hp.kv_dim() *
         static_cast<int64_t>(sizeof(uint16_t));
}

// Makes the kernel find the memory now: a shortage must show at start-up, not under load.
void Touch(void* memory, int64_t bytes) {
  constexpr int64_t kSmallPageBytes = 4096;
  volatile char* const first = static_cast<volatile char*>(memory);
  for (int64_t i = 0; i < bytes; i += kSmallPageBytes) first[i] = 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Create(const HyperParameters& hp,
                                                         int32_t layer_count, int32_t pages_total) {
  SL_CHECK(layer_count >= 0);
  SL_CHECK(pages_total > 0);
  const int64_t bytes = PageBytes(hp, layer_count) * pages_total;
  void* memory = nullptr;
  if (bytes > 0) {
    memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return MakeFailure(FailureKind::kKvExhausted,
                         absl::StrCat("cannot reserve ", bytes, " bytes for ", pages_total,
                                      " KV pages: ", std::strerror(errno)));
    }
    madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    Touch(memory, bytes);
  }
  const KvLayerView first{
      .base = static_cast<uint16_t*>(memory),
      .page_stride = PageBytes(hp, layer_count) / static_cast<int64_t>(sizeof(uint16_t)),
      .kv_heads = hp.kv_heads,
      .head_dim = hp.head_dim};
  return absl::WrapUnique(new KvStore(first, layer_count, pages_total));
}

KvStore::KvStore(const KvLayerView& first_layer, int32_t layer_count, int32_t pages_total)
    : first_layer_(first_layer),
      layer_count_(layer_count),
      pages_total_(pages_total),
      page_bytes_(first_layer.page_stride * static_cast<int64_t>(sizeof(uint16_t))) {}

KvStore::~KvStore() {
  if (first_layer_.base != nullptr) {
    munmap(first_layer_.base, static_cast<size_t>(page_bytes_ * pages_total_));
  }
}

KvLayerView KvStore::Layer(int32_t layer) const {
  SL_CHECK(layer >= 0);
  SL_CHECK(layer < layer_count_);
  KvLayerView view = first_layer_;
  view.base += layer * view.page_halves();
  return view;
}

}  // namespace shardline
