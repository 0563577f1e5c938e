#include "proto/wire/link_codec.h"

#include <grpcpp/support/slice.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "proto/wire/field_reader.h"

namespace shardline {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// Field numbers of link.proto, where a tag is number << 3 | wire type.
constexpr uint64_t kFrameHelloTag = 1 << 3 | 2;
constexpr uint64_t kFrameBundleTag = 2 << 3 | 2;
constexpr uint64_t kFramePingTag = 3 << 3 | 2;
constexpr uint64_t kFrameInspectTag = 4 << 3 | 2;
constexpr uint64_t kFramePlanTag = 5 << 3 | 2;
constexpr uint64_t kBundleHeaderTag = 1 << 3 | 2;
constexpr uint64_t kBundlePayloadTag = 2 << 3 | 2;

void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// As protobuf does for proto3: a zero is left out.
void AppendField(std::string& out, uint32_t number, uint64_t value) {
  if (value == 0) return;
  AppendVarint(out, number << 3 | kVarint);
  AppendVarint(out, value);
}

void AppendFixed64(std::string& out, uint32_t number, uint64_t value) {
  if (value == 0) return;
  AppendVarint(out, number << 3 | kFixed64);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A packed list of microseconds.
void AppendTimes(std::string& out, uint32_t number, const std::vector<absl::Duration>& times) {
  if (times.empty()) return;
  std::string packed;
  for (const absl::Duration time : times) {
    AppendVarint(packed, static_cast<uint64_t>(absl::ToInt64Microseconds(time)));
  }
  AppendVarint(out, number << 3 | kBytes);
  AppendVarint(out, packed.size());
  out += packed;
}

// Field numbers of the rows in a BundleHeader and a BundlePlan.
constexpr uint32_t kHeaderRowsField = 2;
constexpr uint32_t kPlanRowsField = 1;

void AppendRow(std::string& out, const LinkRow& row, uint32_t number) {
  std::string body;
  body.reserve(64);
  AppendField(body, 1, row.key.attempt.session.value());
  AppendField(body, 2, row.key.attempt.epoch.value());
  AppendField(body, 3, row.key.step.value());
  AppendField(body, 4, static_cast<uint32_t>(row.position));
  AppendField(body, 5, static_cast<uint32_t>(row.token_count));
  AppendField(body, 6, static_cast<uint32_t>(row.hop));
  AppendField(body, 7, static_cast<uint64_t>(absl::ToInt64Microseconds(row.budget)));
  AppendField(body, 8, row.flags);
  AppendField(body, 9, static_cast<uint64_t>(absl::ToInt64Microseconds(row.compute)));
  AppendFixed64(body, 10, row.chain);
  if (!row.prefix_key.empty()) {
    AppendVarint(body, 11 << 3 | kBytes);
    AppendVarint(body, kPrefixKeyBytes);
    body += row.prefix_key.ToBytes();
  }
  AppendField(body, 12, static_cast<uint32_t>(row.rejected));
  AppendTimes(body, 13, row.stage_compute);
  AppendVarint(out, number << 3 | kBytes);
  AppendVarint(out, body.size());
  out += body;
}

size_t VarintSize(uint64_t value) { return (std::bit_width(value | 1) + 6) / 7; }

grpc::Slice PayloadSlice(const BufferRef& payload) {
  // gRPC frees the reference when the last byte has left for the kernel.
  auto* reference = new BufferRef(payload);
  return grpc::Slice(
      const_cast<std::byte*>(payload->data()), payload->size(),
      [](void* held) { delete static_cast<BufferRef*>(held); }, reference);
}

grpc::ByteBuffer EncodeMessage(uint64_t tag, const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  std::string frame;
  AppendVarint(frame, tag);
  AppendVarint(frame, body.size());
  frame += body;
  const grpc::Slice slice(frame);
  return grpc::ByteBuffer(&slice, 1);
}

// Walks the slices of a message as one run of bytes.
class SliceCursor {
 public:
  explicit SliceCursor(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const grpc::Slice& slice : slices) remaining_ += slice.size();
    SkipEmptySlices();
  }

  uint64_t remaining() const { return remaining_; }

  // Empty after the end, and for more than 64 bits.
  absl::StatusOr<uint64_t> ReadVarint() {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
      if (remaining_ == 0) return Malformed("the frame ends inside a number");
      const uint8_t byte = slices_[index_].begin()[offset_];
      Advance(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Malformed("a number of more than 64 bits");
  }

  // The next `size` bytes, in place if they lie together, else gathered in `scratch`.
  // REQUIRES: size <= remaining().
  std::string_view ReadBytes(size_t size, std::string& scratch) {
    if (size == 0) return {};
    if (slices_[index_].size() - offset_ >= size) {
      const char* begin = reinterpret_cast<const char*>(slices_[index_].begin()) + offset_;
      Advance(size);
      return {begin, size};
    }
    scratch.resize(size);
    CopyTo(reinterpret_cast<std::byte*>(scratch.data()), size);
    return scratch;
  }

  // REQUIRES: size <= remaining().
  void CopyTo(std::byte* out, size_t size) {
    while (size > 0) {
      const size_t count = std::min(size, slices_[index_].size() - offset_);
      std::memcpy(out, slices_[index_].begin() + offset_, count);
      out += count;
      size -= count;
      Advance(count);
    }
  }

 private:
  // REQUIRES: the current slice has `count` more bytes.
  void Advance(size_t count) {
    offset_ += count;
    remaining_ -= count;
    SkipEmptySlices();
  }

  void SkipEmptySlices() {
    while (index_ < slices_.size() && offset_ == slices_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t offset_ = 0;
  uint64_t remaining_ = 0;
};

absl::StatusOr<int32_t> ToInt32(uint64_t value, std::string_view what) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    return Malformed(absl::StrCat(std::string(what), " of ", value, " is out of range"));
  }
  return static_cast<int32_t>(value);
}

WireType RowFieldType(uint32_t number) {
  if (number == 10) return kFixed64;
  return number == 11 || number == 13 ? kBytes : kVarint;
}

absl::StatusOr<std::vector<absl::Duration>> DecodeTimes(std::string_view packed) {
  std::vector<absl::Duration> times;
  FieldReader reader(packed);
  while (!reader.AtEnd()) {
    SL_ASSIGN_OR_RETURN(const uint64_t value, reader.ReadVarint());
    SL_ASSIGN_OR_RETURN(const int32_t us, ToInt32(value, "a compute time"));
    times.push_back(absl::Microseconds(us));
  }
  return times;
}

absl::StatusOr<LinkRow> DecodeRow(std::string_view bytes) {
  LinkRow row;
  FieldSet seen;
  FieldReader reader(bytes);
  while (!reader.AtEnd()) {
    SL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number > 13) continue;
    SL_RETURN_IF_ERROR(seen.Take(field, RowFieldType(field.number)));
    switch (field.number) {
      case 1:
        row.key.attempt.session = SessionId(field.value);
        break;
      case 2:
        row.key.attempt.epoch = Epoch(field.value);
        break;
      case 3:
        row.key.step = StepIndex(field.value);
        break;
      case 4: {
        SL_ASSIGN_OR_RETURN(row.position, ToInt32(field.value, "a position"));
        break;
      }
      case 5: {
        SL_ASSIGN_OR_RETURN(row.token_count, ToInt32(field.value, "a token count"));
        break;
      }
      case 6: {
        SL_ASSIGN_OR_RETURN(row.hop, ToInt32(field.value, "a hop"));
        break;
      }
      case 7:
        row.budget = absl::Microseconds(static_cast<int64_t>(field.value));
        break;
      case 8: {
        SL_ASSIGN_OR_RETURN(const int32_t flags, ToInt32(field.value, "flags"));
        row.flags = static_cast<uint32_t>(flags);
        break;
      }
      case 9: {
        SL_ASSIGN_OR_RETURN(const int32_t compute_us, ToInt32(field.value, "a compute time"));
        row.compute = absl::Microseconds(compute_us);
        break;
      }
      case 10:
        row.chain = field.value;
        break;
      case 11: {
        const absl::StatusOr<PrefixKey> key = PrefixKey::FromBytes(field.bytes);
        if (!key.ok()) return Malformed(std::string(key.status().message()));
        row.prefix_key = *key;
        break;
      }
      case 13: {
        SL_ASSIGN_OR_RETURN(row.stage_compute, DecodeTimes(field.bytes));
        break;
      }
      default: {
        SL_ASSIGN_OR_RETURN(row.rejected, ToInt32(field.value, "a count of rejected drafts"));
        break;
      }
    }
  }
  if (row.token_count < 1) return Malformed("a row of 0 tokens");
  return row;
}

struct Header {
  LinkBundle bundle;  // Without its payload.
  uint64_t dtype = 0;
  uint64_t token_count = 0;
  uint64_t hidden_dim = 0;
  uint64_t payload_xxh3 = 0;
};

absl::Status TakeHeaderField(const Field& field, const LinkLimits& limits, Header& header) {
  switch (field.number) {
    case 1:
      header.bundle.sequence = field.value;
      break;
    case 2: {
      if (header.bundle.rows.size() >= limits.rows_max) {
        return Malformed(absl::StrCat("more than ", limits.rows_max, " rows"));
      }
      SL_ASSIGN_OR_RETURN(LinkRow row, DecodeRow(field.bytes));
      header.bundle.rows.push_back(std::move(row));
      break;
    }
    case 3:
      header.dtype = field.value;
      break;
    case 4:
      header.token_count = field.value;
      break;
    case 5:
      header.hidden_dim = field.value;
      break;
    default:
      header.payload_xxh3 = field.value;
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Header> DecodeHeader(std::string_view bytes, const LinkLimits& limits) {
  Header header;
  FieldSet seen;
  FieldReader reader(bytes);
  while (!reader.AtEnd()) {
    SL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number > 6) continue;
    if (field.number == 2) {
      if (field.type != kBytes) return Malformed("field 2 has another wire type");
    } else {
      SL_RETURN_IF_ERROR(seen.Take(field, field.number == 6 ? kFixed64 : kVarint));
    }
    SL_RETURN_IF_ERROR(TakeHeaderField(field, limits, header));
  }
  return header;
}

// Every number of the header against the limits, the rows and the payload's length. None is used
// in arithmetic before it is bounded.
absl::Status CheckShape(const Header& header, const LinkLimits& limits, uint64_t payload_bytes) {
  if (header.bundle.rows.empty()) return Malformed("a bundle of 0 rows");
  if (header.dtype != v1::DTYPE_F32) return Malformed(absl::StrCat("dtype ", header.dtype));
  if (header.token_count == 0 || header.token_count > limits.tokens_max) {
    return Malformed(absl::StrCat(header.token_count, " tokens; 1 to ", limits.tokens_max));
  }
  if (header.hidden_dim == 0 || header.hidden_dim != limits.hidden_dim) {
    return Malformed(
        absl::StrCat("hidden_dim ", header.hidden_dim, "; agreed on ", limits.hidden_dim));
  }
  uint64_t token_count = 0;
  for (const LinkRow& row : header.bundle.rows) token_count += row.token_count;
  if (token_count != header.token_count) {
    return Malformed(
        absl::StrCat("rows of ", token_count, " tokens in a bundle of ", header.token_count));
  }
  if (payload_bytes > limits.payload_bytes_max) {
    return Malformed(
        absl::StrCat("a payload of ", payload_bytes, " bytes; at most ", limits.payload_bytes_max));
  }
  const uint64_t shape_bytes = header.token_count * header.hidden_dim * sizeof(float);
  if (payload_bytes != shape_bytes) {
    return Malformed(
        absl::StrCat("a payload of ", payload_bytes, " bytes for a shape of ", shape_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<LinkInput> DecodeBundle(SliceCursor& cursor, const LinkLimits& limits) {
  SL_ASSIGN_OR_RETURN(const uint64_t header_tag, cursor.ReadVarint());
  if (header_tag != kBundleHeaderTag) return Malformed("a bundle that starts without a header");
  SL_ASSIGN_OR_RETURN(const uint64_t header_bytes, cursor.ReadVarint());
  if (header_bytes > kFrameHeaderBytesMax || header_bytes > cursor.remaining()) {
    return Malformed(absl::StrCat("a header of ", header_bytes, " bytes"));
  }
  std::string scratch;
  SL_ASSIGN_OR_RETURN(Header header, DecodeHeader(cursor.ReadBytes(header_bytes, scratch), limits));

  SL_ASSIGN_OR_RETURN(const uint64_t payload_tag, cursor.ReadVarint());
  if (payload_tag != kBundlePayloadTag) return Malformed("no payload after the header");
  SL_ASSIGN_OR_RETURN(const uint64_t payload_bytes, cursor.ReadVarint());
  if (payload_bytes != cursor.remaining()) {
    return Malformed(absl::StrCat("a payload of ", payload_bytes, " bytes with ",
                                  cursor.remaining(), " left in the frame"));
  }
  SL_RETURN_IF_ERROR(CheckShape(header, limits, payload_bytes));

  std::shared_ptr<Buffer> payload = Buffer::Allocate(payload_bytes);
  cursor.CopyTo(payload->data(), payload_bytes);
  if (XXH3_64bits(payload->data(), payload->size()) != header.payload_xxh3) {
    return MakeFailure(FailureKind::kChecksumMismatch,
                       absl::StrCat("bundle ", header.bundle.sequence, ": payload of ",
                                    payload_bytes, " bytes has another XXH3"));
  }
  header.bundle.hidden_dim = static_cast<int32_t>(header.hidden_dim);
  header.bundle.payload = std::move(payload);
  return LinkInput(std::move(header.bundle));
}

template <typename Message>
absl::StatusOr<LinkInput> DecodeMessage(SliceCursor& cursor, std::string_view what) {
  if (cursor.remaining() > kFrameHeaderBytesMax) {
    return Malformed(absl::StrCat("a ", std::string(what), " of ", cursor.remaining(), " bytes"));
  }
  std::string scratch;
  const std::string_view bytes = cursor.ReadBytes(cursor.remaining(), scratch);
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed(absl::StrCat("a ", std::string(what), " that does not parse"));
  }
  return LinkInput(std::move(message));
}

absl::StatusOr<LinkInput> DecodeInspect(SliceCursor& cursor) {
  SL_ASSIGN_OR_RETURN(LinkInput input, DecodeMessage<v1::LinkInspect>(cursor, "inspection"));
  const int row_count = std::get<v1::LinkInspect>(input).rows_size();
  if (row_count > kInspectRowsMax) {
    return Malformed(absl::StrCat("an inspection of ", row_count, " rows"));
  }
  return input;
}

}  // namespace

grpc::ByteBuffer EncodeBundle(const LinkBundle& bundle) {
  SL_CHECK(!bundle.rows.empty());
  SL_CHECK(bundle.payload != nullptr);
  uint64_t token_count = 0;
  for (const LinkRow& row : bundle.rows) token_count += row.token_count;
  SL_CHECK(bundle.payload->size() == token_count * bundle.hidden_dim * sizeof(float));

  std::string header;
  header.reserve(32 + 64 * bundle.rows.size());
  AppendField(header, 1, bundle.sequence);
  for (const LinkRow& row : bundle.rows) AppendRow(header, row, kHeaderRowsField);
  AppendField(header, 3, v1::DTYPE_F32);
  AppendField(header, 4, token_count);
  AppendField(header, 5, static_cast<uint32_t>(bundle.hidden_dim));
  AppendFixed64(header, 6, XXH3_64bits(bundle.payload->data(), bundle.payload->size()));

  const uint64_t body_bytes = 1 + VarintSize(header.size()) + header.size() + 1 +
                              VarintSize(bundle.payload->size()) + bundle.payload->size();
  std::string prefix;
  prefix.reserve(header.size() + 32);
  AppendVarint(prefix, kFrameBundleTag);
  AppendVarint(prefix, body_bytes);
  AppendVarint(prefix, kBundleHeaderTag);
  AppendVarint(prefix, header.size());
  prefix += header;
  AppendVarint(prefix, kBundlePayloadTag);
  AppendVarint(prefix, bundle.payload->size());

  const grpc::Slice slices[] = {grpc::Slice(prefix), PayloadSlice(bundle.payload)};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer EncodeHello(const v1::LinkHello& hello) {
  return EncodeMessage(kFrameHelloTag, hello);
}

grpc::ByteBuffer EncodePing(const v1::LinkPing& ping) { return EncodeMessage(kFramePingTag, ping); }

grpc::ByteBuffer EncodeInspect(const v1::LinkInspect& inspect) {
  SL_CHECK(inspect.rows_size() <= kInspectRowsMax);
  return EncodeMessage(kFrameInspectTag, inspect);
}

grpc::ByteBuffer EncodePlan(const LinkPlan& plan) {
  std::string body;
  for (const LinkRow& row : plan.rows) AppendRow(body, row, kPlanRowsField);
  std::string frame;
  AppendVarint(frame, kFramePlanTag);
  AppendVarint(frame, body.size());
  frame += body;
  const grpc::Slice slice(frame);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer EncodeSignal(const v1::LinkSignal& signal) {
  const grpc::Slice slice(signal.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<LinkInput> DecodePlan(SliceCursor& cursor, const LinkLimits& limits) {
  const uint64_t size = cursor.remaining();
  if (size > kFrameHeaderBytesMax) return Malformed(absl::StrCat("a plan of ", size, " bytes"));
  std::string scratch;
  FieldReader reader(cursor.ReadBytes(size, scratch));
  LinkPlan plan;
  uint64_t token_count = 0;
  while (!reader.AtEnd()) {
    SL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number != kPlanRowsField) continue;
    if (field.type != kBytes) return Malformed("field 1 has another wire type");
    if (plan.rows.size() >= limits.rows_max) {
      return Malformed(absl::StrCat("a plan of more than ", limits.rows_max, " rows"));
    }
    SL_ASSIGN_OR_RETURN(const LinkRow row, DecodeRow(field.bytes));
    token_count += static_cast<uint64_t>(row.token_count);
    plan.rows.push_back(row);
  }
  if (plan.rows.empty()) return Malformed("a plan of 0 rows");
  if (token_count > limits.tokens_max) {
    return Malformed(
        absl::StrCat("a plan of ", token_count, " tokens; at most ", limits.tokens_max));
  }
  return plan;
}

absl::StatusOr<LinkInput> DecodeFrame(const grpc::ByteBuffer& bytes, const LinkLimits& limits) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return Malformed("a frame that cannot be read");
  SliceCursor cursor(slices);
  SL_ASSIGN_OR_RETURN(const uint64_t tag, cursor.ReadVarint());
  SL_ASSIGN_OR_RETURN(const uint64_t body_bytes, cursor.ReadVarint());
  if (body_bytes != cursor.remaining()) {
    return Malformed(absl::StrCat("a frame of ", body_bytes, " bytes with ", cursor.remaining(),
                                  " bytes after its length"));
  }
  switch (tag) {
    case kFrameHelloTag:
      return DecodeMessage<v1::LinkHello>(cursor, "hello");
    case kFramePingTag:
      return DecodeMessage<v1::LinkPing>(cursor, "ping");
    case kFrameInspectTag:
      return DecodeInspect(cursor);
    case kFramePlanTag:
      return DecodePlan(cursor, limits);
    case kFrameBundleTag:
      return DecodeBundle(cursor, limits);
    default:
      return Malformed(absl::StrCat("a frame with tag ", tag));
  }
}

}  // namespace shardline
