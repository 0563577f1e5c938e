#pragma once

// Who may open and fence: messages under a key that only a coordinator and one life of a node
// share.
//
// The coordinator makes a key for each incarnation and sends it with the welcome. An OPEN and a
// FENCE carry HMAC-SHA256 over their fields in one fixed encoding (its own, not protobuf's, whose
// bytes are nobody's promise), so that a peer can neither forge one, nor change one, nor use one
// of another kind, receiver or epoch. The key lives in memory only and dies with the incarnation.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

inline constexpr size_t kCapabilityBytes = 32;

class CapabilityKey {
 public:
  // From the system's random numbers; kOverloaded if it has none.
  static absl::StatusOr<CapabilityKey> Make();
  // From a welcome; kUnauthorised unless it has 32 bytes.
  static absl::StatusOr<CapabilityKey> FromBytes(std::string_view bytes);

  std::string ToBytes() const { return std::string(bytes_.begin(), bytes_.end()); }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

  friend bool operator==(const CapabilityKey&, const CapabilityKey&) = default;

 private:
  CapabilityKey() = default;

  std::array<char, kCapabilityBytes> bytes_ = {};
};

// What `request.capability` must be; the field itself does not matter.
std::string OpenCapability(const CapabilityKey& key, const v1::OpenRequest& request);
std::string FenceCapability(const CapabilityKey& key, const v1::FenceRequest& request);

// kUnauthorised unless the request carries it. Takes the same time wherever they differ.
absl::Status CheckCapability(const CapabilityKey& key, const v1::OpenRequest& request);
absl::Status CheckCapability(const CapabilityKey& key, const v1::FenceRequest& request);

// True if both are the same capability; takes the same time wherever they differ. For a RunAttempt,
// which carries that of the head's OPEN.
bool SameCapability(std::string_view a, std::string_view b);

}  // namespace shardline
