#include "base/prefix_chain.h"

#include <openssl/evp.h>

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"

namespace shardline {
namespace {

static_assert(std::endian::native == std::endian::little, "keys are over little-endian tokens");

PrefixKey KeyOf(std::string_view bytes) {
  // Fetched once: SHA256() would look it up again for every page.
  static EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  SL_CHECK(sha256 != nullptr);
  unsigned char digest[EVP_MAX_MD_SIZE];
  SL_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, sha256, nullptr) == 1);
  PrefixKey key;
  std::memcpy(key.bytes.data(), digest, key.bytes.size());
  return key;
}

void Append(std::string& out, const void* bytes, size_t size) {
  out.append(static_cast<const char*>(bytes), size);
}

// With its length in front, so that no two lists of texts are one run of bytes.
void AppendText(std::string& out, std::string_view text) {
  const uint64_t size = text.size();
  Append(out, &size, sizeof(size));
  out.append(text);
}

}  // namespace

std::string PrefixKey::ToBytes() const {
  if (empty()) return "";
  return std::string(bytes.begin(), bytes.end());
}

absl::StatusOr<PrefixKey> PrefixKey::FromBytes(std::string_view bytes) {
  PrefixKey key;
  if (bytes.empty()) return key;
  if (bytes.size() != kPrefixKeyBytes) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("a prefix key has ", kPrefixKeyBytes, " bytes, this has ", bytes.size()));
  }
  std::memcpy(key.bytes.data(), bytes.data(), bytes.size());
  return key;
}

PrefixKey PrefixRoot(const ModelId& model, const NumericsId& numerics, std::string_view tenant) {
  std::string bytes;
  AppendText(bytes, "shardline.prefix.1");
  AppendText(bytes, model.value());
  AppendText(bytes, numerics.value());
  AppendText(bytes, tenant);
  return KeyOf(bytes);
}

PrefixKey PrefixNext(const PrefixKey& before, absl::Span<const int32_t> page_tokens) {
  std::string bytes;
  bytes.reserve(kPrefixKeyBytes + page_tokens.size() * sizeof(int32_t));
  Append(bytes, before.bytes.data(), before.bytes.size());
  Append(bytes, page_tokens.data(), page_tokens.size() * sizeof(int32_t));
  return KeyOf(bytes);
}

int32_t PrefixPagesToFind(int64_t tokens, int32_t page_tokens) {
  SL_CHECK(page_tokens > 0);
  return tokens <= 0 ? 0 : static_cast<int32_t>((tokens - 1) / page_tokens);
}

std::vector<PrefixKey> PrefixChain(const PrefixKey& root, absl::Span<const int32_t> tokens,
                                   int32_t page_tokens) {
  SL_CHECK(page_tokens > 0);
  const auto step = static_cast<size_t>(page_tokens);
  std::vector<PrefixKey> keys;
  keys.reserve(tokens.size() / step);
  PrefixKey key = root;
  for (size_t at = 0; at + step <= tokens.size(); at += step) {
    key = PrefixNext(key, tokens.subspan(at, step));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace shardline
