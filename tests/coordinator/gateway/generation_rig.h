#pragma once

// A generation on a table: a client without socket, a host that writes down what is asked of it, a
// clock that is set, and events made by hand.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/generation.h"
#include "gtest/gtest.h"
#include "model/gguf_file.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {

// Of the tiny model; lives as long as the test.
inline const Tokenizer* TinyTokenizer() {
  static const Tokenizer* const tokenizer = [] {
    const std::string path = MakeTinyLlama(FreshDirectory());
    const absl::StatusOr<GgufFile> file = GgufFile::Open(path);
    absl::StatusOr<std::unique_ptr<Tokenizer>> made =
        Tokenizer::Create(*ReadTokenizerSpec(file->metadata()));
    return made->release();
  }();
  return tokenizer;
}

class SetClock final : public Clock {
 public:
  Instant Now() const override { return now; }
  Instant now = Instant() + absl::Seconds(1000);
};

class FakeHost final : public GenerationHost {
 public:
  void Cancel(RequestId call) override { cancelled.push_back(call.value()); }
  void Explain(const std::string& model, const absl::Status& failure,
               absl::AnyInvocable<void(const ApiError&)> then) override {
    explained.push_back(model);
    then(explanation.value_or(ErrorOf(failure)));
  }
  void OnOver(Generation&, GenerationEnd end) override { ends.push_back(std::move(end)); }

  std::optional<ApiError> explanation;
  std::vector<uint64_t> cancelled;
  std::vector<std::string> explained;
  std::vector<GenerationEnd> ends;
};

inline constexpr uint64_t kSession = 42;
inline constexpr uint64_t kFirstCall = 100;

// A spec of `choices` calls, numbered from kFirstCall, for the prompt "a".
inline GenerationSpec SpecOf(size_t choices, bool stream, Instant arrived) {
  GenerationSpec spec;
  spec.request_id = "req-1";
  spec.endpoint = "/v1/chat/completions";
  spec.key_name = "tester";
  spec.model.name = "tiny";
  spec.call.kind = ApiKind::kChat;
  spec.call.model = "tiny";
  spec.call.n = static_cast<int>(choices);
  spec.call.stream = stream;
  spec.prepared.prompts.push_back({.tokens = {kTinyFirstByte + 'a'}, .text = "a"});
  for (size_t i = 0; i < choices; ++i) {
    spec.prepared.requests.emplace_back();
    spec.calls.push_back(RequestId(kFirstCall + i));
  }
  spec.facts = {.id = "chatcmpl-1",
                .created_unix_s = 1,
                .model = "tiny",
                .weights_digest = "abc",
                .tokenizer = TinyTokenizer()};
  spec.arrived = arrived;
  return spec;
}

inline v1::GenerateEvent Started(uint64_t session = kSession) {
  v1::GenerateEvent event;
  v1::GenerateStarted& started = *event.mutable_started();
  started.set_session(session);
  started.set_epoch(1);
  started.set_plan_epoch(7);
  started.set_model("tiny");
  started.set_prompt_tokens(1);
  for (const char* node : {"node-a", "node-b"}) started.add_route()->set_node_id(node);
  return event;
}

inline v1::GenerateEvent Token(uint32_t index, const std::string& text) {
  v1::GenerateEvent event;
  event.mutable_token()->mutable_token()->set_index(index);
  event.mutable_token()->mutable_token()->set_token(kTinyFirstByte + text[0]);
  event.mutable_token()->set_text(text);
  return event;
}

inline v1::GenerateEvent EndOf(uint32_t tokens) {
  v1::GenerateEvent event;
  event.mutable_end()->set_reason(v1::FINISH_REASON_STOP);
  event.mutable_end()->set_prompt_tokens(1);
  event.mutable_end()->set_generated_tokens(tokens);
  return event;
}

// The generation and everything around it.
struct GenerationRig {
  explicit GenerationRig(GenerationSpec spec)
      : exchange(std::make_shared<FakeExchange>(HttpRequest{.method = "POST"})),
        generation(std::make_shared<Generation>(std::move(spec), exchange, &host, &clock)) {}

  void Send(const v1::GenerateEvent& event, size_t choice = 0) {
    EXPECT_TRUE(generation->OnEvent(choice, event));
  }
  void Tick(absl::Duration later) {
    clock.now = clock.now + later;
    generation->OnTick();
  }

  SetClock clock;
  FakeHost host;
  std::shared_ptr<FakeExchange> exchange;
  std::shared_ptr<Generation> generation;
};

}  // namespace shardline::testing
