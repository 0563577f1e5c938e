#include "proto/wire/capability.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;

std::string CountingBytes(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

CapabilityKey Key() { return *CapabilityKey::FromBytes(CountingBytes(kCapabilityBytes)); }

v1::OpenRequest Open() {
  v1::OpenRequest open;
  open.set_session(7);
  open.set_epoch(2);
  open.set_term(3);
  open.set_incarnation(4);
  open.mutable_recipe()->set_model_id("sha256:m");
  open.mutable_recipe()->set_numerics_id("n");
  open.mutable_recipe()->set_plan_epoch(5);
  open.set_stage_index(1);
  for (const char* node : {"a", "b"}) {
    v1::RouteStage& stage = *open.add_route();
    stage.set_node_id(node);
    stage.set_incarnation(4);
    stage.set_address("host:1");
    stage.mutable_layers()->set_begin(0);
    stage.mutable_layers()->set_end(9);
  }
  open.set_tokens_max(100);
  open.set_budget_ms(60'000);
  open.set_open_seq(11);
  open.add_prefix_keys("0123456789abcdef");
  open.add_prefix_keys("fedcba9876543210");
  open.set_prefix_root("rootrootrootroot");
  open.set_capability(OpenCapability(Key(), open));
  return open;
}

v1::FenceRequest Fence() {
  v1::FenceRequest fence;
  fence.set_session(7);
  fence.set_epoch(2);
  fence.set_term(3);
  fence.set_incarnation(4);
  fence.set_capability(FenceCapability(Key(), fence));
  return fence;
}

std::string Hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out.push_back(kDigits[(static_cast<unsigned char>(c) >> 4) & 15]);
    out.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

// The encoding is a promise between builds: these bytes come from another implementation
// (Python's hmac over the encoding written out by hand).
TEST(CapabilityTest, AFenceIsSignedWithHmacSha256OverItsFixedEncoding) {
  EXPECT_EQ(Hex(Fence().capability()),
            "7d73b8eaad361ae2b49255b8ce49f451cd96925afb128c71161e8a7576f38aad");
}

TEST(CapabilityTest, AnOpenIsSignedWithHmacSha256OverItsFixedEncoding) {
  EXPECT_EQ(Hex(Open().capability()),
            "6700165541c6f2bc40361ca36beac9f5808b6069372e44d47a493c7a6a16eae9");
}

TEST(CapabilityTest, WhatWasSignedIsTaken) {
  EXPECT_THAT(CheckCapability(Key(), Open()), IsOk());
  EXPECT_THAT(CheckCapability(Key(), Fence()), IsOk());
}

TEST(CapabilityTest, AChangeOfAnySignedFieldOfAnOpenIsNoticed) {
  const std::vector<std::function<void(v1::OpenRequest&)>> changes = {
      [](auto& open) { open.set_session(8); },
      [](auto& open) { open.set_epoch(3); },
      [](auto& open) { open.set_term(4); },
      [](auto& open) { open.set_incarnation(5); },
      [](auto& open) { open.mutable_recipe()->set_model_id("sha256:x"); },
      [](auto& open) { open.mutable_recipe()->set_numerics_id("x"); },
      [](auto& open) { open.mutable_recipe()->set_plan_epoch(6); },
      [](auto& open) { open.set_stage_index(0); },
      [](auto& open) { open.mutable_route(1)->set_node_id("c"); },
      [](auto& open) { open.mutable_route(1)->set_incarnation(9); },
      [](auto& open) { open.mutable_route(1)->set_address("host:2"); },
      [](auto& open) { open.mutable_route(1)->mutable_layers()->set_begin(1); },
      [](auto& open) { open.mutable_route(1)->mutable_layers()->set_end(8); },
      [](auto& open) { open.mutable_route()->RemoveLast(); },
      [](auto& open) { *open.add_route() = open.route(0); },
      [](auto& open) { open.set_tokens_max(101); },
      [](auto& open) { open.set_budget_ms(60'001); },
      [](auto& open) { open.mutable_prefix_keys(1)->front() ^= 1; },
      [](auto& open) { open.mutable_prefix_keys()->RemoveLast(); },
      [](auto& open) { open.mutable_prefix_keys()->SwapElements(0, 1); },
      [](auto& open) { open.add_prefix_keys("0123456789abcdef"); },
      [](auto& open) { open.clear_prefix_root(); },
      [](auto& open) { open.clear_capability(); },
      [](auto& open) { open.mutable_capability()->pop_back(); },
      [](auto& open) { open.mutable_capability()->push_back('x'); },
      [](auto& open) { open.mutable_capability()->front() ^= 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    v1::OpenRequest open = Open();
    changes[i](open);
    EXPECT_THAT(CheckCapability(Key(), open), FailsWith(FailureKind::kUnauthorised)) << i;
  }
}

// A field that somebody adds must be signed, or be named here.
TEST(CapabilityTest, EveryFieldOfTheSignedMessagesIsKnownHere) {
  EXPECT_EQ(v1::OpenRequest::descriptor()->field_count(), 13);
  EXPECT_EQ(v1::FenceRequest::descriptor()->field_count(), 6);
  EXPECT_EQ(v1::Recipe::descriptor()->field_count(), 3);
  EXPECT_EQ(v1::RouteStage::descriptor()->field_count(), 4);
}

TEST(CapabilityTest, AChangeOfAnySignedFieldOfAFenceIsNoticed) {
  const std::vector<std::function<void(v1::FenceRequest&)>> changes = {
      [](auto& fence) { fence.set_session(8); },     [](auto& fence) { fence.set_epoch(3); },
      [](auto& fence) { fence.set_term(4); },        [](auto& fence) { fence.set_incarnation(5); },
      [](auto& fence) { fence.clear_capability(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    v1::FenceRequest fence = Fence();
    changes[i](fence);
    EXPECT_THAT(CheckCapability(Key(), fence), FailsWith(FailureKind::kUnauthorised)) << i;
  }
  v1::FenceRequest reason = Fence();
  reason.set_reason_kind(3);  // Told to people, not obeyed.
  EXPECT_THAT(CheckCapability(Key(), reason), IsOk());
}

TEST(CapabilityTest, AnotherKeyAndAnotherKindOfMessageProveNothing) {
  const CapabilityKey other = *CapabilityKey::FromBytes(std::string(kCapabilityBytes, '\0'));
  EXPECT_THAT(CheckCapability(other, Open()), FailsWith(FailureKind::kUnauthorised));
  v1::FenceRequest fence = Fence();
  fence.set_capability(Open().capability());
  EXPECT_THAT(CheckCapability(Key(), fence), FailsWith(FailureKind::kUnauthorised));
}

// The length in front of a text keeps bytes from moving between neighbours.
TEST(CapabilityTest, BytesCannotMoveFromOneTextToTheNext) {
  v1::OpenRequest open = Open();
  open.mutable_recipe()->set_model_id("sha256:mn");
  open.mutable_recipe()->set_numerics_id("");
  EXPECT_THAT(CheckCapability(Key(), open), FailsWith(FailureKind::kUnauthorised));
}

TEST(CapabilityTest, AKeyHas32RandomBytes) {
  const absl::StatusOr<CapabilityKey> a = CapabilityKey::Make();
  const absl::StatusOr<CapabilityKey> b = CapabilityKey::Make();
  ASSERT_THAT(a.status(), IsOk());
  ASSERT_THAT(b.status(), IsOk());
  EXPECT_FALSE(*a == *b);
  EXPECT_EQ(*CapabilityKey::FromBytes(a->ToBytes()), *a);
  for (const size_t size : {size_t{0}, size_t{31}, size_t{33}}) {
    EXPECT_THAT(CapabilityKey::FromBytes(std::string(size, 'k')).status(),
                FailsWith(FailureKind::kUnauthorised));
  }
}

}  // namespace
}  // namespace shardline
