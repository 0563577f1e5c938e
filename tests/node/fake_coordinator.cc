#include "tests/node/fake_coordinator.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"

namespace shardline::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

const CapabilityKey& FakeCoordinator::key() {
  static const auto* const key = new CapabilityKey(CapabilityKey::Make().value());
  return *key;
}

FakeCoordinator::FakeCoordinator() {
  StartServer();
  address_ = "127.0.0.1:" + std::to_string(port_);
}

FakeCoordinator::~FakeCoordinator() {
  server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
  server_->Wait();
}

void FakeCoordinator::StartServer() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeCoordinator::Restart() {
  server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
  server_->Wait();
  {
    absl::MutexLock lock(&mu_);
    members_.clear();
  }
  StartServer();
}

void FakeCoordinator::SetTerm(uint64_t term) {
  absl::MutexLock lock(&mu_);
  term_ = term;
}

void FakeCoordinator::RefuseOnce(const std::string& node_id, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  refusals_[node_id] = status;
}

JoinedNode FakeCoordinator::Await(const std::string& node_id, v1::ShardState state) {
  absl::MutexLock lock(&mu_);
  auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = members_.find(node_id);
    return it != members_.end() && it->second.node.report.state() == state;
  };
  const bool came = mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  EXPECT_TRUE(came) << node_id << ": " << members_[node_id].node.report.ShortDebugString();
  return members_[node_id].node;
}

JoinedNode FakeCoordinator::AwaitPlan(const std::string& node_id, uint64_t plan_epoch,
                                      v1::ShardState state) {
  absl::MutexLock lock(&mu_);
  const v1::ShardReport& report = members_[node_id].node.report;
  auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return report.state() == state && report.plan_epoch() == plan_epoch;
  };
  const bool came = mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  EXPECT_TRUE(came) << node_id << ": " << report.ShortDebugString();
  return members_[node_id].node;
}

JoinedNode FakeCoordinator::LoseAndWelcomeBack(const std::string& node_id) {
  absl::MutexLock lock(&mu_);
  Member& member = members_[node_id];
  const uint64_t old = member.node.incarnation;
  member.lost = true;
  member.context->TryCancel();
  auto back = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return member.node.incarnation != old && member.beats;
  };
  EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&back), kPatience)) << node_id;
  return member.node;
}

void FakeCoordinator::AwaitBeat(const std::string& node_id) {
  absl::MutexLock lock(&mu_);
  auto beats = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = members_.find(node_id);
    return it != members_.end() && it->second.beats;
  };
  EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&beats), kPatience)) << node_id;
}

void FakeCoordinator::AwaitAllPagesFree(const std::string& node_id) {
  absl::MutexLock lock(&mu_);
  Member& member = members_[node_id];
  auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const v1::Heartbeat& beat = member.node.beat;
    return beat.kv_pages_total() > 0 && beat.kv_pages_free() == beat.kv_pages_total() &&
           beat.attempts_open() == 0;
  };
  EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&free), kPatience))
      << node_id << ": " << member.node.beat.ShortDebugString();
}

void FakeCoordinator::Order(const std::string& node_id, const v1::CoordinatorMessage& order) {
  absl::MutexLock lock(&mu_);
  // Forgotten, so that Await sees only what comes after the order.
  members_[node_id].node.report.set_state(v1::SHARD_STATE_LOADING);
  members_[node_id].stream->Write(order);
}

grpc::Status FakeCoordinator::Join(grpc::ServerContext* context, JoinStream* stream) {
  v1::NodeMessage message;
  if (!stream->Read(&message) || !message.has_hello()) return grpc::Status::OK;
  const std::string node_id = message.hello().node_id();
  {
    absl::MutexLock lock(&mu_);
    if (const auto refused = refusals_.find(node_id); refused != refusals_.end()) {
      v1::CoordinatorMessage refusal;
      *refusal.mutable_refusal() = ToProto(refused->second);
      refusals_.erase(refused);
      stream->Write(refusal);
      return grpc::Status::OK;
    }
    Member& member = members_[node_id];
    member.stream = stream;
    member.context = context;
    member.node.hello = message.hello();
    member.node.incarnation = message.hello().incarnation();
    if (member.node.incarnation == 0 || member.lost) {
      member.node.incarnation = incarnation_next_++;
    }
    member.lost = false;
    member.beats = false;
    member.node.beat.Clear();
    member.node.report = message.hello().shard();
    v1::CoordinatorMessage welcome;
    welcome.mutable_welcome()->set_incarnation(member.node.incarnation);
    welcome.mutable_welcome()->set_term(term_);
    welcome.mutable_welcome()->set_heartbeat_ms(20);
    welcome.mutable_welcome()->set_lease_ms(60'000);
    welcome.mutable_welcome()->set_capability_key(key().ToBytes());
    stream->Write(welcome);
  }
  while (stream->Read(&message)) {
    absl::MutexLock lock(&mu_);
    // What an older stream still brings is not news.
    if (members_[node_id].stream == stream) Hear(message, members_[node_id]);
  }
  return grpc::Status::OK;
}

void FakeCoordinator::Hear(const v1::NodeMessage& message, Member& member) {
  if (message.has_shard()) member.node.report = message.shard();
  if (!message.has_heartbeat()) return;
  member.node.beat = message.heartbeat();
  member.beats = true;
  v1::CoordinatorMessage reply;
  reply.mutable_heartbeat()->set_number(message.heartbeat().number());
  member.stream->Write(reply);
}

}  // namespace shardline::testing
