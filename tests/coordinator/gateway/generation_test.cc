#include "coordinator/gateway/generation.h"

#include "base/failure.h"
#include "coordinator/gateway/api_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/generation_rig.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using testing::EndOf;
using testing::GenerationRig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SpecOf;
using testing::Started;
using testing::Token;

const Instant kArrived = testing::SetClock().now;

absl::Status NodeLost() {
  return MakeFailure({.kind = FailureKind::kWorkerDeath, .node = NodeId("node-b")}, "node-b died");
}

GenerationRig Rig(size_t choices, bool stream) {
  return GenerationRig(SpecOf(choices, stream, kArrived));
}

TEST(Generation, AFailureBeforeTheFirstTokenHasAStatusOfItsOwn) {
  GenerationRig rig = Rig(1, /*stream=*/true);
  rig.Send(Started());
  EXPECT_EQ(rig.exchange->status(), 0);
  rig.generation->OnEnd(0, NodeLost());
  EXPECT_EQ(rig.exchange->status(), 503);
  EXPECT_TRUE(rig.exchange->ended() && !rig.exchange->aborted());
  EXPECT_THAT(rig.exchange->body(), HasSubstr("shard_unavailable"));
  ASSERT_EQ(rig.host.ends.size(), 1u);
  EXPECT_EQ(rig.host.ends[0].record.status, 503);
}

TEST(Generation, TheStateOfTheModelExplainsAFailureBeforeTheFirstToken) {
  GenerationRig rig = Rig(1, /*stream=*/false);
  rig.host.explanation = NotServing("model_loading", "loading", absl::Seconds(2));
  rig.generation->OnEnd(0, MakeFailure(FailureKind::kOverloaded, "tiny is loading"));
  EXPECT_THAT(rig.host.explained, ElementsAre("tiny"));
  EXPECT_EQ(rig.exchange->status(), 503);
  EXPECT_THAT(rig.exchange->body(), HasSubstr("model_loading"));
}

TEST(Generation, WhatTheClientDidWrongIsNotExplainedByTheModel) {
  GenerationRig rig = Rig(1, /*stream=*/false);
  rig.generation->OnEnd(0, MakeFailure(FailureKind::kInvalidRequest, "no such token"));
  EXPECT_THAT(rig.host.explained, IsEmpty());
  EXPECT_EQ(rig.exchange->status(), 400);
}

TEST(Generation, AFailureAfterTheFirstTokenIsAnErrorEventAndAnAbnormalEnd) {
  GenerationRig rig = Rig(1, /*stream=*/true);
  rig.Send(Started());
  rig.Send(Token(0, "H"));
  EXPECT_EQ(rig.exchange->status(), 200);
  rig.generation->OnEnd(0, NodeLost());
  EXPECT_TRUE(rig.exchange->aborted());
  EXPECT_THAT(rig.exchange->body(), HasSubstr("\"error\":{"));
  EXPECT_THAT(rig.exchange->body(), Not(HasSubstr("[DONE]")));
}

TEST(Generation, AWholeAnswerWaitsForItsRecord) {
  GenerationRig rig = Rig(1, /*stream=*/false);
  rig.Send(Started());
  rig.Send(Token(0, "H"));
  rig.Send(EndOf(1));
  EXPECT_EQ(rig.exchange->status(), 0);
  rig.generation->OnEnd(0, absl::OkStatus());
  EXPECT_EQ(rig.exchange->status(), 200);
  EXPECT_EQ(rig.exchange->Header("x-shardline-nodes"), "node-a,node-b");
  EXPECT_EQ(rig.exchange->Header("x-shardline-plan"), "7");
  EXPECT_EQ(rig.exchange->Header("x-shardline-session"), "42");
  const ApiResult<Json> body = ParseJson(rig.exchange->body());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ((*body)["choices"][0]["message"]["content"], "H");
  EXPECT_EQ((*body)["choices"][0]["finish_reason"], "stop");
}

TEST(Generation, AStreamEndsInOrderOnceEveryChoiceHas) {
  GenerationRig rig = Rig(2, /*stream=*/true);
  for (const size_t choice : {0u, 1u}) {
    rig.Send(Started(testing::kSession + choice), choice);
    rig.Send(Token(0, "H"), choice);
  }
  rig.Send(EndOf(1), 0);
  rig.generation->OnEnd(0, absl::OkStatus());
  EXPECT_FALSE(rig.exchange->ended());
  rig.Send(EndOf(1), 1);
  rig.generation->OnEnd(1, absl::OkStatus());
  EXPECT_TRUE(rig.exchange->ended() && !rig.exchange->aborted());
  EXPECT_THAT(rig.exchange->body(), ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(rig.host.cancelled, IsEmpty());
}

TEST(Generation, ASuccessWithoutAnEndIsAFailure) {
  GenerationRig rig = Rig(1, /*stream=*/true);
  rig.Send(Started());
  rig.Send(Token(0, "H"));
  rig.generation->OnEnd(0, absl::OkStatus());
  EXPECT_TRUE(rig.exchange->aborted());
}

TEST(Generation, OneChoiceThatFailsEndsAll) {
  GenerationRig rig = Rig(3, /*stream=*/true);
  rig.Send(Started(), 0);
  rig.Send(Token(0, "H"), 0);
  rig.generation->OnEnd(1, NodeLost());
  EXPECT_TRUE(rig.exchange->aborted());
  EXPECT_THAT(rig.host.cancelled, ElementsAre(100, 102));
  EXPECT_FALSE(rig.generation->OnEvent(2, Token(0, "x")));
  EXPECT_EQ(rig.host.ends.size(), 1u);
}

TEST(Generation, AClientThatHangsUpCancelsEveryCallAtOnce) {
  for (const GenerationPhase phase :
       {GenerationPhase::kQueue, GenerationPhase::kPrefill, GenerationPhase::kDecode}) {
    for (const bool stream : {false, true}) {
      GenerationRig rig = Rig(2, stream);
      if (phase != GenerationPhase::kQueue) rig.Send(Started());
      if (phase == GenerationPhase::kDecode) rig.Send(Token(0, "H"));
      rig.generation->OnGone();
      EXPECT_THAT(rig.host.cancelled, ElementsAre(100, 101));
      EXPECT_FALSE(rig.generation->OnEvent(0, Token(1, "i")));
      ASSERT_EQ(rig.host.ends.size(), 1u);
      EXPECT_TRUE(rig.host.ends[0].left);
      EXPECT_EQ(rig.host.ends[0].phase, phase);
      rig.generation->OnEnd(0, MakeFailure(FailureKind::kCancelled, "the client hung up"));
      EXPECT_EQ(rig.host.ends.size(), 1u);
    }
  }
}

TEST(Generation, AClientWithAKeyIsWaitedForAndThenGivenUp) {
  GenerationSpec spec = SpecOf(1, /*stream=*/true, kArrived);
  spec.return_grace = absl::Seconds(5);
  GenerationRig rig(std::move(spec));
  rig.Send(Started());
  rig.generation->OnGone();
  EXPECT_THAT(rig.host.cancelled, IsEmpty());
  rig.Send(Token(0, "H"));  // The session goes on.
  rig.Tick(absl::Seconds(4));
  EXPECT_THAT(rig.host.cancelled, IsEmpty());
  rig.Tick(absl::Seconds(1));
  EXPECT_THAT(rig.host.cancelled, ElementsAre(100));
  ASSERT_EQ(rig.host.ends.size(), 1u);
  EXPECT_TRUE(rig.host.ends[0].left);
}

TEST(Generation, AReaderThatDoesNotKeepUpIsLetGo) {
  GenerationRig rig = Rig(1, /*stream=*/true);
  rig.Send(Started());
  rig.Send(Token(0, "H"));
  rig.exchange->StopReading();
  rig.Send(Token(1, "i"));
  EXPECT_TRUE(rig.exchange->aborted());
  EXPECT_THAT(rig.host.cancelled, ElementsAre(100));
  ASSERT_EQ(rig.host.ends.size(), 1u);
  EXPECT_TRUE(rig.host.ends[0].stalled);
}

TEST(Generation, ASilentStreamIsKeptByCommentsAndAWholeAnswerIsNot) {
  GenerationSpec spec = SpecOf(1, /*stream=*/true, kArrived);
  spec.ping_interval = absl::Seconds(10);
  GenerationRig rig(std::move(spec));
  rig.Tick(absl::Seconds(9));
  EXPECT_EQ(rig.exchange->status(), 0);
  rig.Tick(absl::Seconds(1));
  EXPECT_EQ(rig.exchange->body(), ": ping\n\n");
  rig.Tick(absl::Seconds(9));
  EXPECT_EQ(rig.exchange->body(), ": ping\n\n");
  rig.generation->OnEnd(0, NodeLost());
  EXPECT_TRUE(rig.exchange->aborted());

  spec = SpecOf(1, /*stream=*/false, kArrived);
  spec.ping_interval = absl::Seconds(10);
  GenerationRig whole(std::move(spec));
  whole.Tick(absl::Seconds(60));
  EXPECT_EQ(whole.exchange->status(), 0);
}

TEST(Generation, AResumedStreamGoesOnBehindWhatTheClientHas) {
  GenerationSpec spec = SpecOf(1, /*stream=*/true, kArrived);
  spec.tell_places = true;
  GenerationRig first(spec);
  spec.resume_behind = StreamPlace{.session = testing::kSession, .tokens = 2};
  GenerationRig second(spec);
  const std::vector<v1::GenerateEvent> events = {Started(), Token(0, "a"), Token(1, "b"),
                                                 Token(2, "c"), EndOf(3)};
  for (GenerationRig* rig : {&first, &second}) {
    for (const v1::GenerateEvent& event : events) rig->Send(event);
    rig->generation->OnEnd(0, absl::OkStatus());
    EXPECT_TRUE(rig->exchange->ended() && !rig->exchange->aborted());
  }
  const std::string whole = first.exchange->body();
  const size_t had = whole.find("id: 42.3");
  ASSERT_NE(had, whole.npos);
  EXPECT_EQ(second.exchange->body(), whole.substr(had));
  EXPECT_TRUE(second.host.ends[0].resumed);
}

TEST(Generation, APlaceInAnotherSessionIsRefused) {
  GenerationSpec spec = SpecOf(1, /*stream=*/true, kArrived);
  spec.resume_behind = StreamPlace{.session = testing::kSession + 1, .tokens = 2};
  GenerationRig rig(std::move(spec));
  EXPECT_TRUE(rig.generation->OnEvent(0, Started()));
  EXPECT_EQ(rig.exchange->status(), 400);
  EXPECT_THAT(rig.exchange->body(), HasSubstr("Last-Event-ID"));
  EXPECT_THAT(rig.host.cancelled, ElementsAre(100));
}

TEST(Generation, ItsRecordTellsWhereTheTimeWent) {
  GenerationRig rig = Rig(1, /*stream=*/false);
  rig.clock.now = kArrived + absl::Milliseconds(5);
  rig.Send(Started());
  rig.clock.now = kArrived + absl::Milliseconds(25);
  rig.Send(Token(0, "H"));
  v1::GenerateEvent end = EndOf(1);
  end.mutable_end()->set_cached_tokens(1);
  end.mutable_end()->mutable_timings()->add_stage_us(300);
  end.mutable_end()->mutable_timings()->add_stage_us(400);
  end.mutable_end()->mutable_timings()->add_stage_us(500);  // Of a stage that nobody knows.
  rig.Send(end);
  rig.clock.now = kArrived + absl::Milliseconds(30);
  rig.generation->OnEnd(0, absl::OkStatus());
  ASSERT_EQ(rig.host.ends.size(), 1u);
  const RequestRecord& record = rig.host.ends[0].record;
  EXPECT_EQ(record.queued, absl::Milliseconds(5));
  EXPECT_EQ(record.ttft, absl::Milliseconds(25));
  EXPECT_EQ(record.total, absl::Milliseconds(30));
  EXPECT_EQ(record.session, SessionId(testing::kSession));
  EXPECT_EQ(record.reason, "stop");
  EXPECT_EQ(record.cached_tokens, 1u);
  ASSERT_EQ(record.stages.size(), 2u);
  EXPECT_EQ(record.stages[1].compute, absl::Microseconds(400));
}

}  // namespace
}  // namespace shardline
