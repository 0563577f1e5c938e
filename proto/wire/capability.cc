#include "proto/wire/capability.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/failure.h"

namespace shardline {
namespace {

// The fixed encoding: numbers are eight bytes, little-endian; texts have their length in front.
class Encoding {
 public:
  explicit Encoding(std::string_view kind) { Text(kind); }

  Encoding& Number(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>((value >> shift) & 0xff));
    }
    return *this;
  }

  Encoding& Text(std::string_view text) {
    Number(text.size());
    bytes_.append(text);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }

std::string Sign(const CapabilityKey& key, const Encoding& encoding) {
  std::array<unsigned char, kCapabilityBytes> mac = {};
  unsigned int length = 0;
  const std::string& bytes = encoding.bytes();
  const unsigned char* done =
      HMAC(EVP_sha256(), key.view().data(), static_cast<int>(key.view().size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), mac.data(), &length);
  SL_CHECK(done != nullptr);
  SL_CHECK(length == kCapabilityBytes);
  return std::string(mac.begin(), mac.end());
}

absl::Status Unauthorised(const char* what, uint64_t session, uint64_t epoch) {
  return MakeFailure(
      {.kind = FailureKind::kUnauthorised, .session = SessionId(session), .epoch = Epoch(epoch)},
      std::string(what) + " does not carry the capability of this node's life");
}

}  // namespace

absl::StatusOr<CapabilityKey> CapabilityKey::Make() {
  CapabilityKey key;
  if (getentropy(key.bytes_.data(), key.bytes_.size()) != 0) {
    return MakeFailure(FailureKind::kOverloaded, "the system has no random bytes for a key");
  }
  return key;
}

absl::StatusOr<CapabilityKey> CapabilityKey::FromBytes(std::string_view bytes) {
  if (bytes.size() != kCapabilityBytes) {
    return MakeFailure(
        FailureKind::kUnauthorised,
        "a capability key must have 32 bytes, this has " + std::to_string(bytes.size()));
  }
  CapabilityKey key;
  std::copy(bytes.begin(), bytes.end(), key.bytes_.begin());
  return key;
}

std::string OpenCapability(const CapabilityKey& key, const v1::OpenRequest& request) {
  Encoding encoding("shardline.open.2");
  encoding.Number(request.session())
      .Number(request.epoch())
      .Number(request.term())
      .Number(request.incarnation())
      .Text(request.recipe().model_id())
      .Text(request.recipe().numerics_id())
      .Number(request.recipe().plan_epoch())
      .Number(request.stage_index())
      .Number(static_cast<uint64_t>(request.route_size()));
  for (const v1::RouteStage& stage : request.route()) {
    encoding.Text(stage.node_id())
        .Number(stage.incarnation())
        .Text(stage.address())
        .Number(Bits(stage.layers().begin()))
        .Number(Bits(stage.layers().end()));
  }
  encoding.Number(request.tokens_max()).Number(Bits(request.budget_ms()));
  encoding.Number(static_cast<uint64_t>(request.prefix_keys_size()));
  for (const std::string& prefix_key : request.prefix_keys()) encoding.Text(prefix_key);
  encoding.Text(request.prefix_root());
  return Sign(key, encoding);
}

std::string FenceCapability(const CapabilityKey& key, const v1::FenceRequest& request) {
  Encoding encoding("shardline.fence.1");
  encoding.Number(request.session())
      .Number(request.epoch())
      .Number(request.term())
      .Number(request.incarnation());
  return Sign(key, encoding);
}

absl::Status CheckCapability(const CapabilityKey& key, const v1::OpenRequest& request) {
  if (SameCapability(request.capability(), OpenCapability(key, request))) return absl::OkStatus();
  return Unauthorised("OPEN", request.session(), request.epoch());
}

absl::Status CheckCapability(const CapabilityKey& key, const v1::FenceRequest& request) {
  if (SameCapability(request.capability(), FenceCapability(key, request))) return absl::OkStatus();
  return Unauthorised("FENCE", request.session(), request.epoch());
}

bool SameCapability(std::string_view a, std::string_view b) {
  return a.size() == kCapabilityBytes && b.size() == kCapabilityBytes &&
         CRYPTO_memcmp(a.data(), b.data(), kCapabilityBytes) == 0;
}

}  // namespace shardline
