#pragma once

// LinkFrame to and from bytes, without putting an activation through a protobuf class.
//
// What goes out is a grpc::ByteBuffer of {header slice, payload slice}; the payload slice holds a
// reference to the Buffer, so nothing is copied. What comes in is copied once, from the socket's
// slices into an aligned Buffer. The bytes are those of shardline/v1/link.proto, so any generated
// client can speak to us; a sender must write a bundle's two fields once each and in order.
//
// Decoding trusts nothing: it allocates no more than kFrameHeaderBytesMax before every count is
// checked against `LinkLimits` and shape x dtype equals the payload's length. Any thread.

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/buffer.h"
#include "base/id.h"
#include "base/prefix_chain.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

// LinkHello.features: the peer takes BundlePlan frames.
inline constexpr uint64_t kFeaturePlans = 1;

// Longest bundle header, hello, ping or inspection.
inline constexpr size_t kFrameHeaderBytesMax = 64 * 1024;

// Attempts that one LinkInspect may ask about.
inline constexpr int kInspectRowsMax = 1024;

struct LinkLimits {
  uint32_t rows_max = 256;
  uint32_t tokens_max = 4096;
  uint64_t payload_bytes_max = 64 << 20;
  uint32_t hidden_dim = 0;  // The model's, as agreed in the hello; another one is refused.
};

// One row of a bundle: v1::BundleRow in our own types.
struct LinkRow {
  StepKey key;
  int32_t position = 0;
  int32_t token_count = 0;  // At least 1.
  int32_t hop = 0;
  absl::Duration budget;
  uint32_t flags = 0;
  absl::Duration compute;
  uint64_t chain = 0;
  PrefixKey prefix_key;
  int32_t rejected = 0;
  std::vector<absl::Duration> stage_compute;

  friend bool operator==(const LinkRow&, const LinkRow&) = default;
};

struct LinkBundle {
  uint64_t sequence = 0;
  std::vector<LinkRow> rows;
  int32_t hidden_dim = 0;
  BufferRef payload;  // f32 [sum of token_count, hidden_dim]
};

// v1::BundlePlan: rows that are being computed.
struct LinkPlan {
  std::vector<LinkRow> rows;
};

using LinkInput = std::variant<v1::LinkHello, v1::LinkPing, v1::LinkInspect, LinkBundle, LinkPlan>;

// REQUIRES: at least one row, and a payload of the shape that rows and hidden_dim say.
grpc::ByteBuffer EncodeBundle(const LinkBundle& bundle);
grpc::ByteBuffer EncodeHello(const v1::LinkHello& hello);
grpc::ByteBuffer EncodePing(const v1::LinkPing& ping);
// REQUIRES: at most kInspectRowsMax rows.
grpc::ByteBuffer EncodeInspect(const v1::LinkInspect& inspect);
grpc::ByteBuffer EncodePlan(const LinkPlan& plan);

// Fails with kMalformedBundle, naming what is wrong, or with kChecksumMismatch.
absl::StatusOr<LinkInput> DecodeFrame(const grpc::ByteBuffer& bytes, const LinkLimits& limits);

// Signals go the generated way; these spare the raw side of a stream the traits.
grpc::ByteBuffer EncodeSignal(const v1::LinkSignal& signal);

}  // namespace shardline
