// `shardctl session` and `shardctl ledger`, letter by letter, against a coordinator that answers
// from a script.

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "coordinator/ctl/exit_code.h"
#include "coordinator/ctl/ledger_views.h"
#include "coordinator/ctl/shardctl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/admin.grpc.pb.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

v1::LedgerRecord Completed() {
  v1::LedgerRecord record;
  record.set_sequence(1);
  record.set_session(281474976710657);
  record.set_epoch(2);
  record.set_term(3);
  record.set_plan_epoch(4);
  record.set_route("node-1:0-10,node-2:11-21");
  record.set_state("completed");
  record.set_prompt_tokens(12);
  record.set_tokens(30);
  record.set_billed_tokens(30);
  record.set_work_tokens(54);
  record.set_finished_unix_ms(1785585600123);
  record.set_hash(std::string(64, 'a'));
  return record;
}

v1::LedgerRecord Failed() {
  v1::LedgerRecord record;
  record.set_sequence(2);
  record.set_session(281474976710658);
  record.set_epoch(1);
  record.set_term(3);
  record.set_plan_epoch(4);
  record.set_route("node-1:0-21");
  record.set_state("failed");
  record.set_work_tokens(7);
  record.set_kind("worker_death");
  record.set_detail("node-1 said \"no\",\nthen died");
  record.set_hash(std::string(64, 'b'));
  return record;
}

v1::SessionSummary Running() {
  v1::SessionSummary session;
  session.set_session(281474976710659);
  session.set_epoch(2);
  session.set_model("qwen3-0.6b");
  session.set_phase("running");
  session.set_prompt_tokens(12);
  session.set_tokens(5);
  session.set_attempts(2);
  session.set_age_ms(4200);
  session.set_budget_ms(55'800);
  for (int i = 0; i < 2; ++i) {
    v1::RouteStage& stage = *session.add_route();
    stage.set_node_id(absl::StrCat("node-", i + 1));
    stage.mutable_layers()->set_begin(i * 14);
    stage.mutable_layers()->set_end(i * 14 + 14);
  }
  return session;
}

class ScriptedLedger : public v1::Admin::Service {
 public:
  ScriptedLedger() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedLedger() override { server_->Shutdown(GrpcDeadline(absl::ZeroDuration())); }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                            v1::SessionList* reply) override {
    *reply->add_sessions() = Running();
    reply->add_sessions()->set_phase("granting");
    return ToGrpcStatus(answer);
  }
  grpc::Status CancelSession(grpc::ServerContext*, const v1::CancelSessionRequest* request,
                             v1::CancelSessionReply* reply) override {
    cancel = *request;
    reply->set_outcome(outcome);
    reply->set_epoch(2);
    return ToGrpcStatus(answer);
  }
  grpc::Status ListRecords(grpc::ServerContext*, const v1::ListRecordsRequest* request,
                           v1::RecordList* reply) override {
    asked = *request;
    for (const v1::LedgerRecord& record : {Completed(), Failed()}) {
      if (request->session() == 0 || request->session() == record.session()) {
        *reply->add_records() = record;
      }
    }
    reply->set_total(9);
    return ToGrpcStatus(answer);
  }
  grpc::Status ExportRecords(grpc::ServerContext*, const v1::ListRecordsRequest* request,
                             grpc::ServerWriter<v1::LedgerRecord>* writer) override {
    asked = *request;
    for (const v1::LedgerRecord& record : records) writer->Write(record);
    return ToGrpcStatus(answer);
  }
  grpc::Status VerifyLedger(grpc::ServerContext*, const v1::VerifyLedgerRequest*,
                            v1::LedgerVerdict* reply) override {
    *reply = verdict;
    return ToGrpcStatus(answer);
  }

  absl::Status answer;
  std::string outcome = "cancelled";
  std::vector<v1::LedgerRecord> records = {Completed(), Failed()};
  v1::LedgerVerdict verdict;
  v1::CancelSessionRequest cancel;
  v1::ListRecordsRequest asked;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

class CtlLedgerTest : public ::testing::Test {
 protected:
  Outcome Ask(std::vector<std::string> args) {
    args.push_back("--endpoint=" + coordinator_.endpoint());
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    const int code = RunShardctl(args, {.in = &in, .out = &out, .err = &err});
    return {code, out.str(), err.str()};
  }
  ScriptedLedger coordinator_;
};

TEST_F(CtlLedgerTest, SessionsAreListedWithWhatIsLeftOfThem) {
  EXPECT_EQ(Ask({"session", "list"}).out,
            "SESSION          EPOCH  MODEL       PHASE     PROMPT  TOKENS  ATTEMPTS  AGE  LEFT\n"
            "281474976710659  2      qwen3-0.6b  running   12      5       2         4s   55s\n"
            "-                -      -           granting  0       0       0         0ms  0ms\n");
  EXPECT_THAT(Ask({"session", "list", "-o", "wide"}).out, HasSubstr("node-1:0-13,node-2:14-27"));
  EXPECT_EQ(Ask({"session", "list", "-o", "name"}).out, "281474976710659\n");
  EXPECT_THAT(Ask({"session", "list", "-o", "json"}).out,
              AllOf(HasSubstr("\"kind\": \"SessionList\""), HasSubstr("\"phase\": \"running\"")));
}

TEST_F(CtlLedgerTest, ASessionIsShownWithItsRecords) {
  Outcome outcome = Ask({"session", "show", "281474976710658"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out,
            "RECORD  SESSION          EPOCH  STATE   PROMPT  TOKENS  BILLED  WORK  KIND          "
            "FINISHED\n"
            "2       281474976710658  1      failed  0       0       0       7     worker_death  "
            "-\n");
  outcome = Ask({"session", "show", "281474976710659", "-o", "json"});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\"live\": {"), HasSubstr("\"records\": []")));
  outcome = Ask({"session", "show", "5"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err,
            "error: no session 5\nhint:  see `shardctl session list` and `shardctl ledger list`\n");
}

TEST_F(CtlLedgerTest, ACancelSaysWhatStands) {
  Outcome outcome = Ask({"session", "cancel", "281474976710659", "--reason", "maintenance"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "session 281474976710659 cancelled, epoch 2\n");
  EXPECT_EQ(coordinator_.cancel.reason(), "maintenance");
  coordinator_.outcome = "completed";
  outcome = Ask({"session", "cancel", "281474976710659"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_EQ(outcome.out, "session 281474976710659 completed, epoch 2\n");
  EXPECT_EQ(outcome.err, "it had ended before\n");
  EXPECT_EQ(Ask({"session", "cancel", "me"}).code, 2);
  EXPECT_EQ(Ask({"session", "cancel"}).code, 2);
}

TEST_F(CtlLedgerTest, RecordsAreListedInLedgerOrder) {
  Outcome outcome = Ask({"ledger", "list", "--session", "281474976710657", "--state", "completed",
                         "--limit", "7", "--after", "3"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out,
            "RECORD  SESSION          EPOCH  STATE      PROMPT  TOKENS  BILLED  WORK  KIND  "
            "FINISHED\n"
            "1       281474976710657  2      completed  12      30      30      54    -     "
            "2026-08-01T12:00:00Z\n");
  EXPECT_EQ(outcome.err, "1 of 9 records; more with --after 1\n");
  EXPECT_EQ(coordinator_.asked.state(), "completed");
  EXPECT_EQ(coordinator_.asked.limit(), 7u);
  EXPECT_EQ(coordinator_.asked.after(), 3u);
  outcome = Ask({"ledger", "list", "-q", "-o", "wide"});
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("node-1 said \"no\", then died"));
  EXPECT_THAT(outcome.out, HasSubstr("aaaaaaaaaaaa\n"));
  EXPECT_EQ(Ask({"ledger", "list", "--state", "lost"}).code, 2);
  EXPECT_EQ(Ask({"ledger", "list", "--limit", "5000"}).code, 2);
}

TEST_F(CtlLedgerTest, VerifyExitsByWhatItFound) {
  coordinator_.verdict.set_ok(true);
  coordinator_.verdict.set_records(2);
  coordinator_.verdict.set_work_tokens(61);
  coordinator_.verdict.set_billed_tokens(30);
  coordinator_.verdict.set_wasted_tokens(31);
  coordinator_.verdict.set_head_hash("abcd");
  Outcome outcome = Ask({"ledger", "verify"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out,
            "LEDGER    sound   2 records   0 open attempts\n"
            "TOKENS    61 worked = 30 billed + 31 wasted\n"
            "HEAD      abcd\n");
  coordinator_.verdict.set_ok(false);
  coordinator_.verdict.add_problems("record 2 (session 5, epoch 1): its hash does not fit");
  outcome = Ask({"ledger", "verify"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("LEDGER    not sound"), HasSubstr("PROBLEMS\n  record 2 (session 5"),
                    HasSubstr("--restore TERM")));
  outcome = Ask({"ledger", "verify", "-o", "json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("\"ok\": false"));
}

constexpr char kCsv[] =
    "sequence,session,epoch,term,plan_epoch,route,state,prompt_tokens,tokens,billed_tokens,"
    "work_tokens,kind,detail,finished_unix_ms,hash\n"
    "1,281474976710657,2,3,4,\"node-1:0-10,node-2:11-21\",completed,12,30,30,54,,,1785585600123,"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
    "2,281474976710658,1,3,4,node-1:0-21,failed,0,0,0,7,worker_death,\"node-1 said \"\"no\"\",\n"
    "then died\",0,bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n";

TEST_F(CtlLedgerTest, ExportsAreCsvUnlessJsonIsAskedFor) {
  EXPECT_EQ(Ask({"ledger", "export"}).out, kCsv);
  EXPECT_EQ(Ask({"ledger", "export", "-o", "csv"}).out, kCsv);
  EXPECT_EQ(coordinator_.asked.limit(), 0u);
  // The same document as a list of them.
  v1::RecordList list;
  for (const v1::LedgerRecord& record : coordinator_.records) *list.add_records() = record;
  EXPECT_EQ(Ask({"ledger", "export", "-o", "json"}).out,
            RecordListView(list, {.format = OutputFormat::kJson}));
  coordinator_.records.clear();
  EXPECT_EQ(Ask({"ledger", "export", "-o", "json"}).out,
            RecordListView({}, {.format = OutputFormat::kJson}));
  EXPECT_EQ(Ask({"ledger", "export", "-o", "wide"}).code, 2);
  EXPECT_EQ(Ask({"status", "-o", "csv"}).code, 2);
}

TEST_F(CtlLedgerTest, AnExportedFileIsThereWholeOrNotAtAll) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "shardctl-ledger.csv";
  std::filesystem::remove(path);
  coordinator_.answer = MakeFailure(FailureKind::kOverloaded, "too much to do");
  EXPECT_EQ(Ask({"ledger", "export", "--file", path}).code, 6);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  coordinator_.answer = absl::OkStatus();
  const Outcome outcome = Ask({"ledger", "export", "--file", path});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, absl::StrCat("2 records written to ", path.string(), "\n"));
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), kCsv);
  std::filesystem::remove(path);
  EXPECT_EQ(Ask({"ledger", "export", "--file", "/no/such/folder/l.csv"}).code, 1);
}

TEST(CtlHints, EveryKindOfFailureHasOneUnlessItsMessageSaysAll) {
  for (int32_t kind = 1; kind < kFailureKindCount; ++kind) {
    const auto failure = static_cast<FailureKind>(kind);
    const std::string hint = HintFor(MakeFailure(failure, "x"), {.endpoint = "here:1"});
    EXPECT_EQ(hint.empty(), failure == FailureKind::kInvalidRequest) << FailureKindName(failure);
  }
}

TEST(CtlLedgerUsage, EveryCommandShowsAnExample) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"session", "list"},
                                             {"session", "show"},
                                             {"session", "cancel"},
                                             {"ledger", "list"},
                                             {"ledger", "verify"},
                                             {"ledger", "export"}}) {
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    std::vector<std::string> args = words;
    args.push_back("--help");
    EXPECT_EQ(RunShardctl(args, {.in = &in, .out = &out, .err = &err}), 0);
    EXPECT_THAT(out.str(),
                HasSubstr(absl::StrCat("Example:\n  shardctl ", words[0], " ", words[1])));
  }
}

}  // namespace
}  // namespace shardline
