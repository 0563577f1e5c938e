#include "coordinator/coordinator_options.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace shardline {
namespace {

constexpr char kExample[] =
    "Example:\n"
    "  shardline-coordinator --listen 0.0.0.0:7070 --data-dir /var/lib/shardline \\\n"
    "      --model models/qwen3-0.6b-q8_0.gguf --shards 2\n"
    "  shardline-node --coordinator 127.0.0.1:7070 ...   # on each machine\n"
    "  shardctl status";

// A flag by name and the text it was given, wherever that came from.
using Texts = std::map<std::string, std::string>;

// The YAML file of --config: a flat map of flag names (without dashes in front) to values.
absl::StatusOr<Texts> ReadConfig(const std::string& path) {
  Texts texts;
  try {  // yaml-cpp throws on files it cannot open or read.
    const YAML::Node root = YAML::LoadFile(path);
    if (!root.IsNull() && !root.IsMap()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": expected a map of settings"));
    }
    for (const auto& entry : root) {
      if (!entry.second.IsScalar()) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", entry.first.Scalar(), " has no plain value"));
      }
      texts[absl::StrReplaceAll(entry.first.Scalar(), {{"_", "-"}})] = entry.second.Scalar();
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  return texts;
}

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("SHARDLINE_COORDINATOR_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

// Terms are kept as signed integers, and many more are to come.
constexpr uint64_t kRestoreTermMax = uint64_t{1} << 62;
constexpr uint32_t kChunkTokensMax = 4096;  // What a node takes at most.

// --restore is for one start: a generation a start would be too many.
bool IsSetting(const std::string& flag) {
  return flag != "help" && flag != "version" && flag != "config" && flag != "restore";
}

struct Texted {
  std::string heartbeat = "250ms";
  std::string lease = "1400ms";
  std::string replan_after = "1s";
  std::string drain = "2s";
  std::string http_ping = "10s";
  std::string http_return = "5s";
  std::string prefix_cache = "on";
  std::string log_level = "info";
  std::string log_format = "text";
};

absl::Status ReadDuration(const std::string& text, const char* flag, absl::Duration* out) {
  if (absl::ParseDuration(text, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": \"", text, "\" is no duration; write 250ms, 1.5s or 2m"));
}

absl::Status CheckAddress(const char* flag, const std::string& address) {
  if (address.find(':') != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": \"", address, "\" is not host:port"));
}

absl::Status CheckHttp(const CoordinatorOptions& options) {
  SL_RETURN_IF_ERROR(CheckAddress("http", options.http));
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (options.http_connections < 1) {
    return absl::InvalidArgumentError("--http-connections must be at least 1");
  }
  if (options.http_ping < absl::ZeroDuration() || options.http_ping > absl::Hours(1)) {
    return absl::InvalidArgumentError("--http-ping must be from 0 to 1h");
  }
  if (options.http_return < absl::ZeroDuration() || options.http_return > absl::Minutes(10)) {
    return absl::InvalidArgumentError("--http-return must be from 0 to 10m");
  }
  return absl::OkStatus();
}

absl::Status Translate(const Texted& texted, CoordinatorOptions* options) {
  absl::Status status = ReadDuration(texted.heartbeat, "heartbeat", &options->heartbeat);
  if (status.ok()) status = ReadDuration(texted.lease, "lease", &options->lease);
  if (status.ok()) {
    status = ReadDuration(texted.replan_after, "replan-after", &options->replan_after);
  }
  if (status.ok()) status = ReadDuration(texted.drain, "drain", &options->drain);
  if (status.ok()) status = ReadDuration(texted.http_ping, "http-ping", &options->http_ping);
  if (status.ok()) status = ReadDuration(texted.http_return, "http-return", &options->http_return);
  if (!status.ok()) return status;
  static const std::map<std::string, LogLevel> kLevels = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError}};
  options->log_level = kLevels.at(texted.log_level);  // CLI11 has checked membership.
  options->prefix_cache = texted.prefix_cache == "on";
  if (options->http == "off") options->http.clear();
  options->log_format = texted.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  return options->Validate();
}

}  // namespace

absl::Status CoordinatorOptions::Validate() const {
  SL_RETURN_IF_ERROR(CheckAddress("listen", listen));
  if (!metrics_listen.empty()) SL_RETURN_IF_ERROR(CheckAddress("metrics-listen", metrics_listen));
  if (!http.empty()) SL_RETURN_IF_ERROR(CheckHttp(*this));
  if (data_dir.empty()) return absl::InvalidArgumentError("--data-dir is empty");
  if (restore_term.value_or(0) > kRestoreTermMax) {
    return absl::InvalidArgumentError(
        "--restore: no term is so high; it is in the coordinator's log, at its start");
  }
  if (heartbeat < absl::Milliseconds(10) || heartbeat > absl::Minutes(1)) {
    return absl::InvalidArgumentError("--heartbeat must be from 10ms to 1m");
  }
  if (chunk_tokens_max > kChunkTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--chunk-tokens must be at most ", kChunkTokensMax));
  }
  if (lease < 2 * heartbeat) {
    return absl::InvalidArgumentError(
        "--lease must be at least twice --heartbeat, or one late beat loses a node");
  }
  if (replan_after < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("--replan-after must not be negative");
  }
  if (drain < absl::ZeroDuration() || drain > absl::Minutes(10)) {
    return absl::InvalidArgumentError("--drain must be from 0 to 10m");
  }
  if (requests_max < 1) return absl::InvalidArgumentError("--requests-max must be at least 1");
  if (queue < 0 || queue > 65536) {
    return absl::InvalidArgumentError("--queue must be from 0 to 65536");
  }
  if (client_events_max < 16) {
    return absl::InvalidArgumentError("--client-events-max must be at least 16");
  }
  return absl::OkStatus();
}

CoordinatorCommand ParseCoordinatorCommand(int argc, const char* const* argv) {
  CoordinatorCommand command;
  CoordinatorOptions& options = command.options;
  Texted texted;
  std::string config;

  CLI::App app("Places a model on nodes and routes requests through them.",
               "shardline-coordinator");
  app.set_version_flag("--version", std::string(kVersion));
  app.footer(kExample);
  app.add_option("--config", config, "YAML file with these settings")->type_name("FILE");
  app.add_option("--listen", options.listen, "Address for nodes, clients and operators")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--data-dir", options.data_dir, "Where the coordinator keeps its store")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--restore", options.restore_term,
                 "Once, after the store was restored from a backup: end what it holds as open, and "
                 "go on above TERM, the highest one seen in any log")
      ->type_name("TERM");
  app.add_option("--port-file", options.port_file,
                 "Write the address in force to this file or named pipe")
      ->type_name("FILE");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "Serve /metrics to Prometheus here; port 0 takes a free one [off]")
      ->type_name("HOST:PORT");
  app.add_option("--http", options.http,
                 "Serve the OpenAI API and the page here; port 0 takes a free one; off: not at all")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--http-port-file", options.http_port_file,
                 "Write the HTTP address in force to this file or named pipe")
      ->type_name("FILE");
  app.add_flag("--http-insecure", options.http_insecure,
               "Serve HTTP to other machines without keys");
  app.add_option("--api-keys", options.api_keys,
                 "File of hashed keys, by shardctl key new; without it only loopback is served")
      ->type_name("FILE");
  app.add_option("--cors-origins", options.cors_origins,
                 "Pages of these origins may call the API, comma-separated [this host's own]")
      ->type_name("LIST");
  app.add_option("--tls-cert", options.tls_certificate, "PEM certificate chain; HTTPS only then")
      ->type_name("FILE");
  app.add_option("--tls-key", options.tls_key, "Its private key")->type_name("FILE");
  app.add_option("--http-connections", options.http_connections, "HTTP connections at once")
      ->capture_default_str();
  app.add_option("--http-ping", texted.http_ping,
                 "Comment in a stream that was silent for so long; 0: none")
      ->capture_default_str();
  app.add_option("--http-return", texted.http_return,
                 "Time to come back for a client that hung up and gave an idempotency key")
      ->capture_default_str();
  app.add_option("--chat-template", options.chat_template,
                 "Built-in or Jinja file, in place of the models' own")
      ->type_name("NAME|FILE");
  app.add_option("--model", options.model, "GGUF file to load as soon as enough nodes joined")
      ->type_name("FILE");
  app.add_option("--model-name", options.model_name, "Its name for clients; else the file's");
  app.add_option("--shards", options.shards, "Nodes to split it over; 0: the fewest that fit")
      ->capture_default_str();
  app.add_option("--replicas", options.replicas, "Nodes that hold each range of layers; 0: 1")
      ->capture_default_str();
  app.add_option("--context", options.context_tokens_max,
                 "Longest context in tokens; 0: the model's, at most what memory allows")
      ->capture_default_str();
  app.add_option("--sessions", options.sessions_max, "KV for this many full contexts; 0: 4")
      ->capture_default_str();
  app.add_option("--chunk-tokens", options.chunk_tokens_max,
                 "Largest piece of a prompt that a stage computes at once; 0: 256")
      ->capture_default_str();
  app.add_option("--heartbeat", texted.heartbeat, "How often nodes beat")->capture_default_str();
  app.add_option("--lease", texted.lease, "Silence after which a node is lost")
      ->capture_default_str();
  app.add_option("--replan-after", texted.replan_after,
                 "Time for a lost node to come back before its layers go to others; inf: for ever")
      ->capture_default_str();
  app.add_option("--prefix-cache", texted.prefix_cache,
                 "Prompts of one tenant share the KV of what they begin with")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--requests-max", options.requests_max, "Requests that run at once; more wait")
      ->capture_default_str();
  app.add_option("--queue", options.queue,
                 "Requests that wait at once, for KV pages or for their turn; more are refused")
      ->capture_default_str();
  app.add_option("--client-events-max", options.client_events_max,
                 "Unread events of one client before its request is ended")
      ->capture_default_str();
  app.add_option("--drain", texted.drain, "Time for running requests at shutdown")
      ->capture_default_str();
  app.add_option("--log-level", texted.log_level)
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_option("--log-format", texted.log_format)
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();

  std::vector<std::string> given(argv + 1, argv + argc);
  const auto refuse = [&command](const std::string& text) {
    command.text = absl::StrCat("error: ", text, "\nhint:  shardline-coordinator --help\n");
    command.exit_code = 2;
    return command;
  };
  try {  // CLI11 throws for help and version, too.
    app.parse(std::vector<std::string>(given.rbegin(), given.rend()));

    // What no flag gave comes from the environment, then from the file. Both are read by the same
    // parser, so that a wrong value is refused in the same words.
    if (config.empty()) {
      const char* path = std::getenv(EnvironmentName("config").c_str());
      if (path != nullptr) config = path;
    }
    Texts file;
    if (!config.empty()) {
      absl::StatusOr<Texts> read = ReadConfig(config);
      if (!read.ok()) return refuse(std::string(read.status().message()));
      file = *std::move(read);
    }
    std::vector<std::string> all = given;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_lnames().empty() || option->count() > 0) continue;
      const std::string flag = option->get_lnames().front();
      if (!IsSetting(flag)) continue;
      const char* variable = std::getenv(EnvironmentName(flag).c_str());
      if (variable != nullptr) {
        all.push_back(absl::StrCat("--", flag, "=", variable));
      } else if (file.contains(flag)) {
        all.push_back(absl::StrCat("--", flag, "=", file[flag]));
      }
    }
    for (const auto& [name, text] : file) {
      if (!IsSetting(name) || app.get_option_no_throw(absl::StrCat("--", name)) == nullptr) {
        return refuse(absl::StrCat(config, ": there is no setting \"", name, "\""));
      }
    }
    app.parse(std::vector<std::string>(all.rbegin(), all.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    command.exit_code = app.exit(error, out, err) == 0 ? 0 : 2;
    if (command.exit_code == 0) {
      command.text = out.str();
      return command;
    }
    return refuse(error.what());
  }
  const absl::Status status = Translate(texted, &options);
  if (!status.ok()) return refuse(std::string(status.message()));
  command.run = true;
  return command;
}

}  // namespace shardline
