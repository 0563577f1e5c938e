#include "tests/bench/streams.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "proto/wire/failure_conversion.h"

namespace shardline::bench {
namespace {

Stream RunOne(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
              const std::function<void(size_t)>& on_token) {
  Stream stream{.began = SystemClock()->Now()};
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    if (event.has_token()) {
      stream.tokens.push_back(SystemClock()->Now());
      if (on_token) on_token(stream.tokens.size());
    }
    if (event.has_end()) stream.end = event.end();
  }
  stream.status = FromGrpcStatus(reader->Finish());
  return stream;
}

}  // namespace

std::vector<Stream> RunTogether(v1::Inference::Stub& stub,
                                const std::vector<v1::GenerateRequest>& requests,
                                const std::function<void(size_t, size_t)>& on_token) {
  std::vector<Stream> streams(requests.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      streams[i] = RunOne(stub, requests[i], [&](size_t count) {
        if (on_token) on_token(i, count);
      });
    });
  }
  for (std::thread& client : clients) client.join();
  return streams;
}

double SteadyTokensPerSecond(const std::vector<Stream>& streams, size_t skip) {
  Instant from;
  Instant to = Instant::InfiniteFuture();
  for (const Stream& stream : streams) {
    SL_CHECK(stream.status.ok(), stream.status.ToString());
    SL_CHECK(stream.tokens.size() > skip);
    from = std::max(from, stream.tokens[skip]);
    to = std::min(to, stream.tokens.back());
  }
  SL_CHECK(from < to, "the streams did not run at the same time");
  int64_t tokens = 0;
  for (const Stream& stream : streams) {
    tokens += std::count_if(stream.tokens.begin(), stream.tokens.end(),
                            [&](Instant at) { return from < at && at <= to; });
  }
  return static_cast<double>(tokens) / absl::ToDoubleSeconds(to - from);
}

v1::GenerateRequest PlainRequest(int prompt_tokens, uint32_t new_tokens, int seed) {
  constexpr int kTokensOfAnyModel = 256;
  v1::GenerateRequest request;
  for (int i = 0; i < prompt_tokens; ++i) {
    request.mutable_tokens()->add_ids(3 + (seed * 7919 + i * 31) % kTokensOfAnyModel);
  }
  request.set_new_tokens_max(new_tokens);
  request.set_ignore_eos(true);
  request.set_deadline_ms(300'000);
  request.set_no_drafts(true);
  request.set_no_prefix_cache(true);
  return request;
}

}  // namespace shardline::bench
