#pragma once

// One answer on stdout, as text or as JSON lines, and its figures in words.

#include <string>

#include "shardline/v1/inference.pb.h"

namespace shardline {

// {"type":"started"|"token"|"end",…} and a newline. Bytes that are no UTF-8 show as U+FFFD.
std::string EventJson(const v1::GenerateEvent& event);

// "8 tokens in 1.20 s: first after 180 ms, then 14.2 tokens/s", and a line on the ring when there
// was one: "lap 5.1 ms: head 2.0 ms, stages 2.5 ms, 2 hops of 0.3 ms". Ends with a newline.
std::string StatsText(const v1::GenerateStarted& started, const v1::GenerateEnd& end);

}  // namespace shardline
