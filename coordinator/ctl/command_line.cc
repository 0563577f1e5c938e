#include "coordinator/ctl/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/ctl/near_miss.h"

namespace shardline {
namespace {

constexpr char kExample[] =
    "Examples:\n"
    "  shardctl status\n"
    "  shardctl model load models/qwen3-0.6b-q8_0.gguf --shards 2\n"
    "  shardctl generate \"The capital of France is\" --max-tokens 16\n"
    "\n"
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 no coordinator answers, 5 not healthy,\n"
    "6 refused, 7 timeout, 8 not allowed, 130 interrupted.";

// What CLI11 writes into while it parses; `command` is the part the caller wants.
struct Parsing {
  CtlCommand command;
  std::string timeout;
  std::string deadline;
  std::string ranges;
  std::vector<std::string> words;  // generate [MODEL] PROMPT
  std::string model;               // Of generate.
  v1::Sampling sampling;
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  uint32_t top_k = 0;
  uint32_t top_logprobs = 0;
  uint64_t seed = 0;
  uint32_t max_tokens = 256;
  bool logprobs = false;
  bool logits_digest = false;
  bool ignore_eos = false;
  std::string drain_deadline = "30s";
  bool drain_force = false;
  bool drain_detach = false;
  bool no_prefix_cache = false;
  std::string tenant;
  std::string load_path;
  std::string load_name;
  uint32_t load_shards = 0;
  uint32_t load_replicas = 0;
  uint32_t load_context = 0;
  uint32_t load_sessions = 0;
  bool dry_run = false;
  uint64_t session = 0;
  std::string reason;
  std::string state;
  uint64_t after = 0;
  uint32_t limit = 0;
};

const std::map<std::string, OutputFormat> kFormats = {{"table", OutputFormat::kTable},
                                                      {"wide", OutputFormat::kWide},
                                                      {"json", OutputFormat::kJson},
                                                      {"name", OutputFormat::kName},
                                                      {"csv", OutputFormat::kCsv}};
const std::map<std::string, ColorMode> kColors = {
    {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};

void AddGlobalFlags(CLI::App& app, Parsing& p) {
  app.add_option("--endpoint", p.command.endpoint, "The coordinator's address")
      ->type_name("HOST:PORT")
      ->envname("SHARDLINE_ENDPOINT")
      ->capture_default_str();
  app.add_option("--timeout", p.timeout, "Longest wait for an answer, as 10s or 2m")
      ->envname("SHARDLINE_TIMEOUT");
  app.add_option("-o,--output", p.command.output, "table, wide, json or name; csv for exports")
      ->transform(CLI::CheckedTransformer(kFormats).description("FORMAT"))
      ->envname("SHARDLINE_OUTPUT");
  app.add_flag("--no-headers", p.command.no_headers, "Tables without their first line");
  app.add_flag("-q,--quiet", p.command.quiet, "Nothing on stderr but errors");
  app.add_option("--color", p.command.color, "auto, always or never")
      ->transform(CLI::CheckedTransformer(kColors).description("WHEN"))
      ->envname("SHARDLINE_COLOR");
}

CLI::App* AddVerb(CLI::App* noun, Parsing& p, CtlVerb verb, const char* name, const char* what) {
  CLI::App* app = noun->add_subcommand(name, what);
  app->final_callback([&p, verb] { p.command.verb = verb; });
  return app;
}

void AddGenerate(CLI::App& app, Parsing& p) {
  CLI::App* generate = AddVerb(&app, p, CtlVerb::kGenerate, "generate", "Stream one answer");
  generate->add_option("words", p.words, "[MODEL] PROMPT; \"-\" reads the prompt from stdin")
      ->required()
      ->expected(1, 2);
  generate->add_option("--model", p.model, "As the first of two words");
  generate->add_option("--max-tokens", p.max_tokens, "Longest answer")->capture_default_str();
  generate->add_option("--temperature", p.temperature, "0 is greedy")->capture_default_str();
  generate->add_option("--top-k", p.top_k, "0 is off")->capture_default_str();
  generate->add_option("--top-p", p.top_p, "1 is off")->capture_default_str();
  generate->add_option("--min-p", p.min_p, "0 is off")->capture_default_str();
  generate->add_option("--seed", p.seed, "Same seed, same answer")->capture_default_str();
  generate->add_option("--repetition-penalty", p.repetition_penalty, "1 is off")
      ->capture_default_str();
  generate->add_option("--frequency-penalty", p.frequency_penalty)->capture_default_str();
  generate->add_option("--presence-penalty", p.presence_penalty)->capture_default_str();
  generate->add_flag("--logprobs", p.logprobs, "Report each token's log-probability");
  generate->add_option("--top-logprobs", p.top_logprobs, "And those of so many alternatives");
  generate->add_flag("--logits-digest", p.logits_digest, "Report a digest of each logits row");
  generate->add_flag("--ignore-eos", p.ignore_eos, "Go on past the model's end token");
  generate->add_flag("--no-prefix-cache", p.no_prefix_cache, "Compute the whole prompt anew");
  generate->add_option("--tenant", p.tenant, "Whose keys and cached prefixes are used");
  generate->add_option("--deadline", p.deadline, "Longest time for the whole answer, as 90s");
  generate->add_flag("--chatml", p.command.chatml, "Wrap the prompt as one ChatML user turn");
  generate->add_option("--system", p.command.system, "System turn in front, with --chatml");
  generate->add_flag("--json", p.command.json_lines, "One JSON object a line instead of text");
}

void AddNode(CLI::App& app, Parsing& p) {
  CLI::App* node = app.add_subcommand("node", "Nodes, and taking them out of service");
  node->require_subcommand(1);
  AddVerb(node, p, CtlVerb::kNodeList, "list", "Nodes with state, shard and load");
  const auto add = [&](CtlVerb verb, const char* name, const char* what) {
    CLI::App* added = AddVerb(node, p, verb, name, what);
    added->add_option("node", p.command.node)->required()->type_name("NODE");
    return added;
  };
  add(CtlVerb::kNodeCordon, "cordon", "Give it no new sessions; those that run there go on");
  add(CtlVerb::kNodeUncordon, "uncordon", "Give it sessions again; the end of a drain, too");
  add(CtlVerb::kNodeRemove, "remove", "Take a lost one off the list; it may come back");
  CLI::App* drain = add(CtlVerb::kNodeDrain, "drain",
                        "Cordon it, let its sessions finish, move what is left at the deadline");
  drain->add_option("--deadline", p.drain_deadline, "Time for its sessions, as 30s; 0s: none")
      ->capture_default_str();
  drain->add_flag("--force", p.drain_force, "Also when layers have no other node");
  drain->add_flag("--detach", p.drain_detach, "Do not wait until it is drained");
  drain->footer("Example:\n  shardctl node drain node-4 --deadline 5m");
}

void AddModel(CLI::App& app, Parsing& p) {
  CLI::App* model = app.add_subcommand("model", "Load, list and unload models");
  model->require_subcommand(1);
  AddVerb(model, p, CtlVerb::kModelList, "list", "Models in service, with state and reason");
  CLI::App* load = AddVerb(model, p, CtlVerb::kModelLoad, "load",
                           "Place a GGUF file on the nodes, load it and prove it");
  load->add_option("path", p.load_path, "On the coordinator's machine")->required();
  load->add_option("--name", p.load_name, "Name for clients; else the file's");
  load->add_option("--shards", p.load_shards, "Nodes to split it over; 0: the fewest that fit");
  load->add_option("--replicas", p.load_replicas, "Nodes that hold each range of layers; 0: 1");
  load->add_option("--ranges", p.ranges, "Explicit cut, as 0-9,10-29");
  load->add_option("--context", p.load_context, "Longest context in tokens; 0: what fits");
  load->add_option("--sessions", p.load_sessions, "KV for so many full contexts; 0: 4");
  load->add_flag("--dry-run", p.dry_run, "Show where it would go, or why it does not fit");
  CLI::App* unload =
      AddVerb(model, p, CtlVerb::kModelUnload, "unload", "End its requests and free its memory");
  unload->add_option("name", p.command.model)->required();
}

void AddSession(CLI::App& app, Parsing& p) {
  CLI::App* session = app.add_subcommand("session", "Requests that run, and what became of others");
  session->require_subcommand(1);
  AddVerb(session, p, CtlVerb::kSessionList, "list", "Sessions that have not ended")
      ->footer("Example:\n  shardctl session list -o wide");
  CLI::App* show = AddVerb(session, p, CtlVerb::kSessionShow, "show",
                           "One session: how it stands, and the record of each attempt");
  show->add_option("id", p.session)->required()->type_name("ID");
  show->footer("Example:\n  shardctl session show 281474976710657");
  CLI::App* cancel =
      AddVerb(session, p, CtlVerb::kSessionCancel, "cancel", "End one; says what stands");
  cancel->add_option("id", p.session)->required()->type_name("ID");
  cancel->add_option("--reason", p.reason, "For the record, at most 200 bytes");
  cancel->footer("Example:\n  shardctl session cancel 281474976710657 --reason maintenance");
}

void AddKey(CLI::App& app, Parsing& p) {
  CLI::App* key = app.add_subcommand("key", "Keys for the HTTP API; asks no coordinator");
  key->require_subcommand(1);
  CLI::App* made = AddVerb(key, p, CtlVerb::kKeyNew, "new",
                           "Make a key, show it this once, and the line for --api-keys");
  made->add_option("name", p.command.key_name, "Whose it is, for logs")
      ->required()
      ->type_name("NAME");
  made->add_flag("--admin", p.command.key_admin, "For operators: /admin alone");
  made->add_option("-f,--file", p.command.file, "Append the line here instead of showing it")
      ->type_name("FILE");
  made->footer("Example:\n  shardctl key new web-app --file keys.txt");
}

void AddRecordFilter(CLI::App& app, Parsing& p) {
  app.add_option("--session", p.session, "Of this session alone")->type_name("ID");
  app.add_option("--state", p.state, "completed, failed, cancelled, expired, fenced or unverified")
      ->check(
          CLI::IsMember({"completed", "failed", "cancelled", "expired", "fenced", "unverified"}));
  app.add_option("--after", p.after, "Records with a higher number");
}

void AddLedger(CLI::App& app, Parsing& p) {
  CLI::App* ledger = app.add_subcommand("ledger", "The record of every attempt that ended");
  ledger->require_subcommand(1);
  CLI::App* list = AddVerb(ledger, p, CtlVerb::kLedgerList, "list", "Records in ledger order");
  AddRecordFilter(*list, p);
  list->add_option("--limit", p.limit, "At most so many")
      ->check(CLI::Range(1, 1000))
      ->default_str("100");
  list->footer("Example:\n  shardctl ledger list --state failed --limit 20 -o wide");
  AddVerb(ledger, p, CtlVerb::kLedgerVerify, "verify",
          "Check the hash chain and the sums; exit code 1 if a record is wrong")
      ->footer("Example:\n  shardctl ledger verify");
  CLI::App* exported = AddVerb(ledger, p, CtlVerb::kLedgerExport, "export",
                               "All records that match, as CSV or with -o json");
  AddRecordFilter(*exported, p);
  exported->add_option("--limit", p.limit, "At most so many; 0: all")->capture_default_str();
  exported->add_option("-f,--file", p.command.file, "Write here, whole or not at all; else stdout")
      ->type_name("FILE");
  exported->footer("Example:\n  shardctl ledger export -o csv --file ledger.csv");
}

std::shared_ptr<CLI::App> MakeTree(std::shared_ptr<Parsing> parsing) {
  Parsing& p = *parsing;
  // The tree writes into `parsing`, hence holds it.
  std::shared_ptr<CLI::App> app(new CLI::App("Operates a Shardline cluster.", "shardctl"),
                                [parsing](CLI::App* tree) { delete tree; });
  app->fallthrough();
  app->require_subcommand(1);
  app->footer(kExample);
  AddGlobalFlags(*app, p);
  AddVerb(app.get(), p, CtlVerb::kStatus, "status", "One page; exit code 5 if not healthy");
  AddVerb(app.get(), p, CtlVerb::kHealth, "health", "For probes: silent, exit code 0 or 5");
  AddNode(*app, p);
  CLI::App* shard = app->add_subcommand("shard", "Shards");
  shard->require_subcommand(1);
  AddVerb(shard, p, CtlVerb::kShardList, "list", "Who holds which layers, drawn as a map")
      ->add_option("--model", p.command.model, "Of this model alone");
  AddModel(*app, p);
  AddSession(*app, p);
  AddLedger(*app, p);
  AddKey(*app, p);
  AddGenerate(*app, p);
  AddVerb(app.get(), p, CtlVerb::kShowVersion, "version", "Versions of client and coordinator")
      ->add_flag("--client", p.command.client_only, "Ask nobody");
  AddVerb(app.get(), p, CtlVerb::kCompletion, "completion", "Completion script for a shell")
      ->add_option("shell", p.command.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return app;
}

// The first word that names no command where one is due, with the words that would; or a flag
// that there is not.
std::string ExplainUnknown(const CLI::App& root, const std::vector<std::string>& args) {
  const CLI::App* at = &root;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg.size() > 1 && arg[0] == '-') {
      const std::string flag = arg.substr(0, arg.find('='));
      const CLI::Option* option = at->get_option_no_throw(flag);
      if (option == nullptr) option = root.get_option_no_throw(flag);
      if (option == nullptr) {
        std::vector<std::string> known;
        for (const CLI::App* app : {at, &root}) {
          for (const CLI::Option* o : app->get_options()) {
            for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
          }
        }
        const std::string near = NearMiss(flag, known);
        return absl::StrCat("unknown flag ", flag,
                            near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"));
      }
      if (flag.size() == arg.size() && option->get_type_size_max() > 0) ++i;  // Its value.
      continue;
    }
    const std::vector<const CLI::App*> verbs =
        at->get_subcommands([](const CLI::App*) { return true; });
    if (verbs.empty()) continue;
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* verb : verbs) {
      names.push_back(verb->get_name());
      if (verb->get_name() == arg) next = verb;
    }
    if (next == nullptr) {
      const std::string near = NearMiss(arg, names);
      const std::string where = at == &root ? "" : absl::StrCat(at->get_name(), " ");
      return absl::StrCat(
          "unknown command \"", where, arg, "\"",
          near.empty() ? "" : absl::StrCat("; did you mean \"", where, near, "\"?"));
    }
    at = next;
  }
  std::vector<std::string> names;
  for (const CLI::App* verb : at->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  if (names.empty()) return "";
  return absl::StrCat(at == &root ? "a command is missing" : at->get_name() + " needs a command",
                      ": ", absl::StrJoin(names, ", "));
}

// "0-9,10-29", both ends inclusive as operators count.
bool ReadRanges(const std::string& text, v1::LoadModelRequest* load) {
  if (text.empty()) return true;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int32_t first = 0;
    int32_t last = 0;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) ||
        !absl::SimpleAtoi(ends[1], &last) || first < 0 || last < first || last >= 65536) {
      return false;
    }
    v1::LayerRange& range = *load->add_ranges();
    range.set_begin(first);
    range.set_end(last + 1);
  }
  return true;
}

// From what CLI11 has read to what the commands want. Empty, or what is wrong.
std::string Translate(Parsing& p) {
  CtlCommand& command = p.command;
  absl::Duration duration;
  if (!p.timeout.empty()) {
    if (!absl::ParseDuration(p.timeout, &duration) || duration <= absl::ZeroDuration()) {
      return absl::StrCat("--timeout: \"", p.timeout, "\" is no duration; write 10s or 2m");
    }
    command.timeout = duration;
  }
  command.load.set_name(p.load_name);
  command.load.set_shards(p.load_shards);
  command.load.set_replicas(p.load_replicas);
  command.load.set_context_tokens_max(p.load_context);
  command.load.set_sessions_max(p.load_sessions);
  if (!p.load_path.empty()) {
    // The coordinator may have another working directory.
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(p.load_path, error);
    command.load.set_path(error ? p.load_path : absolute.lexically_normal().string());
  }
  if (!ReadRanges(p.ranges, &command.load)) {
    return absl::StrCat("--ranges: \"", p.ranges, "\" is no list of layers as 0-9,10-29");
  }
  if (p.dry_run) command.verb = CtlVerb::kModelPreview;
  command.cancel.set_session(p.session);
  command.cancel.set_reason(p.reason);
  command.records.set_session(p.session);
  command.records.set_state(p.state);
  command.records.set_after(p.after);
  command.records.set_limit(p.limit);
  const bool exports = command.verb == CtlVerb::kLedgerExport;
  if (command.output == OutputFormat::kCsv && !exports) return "-o csv is for ledger export";
  if (exports && (command.output == OutputFormat::kWide || command.output == OutputFormat::kName)) {
    return "ledger export writes csv or json";
  }
  if (command.verb == CtlVerb::kNodeDrain) {
    if (!absl::ParseDuration(p.drain_deadline, &duration) || duration < absl::ZeroDuration() ||
        duration > absl::Hours(24)) {
      return absl::StrCat("--deadline: \"", p.drain_deadline,
                          "\" is no time of at most a day; write 30s or 5m");
    }
    command.drain.set_node_id(command.node);
    command.drain.set_deadline_ms(absl::ToInt64Milliseconds(duration));
    command.drain.set_force(p.drain_force);
    command.drain.set_wait(!p.drain_detach);
  }
  if (command.verb != CtlVerb::kGenerate) return "";
  v1::GenerateRequest& generate = command.generate;
  if (p.words.size() == 2 && !p.model.empty()) {
    return "the model is named twice; quote a prompt of several words";
  }
  generate.set_model(p.words.size() == 2 ? p.words.front() : p.model);
  generate.set_text(p.words.back());
  if (p.max_tokens == 0) return "--max-tokens must be at least 1";
  generate.set_new_tokens_max(p.max_tokens);
  generate.set_ignore_eos(p.ignore_eos);
  generate.set_want_logits_digest(p.logits_digest);
  generate.set_no_prefix_cache(p.no_prefix_cache);
  generate.set_tenant(p.tenant);
  if (!p.deadline.empty()) {
    if (!absl::ParseDuration(p.deadline, &duration) || duration < absl::Milliseconds(1)) {
      return absl::StrCat("--deadline: \"", p.deadline, "\" is no duration; write 90s or 2m");
    }
    generate.set_deadline_ms(absl::ToInt64Milliseconds(duration));
  }
  v1::Sampling& sampling = *generate.mutable_sampling();
  sampling.set_temperature(p.temperature);
  sampling.set_top_k(p.top_k);
  sampling.set_top_p(p.top_p);
  sampling.set_min_p(p.min_p);
  sampling.set_repetition_penalty(p.repetition_penalty);
  sampling.set_frequency_penalty(p.frequency_penalty);
  sampling.set_presence_penalty(p.presence_penalty);
  sampling.set_seed(p.seed);
  sampling.set_logprobs(p.logprobs || p.top_logprobs > 0);
  sampling.set_top_logprobs(p.top_logprobs);
  return "";
}

}  // namespace

ParsedCommandLine ParseCtlCommandLine(const std::vector<std::string>& args) {
  auto parsing = std::make_shared<Parsing>();
  const std::shared_ptr<CLI::App> app = MakeTree(parsing);
  if (args.empty()) return {.command = {}, .text = app->help(), .exit_code = 0};
  const auto refuse = [](const std::string& text) {
    return ParsedCommandLine{.command = {},
                             .text = absl::StrCat("error: ", text, "\nhint:  shardctl --help\n"),
                             .exit_code = 2};
  };
  try {  // CLI11 throws for help, too.
    app->parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app->exit(error, out, err) == 0) {
      return {.command = {}, .text = out.str(), .exit_code = 0};
    }
    const std::string unknown = ExplainUnknown(*app, args);
    return refuse(unknown.empty() ? error.what() : unknown);
  }
  const std::string wrong = Translate(*parsing);
  if (!wrong.empty()) return refuse(wrong);
  return {.command = parsing->command, .text = {}, .exit_code = 0};
}

std::shared_ptr<CLI::App> CtlCommandTree() { return MakeTree(std::make_shared<Parsing>()); }

}  // namespace shardline
