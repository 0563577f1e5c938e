#pragma once

// One client's stream as a watcher of its session: numbers to messages, tokens to text.
//
// Text never ends inside a UTF-8 sequence; what is held back goes on over restarts, and a client
// that comes back with tokens in hand gets the text behind them, as if nothing had happened.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/id.h"
#include "coordinator/model_file.h"
#include "coordinator/session_runner.h"
#include "coordinator/transport/client_sink.h"
#include "coordinator/transport/utf8_hold.h"

namespace shardline {

class ClientStream final : public SessionObserver {
 public:
  // `clients` outlives this.
  ClientStream(ClientSink* clients, RequestId id, std::shared_ptr<const ModelFile> file,
               uint32_t prompt_tokens, const std::vector<int32_t>& tokens_held);

  void OnStarted(const SessionStart& start) override;
  void OnRestarted(const SessionRestart& restart) override;
  void OnProgress(const SessionProgress& progress) override;
  bool OnToken(const SessionToken& token) override;
  void OnEnd(const SessionEnd& end) override;

 private:
  bool Send(v1::GenerateEvent event);
  std::string TextOf(int32_t token);

  ClientSink* const clients_;
  const RequestId id_;
  const std::shared_ptr<const ModelFile> file_;
  const uint32_t prompt_tokens_;

  Utf8Hold hold_;
};

}  // namespace shardline
