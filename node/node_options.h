#pragma once

// Everything a node can be told at start.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/log.h"

namespace shardline {

struct NodeOptions {
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // Empty: the address that was bound.
  std::string coordinator = "127.0.0.1:7070";
  std::string data_dir;       // Holds the node's id.
  NodeId node_id;             // Empty: from data_dir, created once.
  std::string model_dir;      // Empty: only the paths that the coordinator names.
  uint64_t memory_bytes = 0;  // For weights, KV and scratch.
  int32_t threads = 0;        // 0: as many as the process may use.
  bool drafts = true;         // Where this node is a head: guess where rows ride for free.
  // Nodes of one machine share its cores and its memory's bandwidth; a socket or a device that
  // shares neither may have a name of its own. Empty: this machine's.
  std::string machine;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  std::string port_file;       // Gets the bound address, for scripts.
  std::string metrics_listen;  // host:port of Prometheus' /metrics; empty: none.
  absl::Duration drain_timeout = absl::Seconds(10);  // For sessions to end or move, at shutdown.

  // kInvalidRequest, naming the field.
  absl::Status Validate() const;
};

// What a command line asks for.
struct NodeCommandLine {
  NodeOptions options;
  std::optional<std::string> print;  // Help or version: print it and exit with 0.
};

// A flag beats an environment variable (SHARDLINE_NODE_MEMORY for --memory), which beats the YAML
// file named by --config. kInvalidRequest, naming the flag or key, for what cannot be.
absl::StatusOr<NodeCommandLine> ParseNodeCommandLine(int argc, const char* const* argv);

// "512MiB", "2GiB", "1.5GiB" or plain bytes.
absl::StatusOr<uint64_t> ParseByteSize(const std::string& text);

// The id kept in `data_dir`, made and written there if it is the first time. Locks the directory
// for the life of the process: kInvalidRequest if another process has it or it cannot be written.
absl::StatusOr<NodeId> ClaimNodeId(const std::string& data_dir);

}  // namespace shardline
