#pragma once

// A gateway without sockets or sessions: a coordinator that writes down what it is asked, one model
// of bytes, and clients that are fake exchanges.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/gateway.h"
#include "tests/coordinator/gateway/byte_tokenizer.h"
#include "tests/coordinator/gateway/fake_cluster.h"
#include "tests/coordinator/gateway/generation_rig.h"
#include "tests/support/fake_exchange.h"

namespace shardline::testing {

class FakeClients final : public ClientEvents {
 public:
  struct Call {
    RequestId id;
    v1::GenerateRequest request;
  };

  void OnGenerate(RequestId id, v1::GenerateRequest request) override {
    calls.push_back({id, std::move(request)});
    order.push_back("generate");
    if (on_generate) on_generate(calls.back());
  }
  void OnClientGone(RequestId id) override {
    gone.push_back(id);
    order.push_back("gone");
  }
  absl::StatusOr<v1::TokenizeReply> OnTokenize(const v1::TokenizeRequest&) override {
    return absl::UnimplementedError("not asked over HTTP");
  }

  std::function<void(const Call&)> on_generate;
  std::vector<Call> calls;
  std::vector<RequestId> gone;
  std::vector<std::string> order;
};

class OneModel final : public GatewayModels {
 public:
  OneModel() {
    auto file = std::make_shared<ModelFile>();
    file->id = ModelId("sha256:0123456789abcdef");
    file->tokenizer = MakeByteTokenizer();
    file->hyper.vocab_size = kByteVocab;
    model = {.name = "tiny", .file = std::move(file), .context_tokens_max = 512};
  }
  std::optional<GatewayModel> Find(const std::string& name) const override {
    if (name.empty() || name == model.name) return model;
    return std::nullopt;
  }
  std::vector<GatewayModel> List() const override { return {model}; }

  GatewayModel model;
};

struct GatewayRig {
  explicit GatewayRig(GatewayOptions options = {})
      : gateway({.clock = &clock,
                 .clients = &clients,
                 .admin = &cluster,
                 .models = &models,
                 .requests = &requests},
                options) {}

  std::shared_ptr<FakeExchange> Ask(HttpRequest request) {
    request.headers.insert(request.headers.begin(), {"host", "localhost:8080"});
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    gateway.OnRequest(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> Get(const std::string& path) {
    return Ask({.method = "GET", .path = path});
  }
  std::shared_ptr<FakeExchange> Complete(const Json& body, HttpHeaders headers = {}) {
    return Ask({.method = "POST",
                .path = "/v1/completions",
                .headers = std::move(headers),
                .body = JsonLine(body)});
  }

  SetClock clock;
  FakeCluster cluster;
  FakeClients clients;
  OneModel models;
  RequestLog requests;
  Gateway gateway;
};

}  // namespace shardline::testing
