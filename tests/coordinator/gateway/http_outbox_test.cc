#include "coordinator/gateway/http_outbox.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using End = HttpOutbox::End;

class HttpOutboxTest : public ::testing::Test {
 protected:
  std::shared_ptr<HttpOutbox> Open(HttpOutbox::Options options = {}) {
    options.counters = counters_;
    if (options.stream_bytes_max == 0) options.stream_bytes_max = 1000;
    options.wake = [this] { ++wake_count_; };
    return std::make_shared<HttpOutbox>(std::move(options));
  }

  const std::shared_ptr<HttpCounters> counters_ = std::make_shared<HttpCounters>();
  int wake_count_ = 0;
};

TEST_F(HttpOutboxTest, AnAnswerIsOneBatchWithItsLength) {
  const auto outbox = Open();
  outbox->Answer({.status = 404, .headers = {{"x-a", "b"}}, .body = "gone"});
  const HttpOutbox::Batch batch = outbox->Take();
  EXPECT_THAT(batch.bytes, StartsWith("HTTP/1.1 404 Not Found\r\nx-a: b\r\ndate: "));
  EXPECT_THAT(batch.bytes, EndsWith("GMT\r\ncontent-length: 4\r\n\r\ngone"));
  EXPECT_EQ(batch.end, End::kKeep);
}

TEST_F(HttpOutboxTest, EveryPieceIsAChunkOfItsOwn) {
  const auto outbox = Open();
  outbox->Begin({.body = "one"});
  EXPECT_THAT(outbox->Take().bytes, EndsWith("transfer-encoding: chunked\r\n\r\n3\r\none\r\n"));
  EXPECT_TRUE(outbox->Write("two"));
  EXPECT_TRUE(outbox->Write(std::string(17, 'x')));
  EXPECT_EQ(outbox->Take().bytes, "3\r\ntwo\r\n11\r\n" + std::string(17, 'x') + "\r\n");
  outbox->Finish();
  const HttpOutbox::Batch last = outbox->Take();
  EXPECT_EQ(last.bytes, "0\r\n\r\n");
  EXPECT_EQ(last.end, End::kKeep);
}

TEST_F(HttpOutboxTest, AnEmptyPieceDoesNotEndTheStream) {
  const auto outbox = Open();
  outbox->Begin({});
  (void)outbox->Take();
  EXPECT_TRUE(outbox->Write(""));
  EXPECT_EQ(outbox->Take().bytes, "");
  EXPECT_TRUE(outbox->Write("x"));
}

TEST_F(HttpOutboxTest, AnAbortedStreamHasNoLastChunk) {
  const auto outbox = Open();
  outbox->Begin({.body = "one"});
  outbox->Abort();
  outbox->Finish();
  const HttpOutbox::Batch batch = outbox->Take();
  EXPECT_THAT(batch.bytes, EndsWith("3\r\none\r\n"));
  EXPECT_EQ(batch.end, End::kCut);
}

TEST_F(HttpOutboxTest, WhatIsLetGoIsCut) {
  const auto unanswered = Open();
  unanswered->LetGo();
  EXPECT_EQ(unanswered->Take().bytes, "");
  EXPECT_EQ(unanswered->Take().end, End::kCut);
  const auto streaming = Open();
  streaming->Begin({});
  streaming->LetGo();
  EXPECT_EQ(streaming->Take().end, End::kCut);
  EXPECT_EQ(counters_->streams, 0U);
}

TEST_F(HttpOutboxTest, UnsentBytesAreBoundedAndAHoleIsNeverCalledWhole) {
  const auto outbox = Open({.stream_bytes_max = 100});
  outbox->Begin({});
  outbox->Sent(outbox->Take().bytes.size());
  EXPECT_TRUE(outbox->Write(std::string(80, 'x')));
  EXPECT_FALSE(outbox->Write(std::string(80, 'y')));
  outbox->Sent(outbox->Take().bytes.size());
  EXPECT_FALSE(outbox->Write("z")) << "after a piece that is missing";
  outbox->Finish();
  const HttpOutbox::Batch batch = outbox->Take();
  EXPECT_EQ(batch.bytes, "");
  EXPECT_EQ(batch.end, End::kCut);
}

TEST_F(HttpOutboxTest, WhatWasTakenAndNotSentCounts) {
  const auto outbox = Open({.stream_bytes_max = 100});
  outbox->Begin({});
  outbox->Sent(outbox->Take().bytes.size());
  EXPECT_TRUE(outbox->Write(std::string(80, 'x')));
  const size_t taken = outbox->Take().bytes.size();
  outbox->Sent(taken - 40);
  EXPECT_EQ(outbox->bytes(), 40U);
  EXPECT_TRUE(outbox->Write(std::string(50, 'y')));
  EXPECT_FALSE(outbox->Write(std::string(30, 'z')));
}

TEST_F(HttpOutboxTest, APieceLargerThanTheBoundGoesAlone) {
  const auto outbox = Open({.stream_bytes_max = 100});
  outbox->Begin({});
  outbox->Sent(outbox->Take().bytes.size());
  EXPECT_TRUE(outbox->Write(std::string(500, 'x')));
}

TEST_F(HttpOutboxTest, OneWakeUpCoversWhatCameBeforeTheTake) {
  const auto outbox = Open();
  outbox->Begin({});
  EXPECT_TRUE(outbox->Write("a"));
  EXPECT_TRUE(outbox->Write("b"));
  EXPECT_EQ(wake_count_, 1);
  (void)outbox->Take();
  EXPECT_TRUE(outbox->Write("c"));
  EXPECT_EQ(wake_count_, 2);
}

TEST_F(HttpOutboxTest, GoneIsToldOnceAndNotAfterTheEnd) {
  int gone_count = 0;
  const auto outbox = Open();
  outbox->OnGone([&] { ++gone_count; });
  outbox->Gone();
  outbox->Gone();
  EXPECT_EQ(gone_count, 1);
  outbox->OnGone([&] { ++gone_count; });
  EXPECT_EQ(gone_count, 2) << "who asks late is told at once";
  EXPECT_FALSE(outbox->Write("x"));

  const auto answered = Open();
  answered->OnGone([&] { ++gone_count; });
  answered->Answer({});
  answered->Gone();
  EXPECT_EQ(gone_count, 2);
  EXPECT_EQ(counters_->gone, 1U);
}

TEST_F(HttpOutboxTest, WhoAnswersMayHoldItselfInItsGone) {
  const auto outbox = Open();
  const auto held = std::make_shared<int>(1);
  outbox->OnGone([outbox, held] {});
  EXPECT_EQ(held.use_count(), 2);
  outbox->Answer({});
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(HttpOutboxTest, OnlyTheFirstAnswerCounts) {
  const auto outbox = Open();
  outbox->Answer({.body = "first"});
  outbox->Answer({.body = "second"});
  outbox->Begin({.body = "third"});
  EXPECT_FALSE(outbox->Write("fourth"));
  EXPECT_THAT(outbox->Take().bytes, EndsWith("first"));
  EXPECT_EQ(outbox->Take().bytes, "");
}

TEST_F(HttpOutboxTest, HeadIsToldTheLengthAndGetsNoBody) {
  const auto whole = Open({.is_head = true});
  whole->Answer({.body = "body"});
  EXPECT_THAT(whole->Take().bytes, EndsWith("content-length: 4\r\n\r\n"));
  const auto stream = Open({.is_head = true});
  stream->Begin({.body = "one"});
  EXPECT_TRUE(stream->Write("two"));
  stream->Finish();
  const HttpOutbox::Batch batch = stream->Take();
  EXPECT_THAT(batch.bytes, EndsWith("transfer-encoding: chunked\r\n\r\n"));
  EXPECT_EQ(batch.end, End::kKeep);
}

TEST_F(HttpOutboxTest, NoContentHasNeitherBodyNorLength) {
  const auto outbox = Open();
  outbox->Answer({.status = 204, .body = "dropped"});
  EXPECT_THAT(outbox->Take().bytes, Not(HasSubstr("content-length")));
  EXPECT_THAT(outbox->Take().bytes, Not(HasSubstr("dropped")));
}

TEST_F(HttpOutboxTest, AnOldClientGetsItsStreamPlainAndTheEndOfTheConnection) {
  const auto outbox = Open({.is_http11 = false});
  outbox->Begin({.body = "one"});
  EXPECT_TRUE(outbox->Write("two"));
  outbox->Finish();
  const HttpOutbox::Batch batch = outbox->Take();
  EXPECT_THAT(batch.bytes, EndsWith("connection: close\r\n\r\nonetwo"));
  EXPECT_EQ(batch.end, End::kClose);
}

TEST_F(HttpOutboxTest, AServerThatStopsClosesAfterEveryAnswer) {
  const auto streaming = Open();
  streaming->Begin({});
  counters_->is_stopping = true;
  const auto outbox = Open();
  outbox->Answer({});
  EXPECT_THAT(outbox->Take().bytes, HasSubstr("connection: close"));
  EXPECT_EQ(outbox->Take().end, End::kClose);
}

TEST_F(HttpOutboxTest, AHeaderCannotSmuggleInALine) {
  const auto outbox = Open();
  outbox->Answer({.headers = {{"x-id", "a\r\nset-cookie: b"}}});
  EXPECT_THAT(outbox->Take().bytes, HasSubstr("x-id: a  set-cookie: b\r\n"));
}

}  // namespace
}  // namespace shardline
