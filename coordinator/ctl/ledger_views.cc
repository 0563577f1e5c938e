#include "coordinator/ctl/ledger_views.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "coordinator/ctl/json_view.h"
#include "coordinator/ctl/table.h"

namespace shardline {
namespace {

// "node-1:0-10,node-2:11-21", both ends inclusive.
std::string RouteText(const v1::SessionSummary& session) {
  std::vector<std::string> stages;
  for (const v1::RouteStage& stage : session.route()) {
    stages.push_back(
        absl::StrCat(stage.node_id(), ":", stage.layers().begin(), "-", stage.layers().end() - 1));
  }
  return absl::StrJoin(stages, ",");
}

// A session that has not been granted its number yet has none.
std::string NumberText(uint64_t number) { return number == 0 ? "" : absl::StrCat(number); }

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
}

std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string SessionListView(const v1::SessionList& sessions, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return SessionListJson(sessions);
  if (options.format == OutputFormat::kName) {
    std::string text;
    for (const v1::SessionSummary& session : sessions.sessions()) {
      if (session.session() != 0) absl::StrAppend(&text, session.session(), "\n");
    }
    return text;
  }
  const bool wide = options.format == OutputFormat::kWide;
  std::vector<std::string> headers = {"SESSION", "EPOCH",    "MODEL", "PHASE", "PROMPT",
                                      "TOKENS",  "ATTEMPTS", "AGE",   "LEFT"};
  if (wide) headers.push_back("ROUTE");
  Table table(headers);
  for (const v1::SessionSummary& session : sessions.sessions()) {
    std::vector<std::string> row = {NumberText(session.session()),
                                    NumberText(session.epoch()),
                                    session.model(),
                                    session.phase(),
                                    absl::StrCat(session.prompt_tokens()),
                                    absl::StrCat(session.tokens()),
                                    absl::StrCat(session.attempts()),
                                    AgeText(absl::Milliseconds(session.age_ms())),
                                    AgeText(absl::Milliseconds(session.budget_ms()))};
    if (wide) row.push_back(RouteText(session));
    table.AddRow(std::move(row));
  }
  return table.Render(options.headers);
}

std::string SessionView(const std::optional<v1::SessionSummary>& live,
                        const v1::RecordList& records, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return SessionJson(live, records);
  std::string text;
  if (live.has_value()) {
    v1::SessionList list;
    *list.add_sessions() = *live;
    ViewOptions wide = options;
    wide.format = OutputFormat::kWide;
    text = SessionListView(list, wide);
    if (!records.records().empty()) text += "\n";
  }
  if (!records.records().empty()) absl::StrAppend(&text, RecordListView(records, options));
  return text;
}

std::string RecordListView(const v1::RecordList& records, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return RecordListJson(records);
  if (options.format == OutputFormat::kName) {
    std::string text;
    for (const v1::LedgerRecord& record : records.records()) {
      absl::StrAppend(&text, record.sequence(), "\n");
    }
    return text;
  }
  const bool wide = options.format == OutputFormat::kWide;
  std::vector<std::string> headers = {"RECORD", "SESSION", "EPOCH", "STATE", "PROMPT",
                                      "TOKENS", "BILLED",  "WORK",  "KIND",  "FINISHED"};
  if (wide) headers.insert(headers.end(), {"TERM", "PLAN", "ROUTE", "DETAIL", "HASH"});
  Table table(headers);
  for (const v1::LedgerRecord& record : records.records()) {
    std::vector<std::string> row = {absl::StrCat(record.sequence()),
                                    absl::StrCat(record.session()),
                                    absl::StrCat(record.epoch()),
                                    record.state(),
                                    absl::StrCat(record.prompt_tokens()),
                                    absl::StrCat(record.tokens()),
                                    absl::StrCat(record.billed_tokens()),
                                    absl::StrCat(record.work_tokens()),
                                    record.kind(),
                                    TimeText(record.finished_unix_ms())};
    if (wide) {
      row.insert(row.end(), {absl::StrCat(record.term()), absl::StrCat(record.plan_epoch()),
                             record.route(), absl::StrReplaceAll(record.detail(), {{"\n", " "}}),
                             record.hash().substr(0, 12)});
    }
    table.AddRow(std::move(row));
  }
  return table.Render(options.headers);
}

std::string VerdictView(const v1::LedgerVerdict& verdict, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return VerdictJson(verdict);
  std::string text =
      absl::StrCat("LEDGER    ", verdict.ok() ? "sound" : "not sound", "   ", verdict.records(),
                   " records   ", verdict.open_attempts(), " open attempts\n");
  absl::StrAppend(&text, "TOKENS    ", verdict.work_tokens(), " worked = ", verdict.billed_tokens(),
                  " billed + ", verdict.wasted_tokens(), " wasted\n");
  absl::StrAppend(&text, "HEAD      ", verdict.head_hash().empty() ? "-" : verdict.head_hash(),
                  "\n");
  if (!verdict.problems().empty()) text += "PROBLEMS\n";
  for (const std::string& problem : verdict.problems()) {
    absl::StrAppend(&text, "  ", problem, "\n");
  }
  if (!verdict.ok()) {
    text +=
        "  hint: keep a copy of coordinator.db as it is; restore a backup, and start the "
        "coordinator with --restore TERM\n";
  }
  return text;
}

std::string RecordCsvHeader() {
  return "sequence,session,epoch,term,plan_epoch,route,state,prompt_tokens,tokens,billed_tokens,"
         "work_tokens,kind,detail,finished_unix_ms,hash\n";
}

std::string RecordCsvLine(const v1::LedgerRecord& record) {
  return absl::StrCat(
      absl::StrJoin(
          {absl::StrCat(record.sequence()), absl::StrCat(record.session()),
           absl::StrCat(record.epoch()), absl::StrCat(record.term()),
           absl::StrCat(record.plan_epoch()), CsvCell(record.route()), CsvCell(record.state()),
           absl::StrCat(record.prompt_tokens()), absl::StrCat(record.tokens()),
           absl::StrCat(record.billed_tokens()), absl::StrCat(record.work_tokens()),
           CsvCell(record.kind()), CsvCell(record.detail()),
           absl::StrCat(record.finished_unix_ms()), record.hash()},
          ","),
      "\n");
}

}  // namespace shardline
