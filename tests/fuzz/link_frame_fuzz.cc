// Any bytes as a LinkFrame: the decoder answers with a frame or a typed failure, and a bundle that
// it lets through has the shape it claims. Without checksums nothing random would get that far, so
// each input is also tried as the header of a bundle whose payload and checksum are right.

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/failure.h"
#include "proto/wire/link_codec.h"

namespace shardline {
namespace {

constexpr LinkLimits kLimits = {
    .rows_max = 8, .tokens_max = 64, .payload_bytes_max = 1 << 16, .hidden_dim = 4};

// The first byte says how long the first slice is, so that every seam is met.
void TryFrame(const std::string& frame, size_t seam) {
  seam = frame.empty() ? 0 : seam % frame.size();
  const grpc::Slice slices[] = {grpc::Slice(frame.substr(0, seam)),
                                grpc::Slice(frame.substr(seam))};
  const absl::StatusOr<LinkInput> input = DecodeFrame(grpc::ByteBuffer(slices, 2), kLimits);
  if (!input.ok()) {
    const FailureKind kind = FailureKindOf(input.status());
    SL_CHECK(kind == FailureKind::kMalformedBundle || kind == FailureKind::kChecksumMismatch);
    return;
  }
  const auto* bundle = std::get_if<LinkBundle>(&*input);
  if (bundle == nullptr) return;
  uint64_t token_count = 0;
  for (const LinkRow& row : bundle->rows) {
    SL_CHECK(row.token_count > 0);
    SL_CHECK(row.position >= 0);
    token_count += static_cast<uint64_t>(row.token_count);
  }
  SL_CHECK(bundle->rows.size() <= kLimits.rows_max);
  SL_CHECK(token_count <= kLimits.tokens_max);
  SL_CHECK(bundle->payload->size() == token_count * kLimits.hidden_dim * sizeof(float));
  // What was let through can be said again, and is heard the same.
  const absl::StatusOr<LinkInput> again = DecodeFrame(EncodeBundle(*bundle), kLimits);
  SL_CHECK(again.ok());
  SL_CHECK(std::get<LinkBundle>(*again).rows == bundle->rows);
}

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::string FrameWithHeader(std::string header, size_t tokens) {
  const std::string payload(tokens * kLimits.hidden_dim * sizeof(float), 'x');
  const uint64_t checksum = XXH3_64bits(payload.data(), payload.size());
  header.push_back(6 << 3 | 1);
  header.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  std::string body = "\x0A";
  AppendVarint(body, header.size());
  body += header + "\x12";
  AppendVarint(body, payload.size());
  body += payload;
  std::string frame = "\x12";
  AppendVarint(frame, body.size());
  return frame + body;
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  shardline::TryFrame(rest, data[0]);
  shardline::TryFrame(shardline::FrameWithHeader(rest, data[1] % 8), data[0]);
  return 0;
}
