// The small words of shardctl: near misses, exit codes, errors, progress, figures.

#include <string>

#include "base/failure.h"
#include "coordinator/ctl/exit_code.h"
#include "coordinator/ctl/generate_output.h"
#include "coordinator/ctl/load_progress.h"
#include "coordinator/ctl/near_miss.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(NearMiss, FindsTheWordAHandSlippedOn) {
  const std::vector<std::string> words = {"status", "node", "shard", "model", "generate"};
  EXPECT_EQ(NearMiss("staus", words), "status");
  EXPECT_EQ(NearMiss("ndoe", words), "node");
  EXPECT_EQ(NearMiss("genrate", words), "generate");
  EXPECT_EQ(NearMiss("elephant", words), "");
}

TEST(NearMiss, CountsSwappedNeighboursOnce) {
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(ExitCode, SaysWhatAScriptNeedsToKnow) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), ExitCode::kFailed);
  EXPECT_EQ(ExitCodeOf(MakeFailure(FailureKind::kInvalidRequest, "")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), ExitCode::kNotFound);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeOf(MakeFailure(FailureKind::kHeartbeatLost, "")), ExitCode::kNotHealthy);
  EXPECT_EQ(ExitCodeOf(MakeFailure(FailureKind::kKvExhausted, "")), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), ExitCode::kTimeout);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), ExitCode::kNotAllowed);
}

TEST(ExitCode, AnErrorNamesNodeLayersAndWhatHelps) {
  const absl::Status status = MakeFailure(
      {.kind = FailureKind::kHeartbeatLost, .node = NodeId("node-2"), .layers = LayerRange{11, 22}},
      "session 7: node-2 is lost");
  EXPECT_EQ(ErrorText(status, {.endpoint = "h:1"}),
            "error: session 7: node-2 is lost\n"
            "node:  node-2, which holds layers 11-21\n"
            "hint:  see `shardctl node list -o wide`; once node-2 is up again it loads its shard "
            "by itself\n");
  EXPECT_EQ(ErrorJson(status, {.endpoint = "h:1"}),
            "{\"error\":{\"code\":\"UNAVAILABLE\",\"kind\":\"heartbeat_lost\",\"message\":"
            "\"session 7: node-2 is lost\",\"node\":\"node-2\",\"layers\":{\"begin\":11,\"end\":22}"
            ",\"hint\":\"see `shardctl node list -o wide`; once node-2 is up again it loads its "
            "shard by itself\"}}\n");
}

TEST(ExitCode, WhatTheMessageNamesIsNotToldTwice) {
  const absl::Status status = MakeFailure(
      {.kind = FailureKind::kHeartbeatLost, .node = NodeId("node-2"), .layers = LayerRange{11, 22}},
      "node-2 (layers 11-21): heartbeat lost");
  EXPECT_THAT(ErrorText(status, {}),
              ::testing::StartsWith("error: node-2 (layers 11-21): heartbeat lost\nhint:"));
}

TEST(ExitCode, AModelThatDoesNotFitIsToldALineANode) {
  const absl::Status status =
      MakeFailure(FailureKind::kOverloaded, "m does not fit on 2 nodes\na has 1 GiB\nb has 2 GiB");
  EXPECT_EQ(ErrorText(status, {.is_load = true}),
            "error: m does not fit on 2 nodes\n"
            "       a has 1 GiB\n"
            "       b has 2 GiB\n"
            "hint:  add a node, unload another model, or take a smaller --context or --sessions\n");
}

TEST(ExitCode, ASilentCoordinatorIsNamedByItsAddress) {
  const char kGrpcWords[] =
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to "
      "connect to remote host: Connection refused";
  EXPECT_THAT(ErrorText(absl::UnavailableError(kGrpcWords), {.endpoint = "h:1"}),
              ::testing::StartsWith("error: no coordinator answers at h:1: Connection refused\n"));
  EXPECT_THAT(ErrorText(absl::UnavailableError("connection refused"), {.endpoint = "h:1"}),
              ::testing::AllOf(::testing::HasSubstr("no coordinator answers at h:1"),
                               ::testing::HasSubstr("--endpoint")));
}

TEST(LoadProgress, DrawsABarWithRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine(512 << 20, 1024 << 20, 64 << 20, 8),
            " 50% ▕████    ▏ 512 MiB/1.0 GiB  64.0 MiB/s  ETA 8s");
  EXPECT_EQ(ProgressLine(0, 0, 0, 4), "  0% ▕    ▏ 0 B/0 B");
}

TEST(LoadProgress, IsOneLineAChangeWhereNothingIsRedrawn) {
  std::ostringstream out;
  LoadProgress progress(&out, false, 80);
  v1::LoadModelEvent event;
  event.mutable_model()->set_name("m");
  event.set_note("loading");
  v1::ShardSummary& shard = *event.add_shards();
  shard.set_bytes(1000);
  for (const uint64_t done : {0, 10, 20, 500, 510, 1000}) {
    shard.set_bytes_done(done);
    progress.Show(event, absl::Seconds(1));
  }
  EXPECT_EQ(out.str(), "m: loading\nm: 0% of 1000 B\nm: 50% of 1000 B\nm: 100% of 1000 B\n");
}

TEST(LoadProgress, SaysWhatFollowsTheLastByteBelowIt) {
  std::ostringstream out;
  LoadProgress progress(&out, false, 80);
  v1::LoadModelEvent event;
  event.mutable_model()->set_name("m");
  event.add_shards()->set_bytes(1000);
  event.set_note("placed:\nnode-1: layers 0-3");
  progress.Show(event, absl::ZeroDuration());
  event.set_note("probing");
  event.mutable_shards(0)->set_bytes_done(1000);
  progress.Show(event, absl::Seconds(1));
  event.set_note("ready");
  progress.Show(event, absl::Seconds(1));
  EXPECT_EQ(out.str(),
            "m: placed:\n  node-1: layers 0-3\nm: 0% of 1000 B\nm: 100% of 1000 B\nm: probing\n"
            "m: ready\n");
}

TEST(LoadProgress, IsOneBarOnATerminalThatNeverGoesBack) {
  absl::Duration elapsed;
  std::ostringstream out;
  LoadProgress progress(&out, true, 65);
  v1::LoadModelEvent event;
  event.mutable_model()->set_name("m");
  event.set_note("loading");
  event.add_shards()->set_bytes(1000);
  for (const uint64_t done : {100, 500, 0, 1000}) {
    event.mutable_shards(0)->set_bytes_done(done);
    if (done > 0) elapsed = absl::Seconds(static_cast<int64_t>(done) / 100);
    progress.Show(event, elapsed);
  }
  progress.Done();
  EXPECT_EQ(out.str(),
            "m: loading\n"
            "\r\033[K 10% ▕█         ▏ 100 B/1000 B"
            "\r\033[K 50% ▕█████     ▏ 500 B/1000 B  100 B/s  ETA 5s"
            "\r\033[K 50% ▕█████     ▏ 500 B/1000 B  100 B/s  ETA 5s"
            "\r\033[K100% ▕██████████▏ 1000 B/1000 B  100 B/s\n");
}

TEST(LoadProgress, NeverGoesBackWhenANodeBeginsAgain) {
  std::ostringstream out;
  LoadProgress progress(&out, false, 80);
  v1::LoadModelEvent event;
  event.mutable_model()->set_name("m");
  for (int i = 0; i < 2; ++i) event.add_shards()->set_bytes(1000);
  const std::vector<std::pair<uint64_t, uint64_t>> reports = {
      {0, 0}, {600, 100}, {650, 900}, {0, 900}, {300, 1000}, {650, 1000}, {1000, 1000}};
  for (const auto& [first, second] : reports) {
    event.mutable_shards(0)->set_bytes_done(first);
    event.mutable_shards(1)->set_bytes_done(second);
    progress.Show(event, absl::Seconds(1));
  }
  EXPECT_EQ(out.str(),
            "m: 0% of 2.0 KiB\nm: 35% of 2.0 KiB\nm: 77% of 2.0 KiB\nm: 82% of 2.0 KiB\n"
            "m: 100% of 2.0 KiB\n");
}

TEST(GenerateOutput, AJsonLineStaysJsonWhateverTheBytes) {
  v1::GenerateEvent event;
  event.mutable_token()->set_text("\xC0\n\"");
  event.mutable_token()->mutable_token()->set_token(5);
  event.mutable_token()->mutable_token()->set_logits_digest(0xABC);
  EXPECT_EQ(EventJson(event, {}),
            "{\"type\":\"token\",\"index\":0,\"token\":5,\"text\":\"\uFFFD\\n\\\"\","
            "\"logitsDigest\":\"0000000000000abc\"}\n");
}

TEST(GenerateOutput, FiguresShowTheHop) {
  v1::GenerateStarted started;
  started.add_route();
  started.add_route();
  v1::GenerateEnd end;
  end.set_reason(v1::FINISH_REASON_STOP);
  end.set_prompt_tokens(4);
  end.set_generated_tokens(11);
  end.set_ttft_us(180'000);
  end.set_total_us(1'200'000);
  end.mutable_timings()->set_decode_us(1'000'000);
  end.mutable_timings()->set_laps(10);
  end.mutable_timings()->set_lap_us(80'000);
  end.mutable_timings()->set_head_compute_us(30'000);
  end.mutable_timings()->set_stage_compute_us(75'000);
  EXPECT_EQ(StatsText(started, end),
            "11 tokens behind a prompt of 4: 10.0 tokens/s, first token after 180 ms\n"
            "a lap: 7.50 ms of layers, 2 hops of 0.25 ms, 92.0 ms of norm, lm_head and sampling "
            "at the head\n");
  v1::GenerateEvent event;
  *event.mutable_end() = end;
  EXPECT_THAT(EventJson(event, started),
              ::testing::HasSubstr("\"tokensPerS\":10.0,\"hops\":2,\"layersUsPerLap\":7500.0,"
                                   "\"hopUs\":250.0,\"finishUsPerLap\":92000.0}"));
}

TEST(GenerateOutput, ANodeAloneHasNoHops) {
  v1::GenerateStarted started;
  started.add_route();
  v1::GenerateEnd end;
  end.set_prompt_tokens(4);
  EXPECT_EQ(StatsText(started, end),
            "no token behind a prompt of 4: the model ended its answer at once\n");
  end.set_generated_tokens(1);
  end.set_ttft_us(9'000);
  end.set_prompt_tokens(40);
  end.set_cached_tokens(32);
  EXPECT_EQ(StatsText(started, end),
            "1 token behind a prompt of 40, 32 of them cached: first token after 9 ms\n");
  end.set_prompt_tokens(4);
  end.set_cached_tokens(0);
  EXPECT_EQ(StatsText(started, end), "1 token behind a prompt of 4: first token after 9 ms\n");
  end.set_generated_tokens(2);
  end.mutable_timings()->set_decode_us(6'000);
  end.mutable_timings()->set_laps(1);
  end.mutable_timings()->set_lap_us(5'000);
  // Clocks of several threads: never a negative time.
  end.mutable_timings()->set_stage_compute_us(5'010);
  EXPECT_EQ(StatsText(started, end),
            "2 tokens behind a prompt of 4: 166.7 tokens/s, first token after 9 ms\n"
            "a lap: 5.01 ms of layers, 1.00 ms of norm, lm_head and sampling at the head\n");
}

}  // namespace
}  // namespace shardline
