#pragma once

// Everything a coordinator can be told, from flags, environment and file, in that order of
// precedence.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace shardline {

struct CoordinatorOptions {
  std::string listen = "127.0.0.1:7070";           // host:port; port 0 takes a free one.
  std::string data_dir = "shardline-coordinator";  // Holds the store; made if missing.
  // The store comes from a backup: a new generation of numbers begins, and a term above this one.
  std::optional<uint64_t> restore_term;
  std::string port_file;       // The port in force is written here; or empty.
  std::string metrics_listen;  // host:port of Prometheus' /metrics; empty: none.

  // The HTTP API.
  std::string http = "127.0.0.1:8080";  // host:port; empty: none.
  std::string http_port_file;           // The address in force is written here; or empty.
  bool http_insecure = false;           // Other than loopback without keys.
  std::string api_keys;                 // File of hashed keys (docs/gateway.md); empty: no keys.
  std::string cors_origins;             // Comma-separated; empty: this host's own pages.
  std::string tls_certificate;          // PEM files; both or neither.
  std::string tls_key;
  std::string chat_template;    // Built-in or file, in place of the models' own; empty: theirs.
  int http_connections = 4096;  // Beyond: refused with 503.
  absl::Duration http_ping = absl::Seconds(10);   // A silent stream's comment; 0: none.
  absl::Duration http_return = absl::Seconds(5);  // For a client with an idempotency key.

  // Loaded at start, as soon as enough nodes have joined.
  std::string model;                // A GGUF file; empty: none.
  std::string model_name;           // Empty: the file's.
  uint32_t shards = 0;              // 0: the fewest nodes that fit.
  uint32_t replicas = 0;            // Nodes that hold each range of layers; 0: 1.
  uint32_t context_tokens_max = 0;  // 0: the model's, at most what memory allows.
  uint32_t sessions_max = 0;        // Full contexts of KV; 0: 4.

  uint32_t chunk_tokens_max = 0;  // Of a prompt in one round, for any model; 0: 256.

  absl::Duration heartbeat = absl::Milliseconds(250);
  absl::Duration lease = absl::Milliseconds(1400);  // Silence after which a node is lost.
  // A lost node may come back for so long; then its layers go to others.
  absl::Duration replan_after = absl::Seconds(1);

  bool prefix_cache = true;  // Prompts share the KV of what they begin with.

  int requests_max = 256;        // Running at once; more wait.
  int queue = 256;               // Waiting at once, for room or for their turn; more are refused.
  int client_events_max = 4096;  // Unread events of one client before its request is ended.
  absl::Duration drain = absl::Seconds(2);               // For running requests to end at shutdown.
  absl::Duration route_retry = absl::Milliseconds(250);  // SessionsOptions; not a flag.

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;

  // Names the field that makes no sense.
  absl::Status Validate() const;
};

// What the command line asks for: run with `options`, or print `text` and exit.
struct CoordinatorCommand {
  CoordinatorOptions options;
  bool run = false;
  std::string text;   // Help, version, or the error.
  int exit_code = 0;  // When not run: 0 or 2.
};

// Flags win over SHARDLINE_COORDINATOR_* variables, which win over the YAML file of --config.
CoordinatorCommand ParseCoordinatorCommand(int argc, const char* const* argv);

}  // namespace shardline
