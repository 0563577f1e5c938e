#pragma once

// One answer on stdout, as text or as JSON lines, and its figures in words.

#include <cstdint>
#include <string>

#include "shardline/v1/inference.pb.h"

namespace shardline {

// Where the time of a decoded token goes, on average. All 0 when only one token was asked for.
struct GenerateFigures {
  double tokens_per_s = 0;  // Behind the first token.
  uint32_t hops = 0;        // Of a lap round the ring: one a stage, none when a node is alone.
  double layers_us = 0;     // All stages' layers, as they measured them.
  double hop_us = 0;        // What a lap takes beside them, by hop.
  double finish_us = 0;     // Between two laps: norm, lm_head and sampling at the head.
};
GenerateFigures FiguresOf(const v1::GenerateStarted& started, const v1::GenerateEnd& end);

// {"type":"started"|"token"|"end",…} and a newline; `started` came first, and the figures of the
// end need it. Bytes that are no UTF-8 show as U+FFFD.
std::string EventJson(const v1::GenerateEvent& event, const v1::GenerateStarted& started);

// "64 tokens behind a prompt of 21: 121.3 tokens/s, first token after 30 ms", and where the time
// went: "a lap: 4.46 ms of layers, 3 hops of 0.18 ms, 1.20 ms of norm, lm_head and sampling at the
// head". Ends with a newline.
std::string StatsText(const v1::GenerateStarted& started, const v1::GenerateEnd& end);

}  // namespace shardline
