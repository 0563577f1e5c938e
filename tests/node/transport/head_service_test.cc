#include "node/transport/head_service.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/failure.h"
#include "base/mailbox.h"
#include "node/transport/node_server.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/head.grpc.pb.h"

namespace shardline {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

class HeadServiceTest : public testing::Test {
 protected:
  struct Run {
    RunRequest request;
    std::shared_ptr<RunStream> stream;
  };

  HeadServiceTest() {
    HeadEvents events;
    events.on_run = [this](RunRequest request, std::shared_ptr<RunStream> stream) {
      EXPECT_TRUE(runs_.TryPost(Run{std::move(request), std::move(stream)}));
    };
    events.on_run_closed = [this](AttemptKey key, std::shared_ptr<RunStream>) {
      EXPECT_TRUE(closed_.TryPost(key));
    };
    events.gate = &gate_;
    server_ = NodeServer::Start("127.0.0.1:0", {}, std::move(events), {}, {}).value();
    stub_ = v1::Head::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    request_.set_session(7);
    request_.set_epoch(2);
    request_.set_new_tokens_max(4);
    request_.add_prompt_tokens(11);
    request_.set_budget_ms(5000);
  }

  Mailbox<Run> runs_{16};
  Mailbox<AttemptKey> closed_{16};
  RunGate gate_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<v1::Head::Stub> stub_;
  v1::RunAttemptRequest request_;
};

constexpr AttemptKey kKey = {SessionId(7), Epoch(2)};

TEST_F(HeadServiceTest, TokensComeInOrderAndTheEndComesLast) {
  request_.mutable_sampling()->set_seed(3);
  (*request_.mutable_sampling()->mutable_logit_bias())[9] = -1.0F;
  (*request_.mutable_sampling()->mutable_logit_bias())[2] = 1.0F;
  grpc::ClientContext context;
  const auto reader = stub_->RunAttempt(&context, request_);
  const std::optional<Run> run = runs_.Take(kPatience);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->request.run.key, kKey);
  EXPECT_EQ(run->request.run.budget, absl::Seconds(5));
  EXPECT_EQ(run->request.run.sampling.top_p, 1.0F);
  ASSERT_EQ(run->request.run.sampling.logit_bias.size(), 2U);
  EXPECT_EQ(run->request.run.sampling.logit_bias[0].first, 2);

  for (uint32_t index = 0; index < 3; ++index) {
    run->stream->SendToken(
        {.key = kKey, .index = index, .token = {.token = static_cast<int32_t>(100 + index)}});
  }
  run->stream->End({.key = kKey, .reason = FinishReason::kLength, .tokens = 3});
  run->stream->SendToken({.key = kKey, .index = 3});

  v1::RunAttemptEvent event;
  for (uint32_t index = 0; index < 3; ++index) {
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.token().index(), index);
    EXPECT_EQ(event.token().token(), static_cast<int32_t>(100 + index));
  }
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.end().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(event.end().tokens(), 3U);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(closed_.Take(kPatience), std::optional<AttemptKey>(kKey));
}

TEST_F(HeadServiceTest, AFailureIsTheStatusOfTheCall) {
  grpc::ClientContext context;
  const auto reader = stub_->RunAttempt(&context, request_);
  const std::optional<Run> run = runs_.Take(kPatience);
  ASSERT_TRUE(run.has_value());
  const absl::Status why = MakeFailure(
      {.kind = FailureKind::kHeartbeatLost, .node = NodeId("c"), .layers = LayerRange{8, 12}},
      "no answer");
  run->stream->End({.key = kKey, .status = why});
  v1::RunAttemptEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(FromGrpcStatus(reader->Finish()), why);
}

TEST_F(HeadServiceTest, ACallerThatHangsUpIsReportedOnce) {
  grpc::ClientContext context;
  const auto reader = stub_->RunAttempt(&context, request_);
  const std::optional<Run> run = runs_.Take(kPatience);
  ASSERT_TRUE(run.has_value());
  context.TryCancel();
  EXPECT_EQ(closed_.Take(kPatience), std::optional<AttemptKey>(kKey));
  run->stream->SendToken({.key = kKey});
  run->stream->End({.key = kKey, .reason = FinishReason::kLength});
  EXPECT_EQ(closed_.size(), 0U);
}

TEST_F(HeadServiceTest, AShutGateRefusesNewRunsAndWaitsForThoseInside) {
  grpc::ClientContext inside;
  const auto running = stub_->RunAttempt(&inside, request_);
  const std::optional<Run> run = runs_.Take(kPatience);
  ASSERT_TRUE(run.has_value());
  gate_.Shut();
  grpc::ClientContext late;
  const auto refused = stub_->RunAttempt(&late, request_);
  v1::RunAttemptEvent event;
  EXPECT_FALSE(refused->Read(&event));
  const absl::Status status = FromGrpcStatus(refused->Finish());
  EXPECT_EQ(FailureKindOf(status), FailureKind::kOverloaded);
  EXPECT_GT(FailureDetailOf(status).retry_after, absl::ZeroDuration());
  EXPECT_EQ(runs_.size(), 0U);
  EXPECT_FALSE(gate_.AwaitEmpty(absl::ZeroDuration()));

  run->stream->End({.key = kKey, .reason = FinishReason::kLength});
  while (running->Read(&event)) {
  }
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_TRUE(gate_.AwaitEmpty(kPatience));
}

TEST_F(HeadServiceTest, AStreamThatNobodyReadsEndsInsteadOfGrowing) {
  grpc::ClientContext context;
  const auto reader = stub_->RunAttempt(&context, request_);
  const std::optional<Run> run = runs_.Take(kPatience);
  ASSERT_TRUE(run.has_value());
  // Far more than socket buffers and the queue can hold.
  TokenOut token = {.key = kKey};
  token.token.top_logprobs.resize(20);
  for (uint32_t index = 0; index < 200'000 && closed_.size() == 0; ++index) {
    token.index = index;
    run->stream->SendToken(token);
  }
  v1::RunAttemptEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(FailureKindOf(FromGrpcStatus(reader->Finish())), FailureKind::kOverloaded);
}

TEST_F(HeadServiceTest, ARequestThatCannotBeIsRefusedByName) {
  request_.set_new_tokens_max(0xFFFFFFFF);
  grpc::ClientContext context;
  const auto reader = stub_->RunAttempt(&context, request_);
  v1::RunAttemptEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(FailureKindOf(status), FailureKind::kInvalidRequest);
  EXPECT_NE(status.message().find("new_tokens_max"), absl::string_view::npos);
  EXPECT_EQ(runs_.size(), 0U);
}

}  // namespace
}  // namespace shardline
