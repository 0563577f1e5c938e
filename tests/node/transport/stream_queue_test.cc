#include "node/transport/stream_queue.h"

#include <gtest/gtest.h>

#include <optional>

namespace shardline {
namespace {

TEST(StreamQueue, OneWriteIsOutstandingAtATime) {
  StreamQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_EQ(queue.TakeNext(), std::optional<int>(1));
  EXPECT_EQ(queue.TakeNext(), std::nullopt);
  queue.WriteDone(true);
  EXPECT_EQ(queue.TakeNext(), std::optional<int>(2));
}

TEST(StreamQueue, AFullQueueRefuses) {
  StreamQueue<int> queue(1);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_FALSE(queue.Push(2));
}

TEST(StreamQueue, TheEndComesOnceAndAfterWhatWaits) {
  StreamQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  queue.End(false);
  EXPECT_FALSE(queue.Push(2));
  EXPECT_FALSE(queue.TakeEnd());
  EXPECT_EQ(queue.TakeNext(), std::optional<int>(1));
  EXPECT_FALSE(queue.TakeEnd());
  queue.WriteDone(true);
  EXPECT_TRUE(queue.TakeEnd());
  EXPECT_FALSE(queue.TakeEnd());
}

TEST(StreamQueue, AnEndThatDropsWaitsOnlyForTheWriteUnderWay) {
  StreamQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_EQ(queue.TakeNext(), std::optional<int>(1));
  queue.End(true);
  EXPECT_FALSE(queue.TakeEnd());
  queue.WriteDone(true);
  EXPECT_EQ(queue.TakeNext(), std::nullopt);
  EXPECT_TRUE(queue.TakeEnd());
}

TEST(StreamQueue, AFailedWriteDropsTheRest) {
  StreamQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_EQ(queue.TakeNext(), std::optional<int>(1));
  queue.WriteDone(false);
  EXPECT_EQ(queue.TakeNext(), std::nullopt);
}

}  // namespace
}  // namespace shardline
