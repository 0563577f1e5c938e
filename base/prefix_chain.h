#pragma once

// Names for the content of KV pages: one key a full page of tokens, each over all tokens before it.
//
// Two pages with the same key hold the same rows bit for bit: the root names everything else that
// a row depends on, and within one numerics id bits depend on nothing but the tokens. Keys are the
// first 16 bytes of SHA-256, so a tenant cannot make a page that answers for other tokens either.
//
//   key[0] = SHA-256(root   || tokens[0, 16))    tokens as little-endian int32
//   key[i] = SHA-256(key[i-1] || tokens[16 i, 16 i + 16))
//
// Pure functions. Any thread.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/id.h"

namespace shardline {

inline constexpr size_t kPrefixKeyBytes = 16;

struct PrefixKey {
  std::array<unsigned char, kPrefixKeyBytes> bytes = {};

  // On the wire: 16 bytes, or none for the zero key, which names nothing.
  std::string ToBytes() const;
  // kInvalidRequest unless there are 16 bytes or none.
  static absl::StatusOr<PrefixKey> FromBytes(std::string_view bytes);

  bool empty() const { return *this == PrefixKey(); }

  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
  friend auto operator<=>(const PrefixKey&, const PrefixKey&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const PrefixKey& key) {
    return H::combine(std::move(h), key.bytes);
  }
};

// Where a chain begins: KV is shared only within one model, numerics id and tenant.
PrefixKey PrefixRoot(const ModelId& model, const NumericsId& numerics, std::string_view tenant);

// The key of the page behind `before` (the root, for the first page).
// REQUIRES: exactly a page of tokens.
PrefixKey PrefixNext(const PrefixKey& before, absl::Span<const int32_t> page_tokens);

// How many pages of a prefix of `tokens` tokens may be found in a cache: the full ones, but at
// least one token is left to compute. The pages whose keys an OPEN carries; what comes behind them
// is named by BundleRow.prefix_key.
int32_t PrefixPagesToFind(int64_t tokens, int32_t page_tokens);

// The keys of all full pages of `tokens`.
std::vector<PrefixKey> PrefixChain(const PrefixKey& root, absl::Span<const int32_t> tokens,
                                   int32_t page_tokens);

}  // namespace shardline
