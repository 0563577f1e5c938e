#include "proto/wire/grpc_deadline.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace shardline {
namespace {

TEST(GrpcDeadline, IsOnTheMonotonicClock) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = GrpcDeadline(absl::Hours(1));
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
  const gpr_timespec hour = gpr_time_from_seconds(3600, GPR_TIMESPAN);
  EXPECT_GE(gpr_time_cmp(deadline, gpr_time_add(before, hour)), 0);
  EXPECT_LE(gpr_time_cmp(deadline, gpr_time_add(after, hour)), 0);
}

TEST(GrpcDeadline, AnInfiniteBudgetNeverEnds) {
  EXPECT_EQ(
      gpr_time_cmp(GrpcDeadline(absl::InfiniteDuration()), gpr_inf_future(GPR_CLOCK_MONOTONIC)), 0);
}

TEST(GrpcDeadline, ASpentBudgetHasPassed) {
  for (const absl::Duration spent : {absl::ZeroDuration(), -absl::Seconds(3)}) {
    const gpr_timespec deadline = GrpcDeadline(spent);
    EXPECT_LE(gpr_time_cmp(deadline, gpr_now(GPR_CLOCK_MONOTONIC)), 0);
  }
}

// A service that lets every call wait until it is cancelled.
class SilentService final : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor;
  }
};

TEST(GrpcDeadline, EndsACallAndAServerThatWouldNotEndThemselves) {
  SilentService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  grpc::GenericStub stub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  const auto call_within = [&stub](absl::Duration budget, grpc::CompletionQueue* queue,
                                   grpc::ClientContext* context, grpc::ByteBuffer* reply,
                                   grpc::Status* status) {
    context->set_deadline(GrpcDeadline(budget));
    auto call = stub.PrepareUnaryCall(context, "/silent/Call", grpc::ByteBuffer(), queue);
    call->StartCall();
    call->Finish(reply, status, nullptr);
    return call;
  };
  void* tag = nullptr;
  bool ok = false;
  grpc::ByteBuffer reply;
  {
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    grpc::Status status;
    const auto call = call_within(absl::Milliseconds(20), &queue, &context, &reply, &status);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Status status;
  const auto call = call_within(absl::InfiniteDuration(), &queue, &context, &reply, &status);
  server->Shutdown(GrpcDeadline(absl::Milliseconds(20)));
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace shardline
