#include "proto/wire/link_codec.h"

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "base/failure.h"

namespace shardline {
namespace {

constexpr int32_t kHiddenDim = 8;
constexpr LinkLimits kLimits = {.rows_max = 4, .tokens_max = 32, .hidden_dim = kHiddenDim};

LinkBundle SomeBundle() {
  LinkBundle bundle;
  bundle.sequence = 300;
  bundle.hidden_dim = kHiddenDim;
  bundle.rows.push_back({.key = {{SessionId(1ULL << 63), Epoch(2)}, StepIndex(0)},
                         .position = 0,
                         .token_count = 3,
                         .hop = 1,
                         .budget = absl::Microseconds(1'500'000),
                         .flags = 1,
                         .chain = 0x8070605040302010,
                         .stage_compute = {absl::Microseconds(1), absl::Microseconds(70'000)}});
  bundle.rows.push_back({.key = {{SessionId(9), Epoch(1)}, StepIndex(70'000)},
                         .position = 70'001,
                         .token_count = 1,
                         .hop = 2,
                         .budget = absl::Microseconds(-5),
                         .flags = 0});
  std::shared_ptr<Buffer> payload = Buffer::Allocate(4 * kHiddenDim * sizeof(float));
  for (size_t i = 0; i < payload->floats().size(); ++i) {
    payload->floats()[i] = static_cast<float>(i) * 0.5F - 3.0F;
  }
  bundle.payload = std::move(payload);
  return bundle;
}

std::string ToString(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

// `text` in slices of `slice_bytes`, as a socket might deliver it.
grpc::ByteBuffer ToByteBuffer(const std::string& text, size_t slice_bytes = 1 << 20) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < text.size(); begin += slice_bytes) {
    slices.emplace_back(text.substr(begin, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<LinkInput> Decode(const std::string& text) {
  return DecodeFrame(ToByteBuffer(text), kLimits);
}

v1::LinkFrame SomeFrame() {
  v1::LinkFrame frame;
  EXPECT_TRUE(frame.ParseFromString(ToString(EncodeBundle(SomeBundle()))));
  return frame;
}

// What the decoder says to a frame that was right until `spoil` touched it.
FailureKind KindAfter(const std::function<void(v1::Bundle*)>& spoil) {
  v1::LinkFrame frame = SomeFrame();
  spoil(frame.mutable_bundle());
  return FailureKindOf(Decode(frame.SerializeAsString()).status());
}

void ExpectSameBundle(const LinkBundle& got, const LinkBundle& want) {
  EXPECT_EQ(got.sequence, want.sequence);
  EXPECT_EQ(got.rows, want.rows);
  EXPECT_EQ(got.hidden_dim, want.hidden_dim);
  ASSERT_EQ(got.payload->size(), want.payload->size());
  EXPECT_EQ(std::memcmp(got.payload->data(), want.payload->data(), want.payload->size()), 0);
}

TEST(LinkCodec, TheGeneratedClassReadsABundleAndWritesTheSameBytes) {
  const std::string bytes = ToString(EncodeBundle(SomeBundle()));
  v1::LinkFrame frame;
  ASSERT_TRUE(frame.ParseFromString(bytes));
  const v1::BundleHeader& header = frame.bundle().header();
  EXPECT_EQ(header.sequence(), 300U);
  ASSERT_EQ(header.rows_size(), 2);
  EXPECT_EQ(header.rows(0).session(), 1ULL << 63);
  EXPECT_EQ(header.rows(1).position(), 70'001U);
  EXPECT_EQ(header.rows(1).budget_us(), -5);
  EXPECT_EQ(header.rows(0).chain(), 0x8070605040302010U);
  EXPECT_EQ(header.rows(1).chain(), 0U);
  EXPECT_EQ(header.token_count(), 4U);
  EXPECT_EQ(header.payload_xxh3(),
            XXH3_64bits(frame.bundle().payload().data(), frame.bundle().payload().size()));
  EXPECT_EQ(frame.SerializeAsString(), bytes);
}

TEST(LinkCodec, ABundleComesBackAsItWasHoweverTheSocketCutsIt) {
  const LinkBundle bundle = SomeBundle();
  const std::string bytes = ToString(EncodeBundle(bundle));
  for (size_t slice_bytes = 1; slice_bytes <= bytes.size(); ++slice_bytes) {
    const absl::StatusOr<LinkInput> input = DecodeFrame(ToByteBuffer(bytes, slice_bytes), kLimits);
    ASSERT_TRUE(input.ok()) << input.status();
    const auto& got = std::get<LinkBundle>(*input);
    ExpectSameBundle(got, bundle);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.payload->data()) % Buffer::kAlignment, 0U);
  }
}

TEST(LinkCodec, ThePayloadIsSharedNotCopiedUntilTheFrameIsGone) {
  LinkBundle bundle = SomeBundle();
  const BufferRef payload = bundle.payload;
  {
    const grpc::ByteBuffer frame = EncodeBundle(bundle);
    bundle.payload.reset();
    EXPECT_EQ(payload.use_count(), 2);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(frame.Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2U);
    EXPECT_EQ(static_cast<const void*>(slices[1].begin()), payload->data());
  }
  EXPECT_EQ(payload.use_count(), 1);
}

TEST(LinkCodec, HelloAndPingComeBackAsTheyWere) {
  v1::LinkHello hello;
  hello.mutable_protocol()->set_min(1);
  hello.mutable_protocol()->set_max(2);
  hello.set_node_id("node-a");
  hello.mutable_recipe()->set_model_id("sha256:1234");
  const absl::StatusOr<LinkInput> got_hello = DecodeFrame(EncodeHello(hello), kLimits);
  ASSERT_TRUE(got_hello.ok()) << got_hello.status();
  EXPECT_EQ(std::get<v1::LinkHello>(*got_hello).SerializeAsString(), hello.SerializeAsString());

  v1::LinkPing ping;
  ping.set_nonce(77);
  const absl::StatusOr<LinkInput> got_ping = DecodeFrame(EncodePing(ping), kLimits);
  ASSERT_TRUE(got_ping.ok()) << got_ping.status();
  EXPECT_EQ(std::get<v1::LinkPing>(*got_ping).nonce(), 77U);
}

TEST(LinkCodec, AnInspectionComesBackAsItWasUpToItsLimit) {
  v1::LinkInspect inspect;
  for (int i = 0; i < kInspectRowsMax; ++i) {
    v1::InspectRow* row = inspect.add_rows();
    row->set_session(~uint64_t{0} - static_cast<uint64_t>(i));
    row->set_epoch(~uint64_t{0});
  }
  const absl::StatusOr<LinkInput> got = DecodeFrame(EncodeInspect(inspect), kLimits);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::get<v1::LinkInspect>(*got).SerializeAsString(), inspect.SerializeAsString());
  v1::LinkFrame frame;
  *frame.mutable_inspect() = inspect;
  frame.mutable_inspect()->add_rows();
  EXPECT_EQ(FailureKindOf(Decode(frame.SerializeAsString()).status()),
            FailureKind::kMalformedBundle);
}

TEST(LinkCodec, ShapesThatLieAreRefused) {
  const FailureKind malformed = FailureKind::kMalformedBundle;
  // 0 tokens, in the header, in a row, in both.
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->set_token_count(0); }), malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->mutable_rows(0)->set_token_count(0); }),
            malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->clear_rows(); }), malformed);
  // 0 elements, and a length that is not the shape's product.
  EXPECT_EQ(KindAfter([](auto* b) { b->clear_payload(); }), malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_payload()->pop_back(); }), malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_payload()->append("four"); }), malformed);
  // No dimension, another one, and 2^32 x 2^32 as far as the fields allow.
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->set_hidden_dim(0); }), malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->set_hidden_dim(4); }), malformed);
  EXPECT_EQ(KindAfter([](auto* b) {
              b->mutable_header()->set_hidden_dim(0xFFFFFFFF);
              b->mutable_header()->set_token_count(0xFFFFFFFF);
            }),
            malformed);
  // A declared sum that overflows 32 bits back to the right one.
  EXPECT_EQ(KindAfter([](auto* b) {
              b->mutable_header()->mutable_rows(0)->set_token_count(0xFFFFFFFF);
              b->mutable_header()->mutable_rows(1)->set_token_count(5);
            }),
            malformed);
  EXPECT_EQ(KindAfter([](auto* b) {
              auto* header = b->mutable_header();
              header->mutable_rows(0)->set_token_count(0x7FFFFFFF);
              header->mutable_rows(1)->set_token_count(0x7FFFFFFF);
              *header->add_rows() = header->rows(0);
              header->mutable_rows(2)->set_token_count(6);
            }),
            malformed);
  // Unknown dtypes.
  for (const int dtype : {0, 2, 31, 32, -1}) {
    EXPECT_EQ(
        KindAfter([&](auto* b) { b->mutable_header()->set_dtype(static_cast<v1::DType>(dtype)); }),
        malformed)
        << dtype;
  }
  // Positions and hops that our integers cannot hold.
  EXPECT_EQ(
      KindAfter([](auto* b) { b->mutable_header()->mutable_rows(0)->set_position(1U << 31); }),
      malformed);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->mutable_rows(0)->set_hop(1U << 31); }),
            malformed);
}

TEST(LinkCodec, CountsBeyondTheLimitsAreRefused) {
  EXPECT_EQ(KindAfter([](auto* b) {
              for (int i = 0; i < 3; ++i) *b->mutable_header()->add_rows() = b->header().rows(1);
              b->mutable_header()->set_token_count(7);
              b->mutable_payload()->resize(7 * kHiddenDim * sizeof(float));
            }),
            FailureKind::kMalformedBundle);
  EXPECT_EQ(KindAfter([](auto* b) {
              b->mutable_header()->mutable_rows(0)->set_token_count(32);
              b->mutable_header()->set_token_count(33);
              b->mutable_payload()->resize(33 * kHiddenDim * sizeof(float));
            }),
            FailureKind::kMalformedBundle);
  LinkLimits small = kLimits;
  small.payload_bytes_max = 127;
  const absl::StatusOr<LinkInput> input =
      DecodeFrame(ToByteBuffer(SomeFrame().SerializeAsString()), small);
  EXPECT_EQ(FailureKindOf(input.status()), FailureKind::kMalformedBundle);
}

TEST(LinkCodec, APayloadThatChangedOnTheWayIsAChecksumMismatch) {
  EXPECT_EQ(KindAfter([](auto* b) { (*b->mutable_payload())[17] ^= 0x10; }),
            FailureKind::kChecksumMismatch);
  EXPECT_EQ(KindAfter([](auto* b) { b->mutable_header()->clear_payload_xxh3(); }),
            FailureKind::kChecksumMismatch);
}

TEST(LinkCodec, AMissingOrDoublePartIsRefused) {
  const v1::LinkFrame frame = SomeFrame();
  const auto kind_of_body = [](const std::string& body) {
    std::string text("\x12");
    for (size_t rest = body.size();; rest >>= 7) {
      text.push_back(static_cast<char>((rest & 0x7F) | (rest >= 0x80 ? 0x80 : 0)));
      if (rest < 0x80) break;
    }
    return FailureKindOf(Decode(text + body).status());
  };
  v1::Bundle header_only;
  *header_only.mutable_header() = frame.bundle().header();
  v1::Bundle payload_only;
  payload_only.set_payload(frame.bundle().payload());
  const std::string header = header_only.SerializeAsString();
  const std::string payload = payload_only.SerializeAsString();
  EXPECT_EQ(kind_of_body(header + payload), FailureKind::kNone);
  for (const std::string& body : {std::string(), header, payload, payload + header,
                                  header + header + payload, header + payload + payload}) {
    EXPECT_EQ(kind_of_body(body), FailureKind::kMalformedBundle) << body.size();
  }
}

TEST(LinkCodec, AFieldThatComesTwiceIsRefused) {
  v1::LinkFrame frame = SomeFrame();
  std::string header = frame.bundle().header().SerializeAsString();
  const std::string payload = frame.bundle().payload();
  // Appended by hand: token_count = 4 once more.
  header += std::string("\x20\x04", 2);
  std::string body = "\x0A";
  body.push_back(static_cast<char>(header.size()));
  ASSERT_LT(header.size(), 128U);
  body += header;
  body += std::string("\x12\x80\x01", 3) + payload;
  ASSERT_EQ(payload.size(), 128U);
  std::string text = "\x12";
  text.push_back(static_cast<char>((body.size() & 0x7F) | 0x80));
  text.push_back(static_cast<char>(body.size() >> 7));
  EXPECT_EQ(FailureKindOf(Decode(text + body).status()), FailureKind::kMalformedBundle);
}

TEST(LinkCodec, EveryTruncationIsRefused) {
  const std::string bytes = ToString(EncodeBundle(SomeBundle()));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::StatusOr<LinkInput> input = Decode(bytes.substr(0, size));
    EXPECT_EQ(FailureKindOf(input.status()), FailureKind::kMalformedBundle) << size;
  }
  EXPECT_EQ(FailureKindOf(Decode(bytes + '\0').status()), FailureKind::kMalformedBundle);
}

TEST(LinkCodec, NoFlippedBitChangesThePayloadUnnoticed) {
  const LinkBundle bundle = SomeBundle();
  const std::string bytes = ToString(EncodeBundle(bundle));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const absl::StatusOr<LinkInput> input = Decode(flipped);
    if (!input.ok()) {
      const FailureKind kind = FailureKindOf(input.status());
      EXPECT_TRUE(kind == FailureKind::kMalformedBundle || kind == FailureKind::kChecksumMismatch);
      continue;
    }
    // A flip in a row's key or budget cannot be seen here; the stage's fence and ledger judge it.
    const auto* got = std::get_if<LinkBundle>(&*input);
    if (got == nullptr) continue;
    ASSERT_EQ(got->payload->size(), bundle.payload->size()) << bit;
    EXPECT_EQ(std::memcmp(got->payload->data(), bundle.payload->data(), bundle.payload->size()), 0);
  }
}

TEST(LinkCodec, NumbersThatNeverEndAreRefused) {
  EXPECT_FALSE(Decode(std::string(64, '\xFF')).ok());
  EXPECT_FALSE(Decode("\x12" + std::string(9, '\xFF') + "\x7F").ok());
  EXPECT_FALSE(Decode(std::string("\x12\x02\x0A\x7F", 4)).ok());
  EXPECT_FALSE(Decode("GET / HTTP/1.1\r\n\r\n").ok());
}

}  // namespace
}  // namespace shardline
